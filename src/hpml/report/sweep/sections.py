"""The sections of the page of `hpml report`, each from the numbers that the analysis holds."""

from collections.abc import Mapping

import numpy as np

from hpml.report.figures.curves import Curve, curves
from hpml.report.page import Section
from hpml.report.parts import FigurePart, ListPart, Part, TablePart
from hpml.report.sweep.analysis import Analysis, Block
from hpml.report.sweep.figures import Dot, curve_panels, dot_panels, looks
from hpml.report.sweep.study import Study
from hpml.report.sweep.tables import aggregate_table, full_table, matrix_table, own_end_table, summary_table
from hpml.report.sweep.words import counted, listed, number, with_error
from hpml.statistics.aggregate import standard_error
from hpml.statistics.measured import MEASURED

SMOOTHED = (
    "Lines and bands are smoothed over a few points for the eye only; the mean as it is lies faint under each "
    "line, and "
    "the CSV has only that."
)
NOISE_FREE = (
    "Without noise: the product of the residuals of two half batches, whose noise is independent; its mean is "
    "the energy "
    "of the circulation alone, and it can fall below zero."
)
FINAL = (
    "**Final return of a seed**: the mean over its evaluations in the last tenth of the steps compared, at least the "
    "last one. An evaluation plays whole episodes with the policies as they are; the return is the undiscounted sum of "
    "an agent's own rewards, averaged over agents."
)


def final_section(analysis: Analysis) -> Section:
    """The paper's two tables and the raw numbers under them."""
    study = analysis.study
    words = [FINAL, analysis.scale.words]
    trained = [
        f"{cell.method} on {cell.environment}"
        for cell in study.cells.values()
        if not np.isfinite(cell.values["evaluated"]).any()
    ]
    if trained:
        words.append(f"No evaluations, so the training return stands in their place: {listed(trained)}.")
    late = [
        f"{cell.method} on {cell.environment}"
        for cell in study.cells.values()
        if (np.isfinite(cell.values["evaluated"]) & (cell.values["evaluations"] == 0)).any()
    ]
    if late:
        words.append(f"No evaluation in the last tenth, so the last one before it counts: {listed(late)}.")
    parts: list[Part] = [summary_table(analysis)]
    if any(np.isfinite(table).any() for table in analysis.normalised.values()):
        parts.append(full_table(analysis, "normalised"))
    parts.append(full_table(analysis, "raw"))
    if any(np.isfinite(table).any() for table in analysis.collective.values()):
        parts.append(full_table(analysis, "collective"))
    ends = own_end_table(analysis)
    parts += [ends] if ends is not None else []
    return Section("Final return", words, parts)


def overall_section(analysis: Analysis) -> Section:
    """Averages over scenarios, probabilities of improvement, performance profiles."""
    title = "Over all scenarios"
    if not analysis.blocks:
        return Section(title, ["No scenario has two methods with different returns, so there is no common scale."])
    parts: list[Part] = []
    for block in analysis.blocks:
        parts += [aggregate_table(analysis, block), _interval_figure(analysis, block)]
    if (improvement := _improvement_figure(analysis)) is not None:
        parts.append(improvement)
    parts.append(_profile_figure(analysis, analysis.blocks[0]))
    return Section(title, parts=parts)


def curves_section(analysis: Analysis) -> Section:
    """Return against environment steps."""
    figures = [
        curve_panels(
            analysis.study,
            "evaluated",
            "Return in evaluations",
            "Mean return of an agent over seeds, with one standard error on either side, in the scenario's own units. "
            f"{SMOOTHED} A click on a name hides it.",
            "return",
        ),
        curve_panels(
            analysis.study,
            "trained",
            "Return in training",
            "The same for the episodes that ended while training, exploration included, averaged over 200 stretches of "
            f"steps. {SMOOTHED}",
            "return",
        ),
    ]
    return Section("Learning curves", parts=[figure for figure in figures if figure is not None] or ["No curve yet."])


def circulation_section(analysis: Analysis) -> Section:
    """NonPot against steps, and the residual's energy for every method."""
    study = analysis.study
    figure = curve_panels(
        study,
        "nonpot",
        "NonPot, held out",
        "Share of the update's energy that one potential cannot explain on samples that the fit has not seen, for "
        "every method, measured beside training and without a part in it. Bands are one standard error over seeds. "
        f"{SMOOTHED}",
        "NonPot",
        (-0.02, 1.02),
    )
    if figure is None:
        return Section("Circulation", ["These runs did not measure circulation (`--no-measure`)."])
    words = [
        "The instrument looks at the history of updates along the run. Where `identifiable` below is near 0 that "
        "history "
        "is a path, on which a potential explains everything: a low NonPot then says little.",
    ]
    measures = {
        "residual_energy": ("Raw residual energy", "As the paper's table has it, noise and all."),
        "residual_clean": ("Residual energy without noise", NOISE_FREE),
        "nonpot": ("NonPot held out", ""),
        "identifiable": ("Identifiable share", "0: a path; 1: samples all around."),
    }
    return Section("Circulation", words, [figure, *_mean_tables(study, measures, "training average")])


def convention_section(analysis: Analysis) -> Section:
    """Switches of the joint convention, within episodes and between evaluations."""
    study = analysis.study
    figure = curve_panels(
        study,
        "switch_rate",
        "Convention switches within episodes",
        f"How often two interactions in a row show different joint conventions, in evaluations. {SMOOTHED}",
        "switches",
        (-0.02, 1.02),
    )
    if figure is None:
        return Section("Convention switches", ["None of these scenarios has conventions to switch between."])
    measures = {
        "switch_rate": (
            "Switches within episodes",
            "Within episodes: in the evaluations of the last tenth of the steps.",
        ),
        "switched": (
            "Switches between evaluations",
            "Between evaluations: how often the commonest joint convention is not that of the evaluation before, over "
            "the "
            "whole run; 0 where a convention, once found, stays.",
        ),
    }
    return Section("Convention switches", parts=[figure, *_mean_tables(study, measures, "")])


def speed_section(analysis: Analysis) -> Section:
    """Steps a second, and what the projection costs."""
    study = analysis.study
    rates: dict[str, dict[str, str]] = {}
    more: dict[str, dict[str, str]] = {}
    mixed = False
    for environment in study.environments:
        for method in study.methods:
            speed = study.speeds.get((environment, method.name))
            if speed is None or not np.isfinite(speed.steps_per_second):
                continue
            rates.setdefault(environment, {})[method.name] = f"{speed.steps_per_second:,.0f}"
            base = study.baseline(method)
            other = None if base is None else study.speeds.get((environment, base.name))
            if not method.projected or other is None or not np.isfinite(other.steps_per_second):
                continue
            if (speed.together, speed.device) != (other.together, other.device) or speed.few or other.few:
                mixed = True
                continue
            whole = other.steps_per_second / speed.steps_per_second - 1
            text = f"{100 * whole:+.0f} %"
            if np.isfinite(speed.learn) and np.isfinite(other.learn) and other.learn > 0:
                text += f" ({100 * (speed.learn / other.learn - 1):+.0f} %)"
            more.setdefault(environment, {})[method.name] = text.replace("-", "−")
    if not rates:
        return Section("Speed", ["These runs hold no times."])
    note = (
        "Environment steps a second of all seeds of a process together, playing and learning, without measuring and "
        "evaluating; from the median update. Runs that shared a machine slowed each other."
    )
    parts: list[Part] = [matrix_table(study, rates, "Training steps a second", note)]
    if more:
        note = (
            "Time of an update more than the same algorithm without the projection takes; in brackets the part that "
            "learns alone. Honest only where both ran on the same machine under the same load"
        )
        note += (
            "; left out where the number of seeds in a process or the device differ, or with fewer than 20 updates."
            if mixed
            else "."
        )
        parts.append(matrix_table(study, more, "What the projection costs", note))
    return Section("Speed", parts=parts)


def belief_section(analysis: Analysis) -> Section:
    """What so few seeds cannot show, and how often the intervals hold the truth."""
    names = {"mean": "mean of a cell", "macro": "mean over 10 scenarios", "iqm": "IQM over 10 scenarios"}
    seeds = sorted({row.seeds for row in MEASURED})
    kinds = ("percentile", "studentised", "student")
    shares = {
        (row.quantity, row.kind, row.seeds): " · ".join(f"{100 * getattr(row, kind):.0f}" for kind in kinds)
        for row in MEASURED
    }
    rows = [
        [names[quantity], scores, *(shares.get((quantity, scores, n), "–") for n in seeds)]
        for quantity, scores in dict.fromkeys((row.quantity, row.kind) for row in MEASURED)
    ]
    errors = max(100 * row.error(name) for row in MEASURED for name in kinds)
    table = TablePart(
        ["what", "scores", *(f"{n} seeds" for n in seeds)],
        rows,
        "Per cent of trials in which the 95 % interval held the truth: percentile bootstrap · studentised bootstrap · "
        f"Student's t. {counted({row.trials for row in MEASURED}, 'trial')} each, Monte Carlo error up to "
        f"{errors:.1f} points. Skewed: a few runs do very well; bimodal: a quarter find the better convention.",
        "Coverage of the intervals, measured in simulation",
    )
    cautions = [ListPart(analysis.cautions)] if analysis.cautions else ["Nothing to warn of."]
    return Section("How far this can be believed", parts=[*cautions, table])


def _interval_figure(analysis: Analysis, block: Block) -> FigurePart:
    groups = {
        title: {
            name: Dot(found.value, found.percentile, found.student)
            for name in block.methods
            if (found := block.estimates[name][title])
        }
        for title in ("interquartile mean", "mean")
    }
    caption = (
        "Normalised return over the scenarios of the table above. Thick: 95 % percentile bootstrap, too short for few "
        "seeds; thin: Student's 95 % interval."
    )
    return dot_panels(groups, looks(analysis.study), "Averages with their intervals", caption, ["%", "%"])


def _improvement_figure(analysis: Analysis) -> FigurePart | None:
    dots = {
        f"{name}": Dot(found.chance.value, found.chance.percentile, found.chance.score)
        for name, found in analysis.overall.items()
    }
    if not dots:
        return None
    bases = {name: found.against for name, found in analysis.overall.items()}
    common = max(set(bases.values()), key=list(bases.values()).count)
    others = [f"{name} against {base}" for name, base in bases.items() if base != common]
    tasks = counted((found.chance.tasks for found in analysis.overall.values()), "scenario")
    caption = (
        f"The probability that a run beats a run of {common} in the same scenario, averaged over {tasks} that both "
        "have; "
        "0.5: no difference. Thick: percentile bootstrap, which has no width where runs do not overlap; thin: the "
        "score "
        f"interval.{f' Compared otherwise: {listed(others)}.' if others else ''}"
    )
    title = f"Probability of improvement over {common}"
    return dot_panels({title: dots}, looks(analysis.study), title, caption, ["probability"], [0.5])


def _profile_figure(analysis: Analysis, block: Block) -> FigurePart:
    style = looks(analysis.study)
    series = []
    for name in block.methods:
        band = block.profiles[name]
        ends = (band.low, band.high) if np.isfinite(band.low).all() else (None, None)
        series.append(
            Curve(name, band.at, band.value, *ends, colour=style[name].colour, dash=style[name].dash != "solid")
        )
    return curves(
        series,
        "Performance profiles",
        "The share of runs above each normalised return, every scenario weighing the same; higher is better, and a "
        "curve "
        "that lies above another everywhere wins everywhere. Bands: 95 % percentile bootstrap, point by point.",
        "normalised return",
        "share of runs above it",
        y_range=(-0.02, 1.02),
    )


def _mean_tables(study: Study, measures: Mapping[str, tuple[str, str]], which: str) -> list[Part]:
    """Means ± standard errors over seeds: a table a measure, or all in one where there is a single scenario."""
    texts = {column: _means(study, column) for column in measures}
    texts = {column: found for column, found in texts.items() if found}
    ending = "Mean ± standard error over seeds."
    if len(study.environments) == 1:
        names = [m.name for m in study.methods if any(m.name in next(iter(t.values())) for t in texts.values())]
        rows = [[name, *(next(iter(found.values())).get(name, "–") for found in texts.values())] for name in names]
        note = " ".join([*(measures[column][1] for column in texts), ending]).strip()
        title = f"In numbers{', ' * bool(which)}{which}"
        return [TablePart(["Method", *(measures[column][0] for column in texts)], rows, note, title)] if rows else []
    return [
        matrix_table(
            study, found, f"{measures[column][0]}{', ' * bool(which)}{which}", f"{measures[column][1]} {ending}".strip()
        )
        for column, found in texts.items()
    ]


def _means(study: Study, column: str) -> dict[str, dict[str, str]]:
    cells: dict[str, dict[str, str]] = {}
    for environment in study.environments:
        for method in study.methods:
            values = study.values(environment, method.name, column)
            values = values[np.isfinite(values)]
            if len(values):
                error = float(standard_error(values))
                text = with_error(float(values.mean()), error) if len(values) > 1 else number(float(values[0]))
                cells.setdefault(environment, {})[method.name] = text
    return cells
