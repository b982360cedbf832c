"""Sections along the steps: learning curves, circulation, convention switches, and what an update costs."""

from collections.abc import Mapping

import numpy as np

from hpml.report.page import Section
from hpml.report.parts import Part, TablePart
from hpml.report.sweep.analysis import Analysis
from hpml.report.sweep.figures import curve_panels
from hpml.report.sweep.study import Study
from hpml.report.sweep.tables import matrix_table
from hpml.report.sweep.words import number, with_error
from hpml.statistics.aggregate import standard_error

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
    figures.append(
        curve_panels(
            analysis.study,
            "exploitability",
            "Exploitability in evaluations",
            "Matrix games only, without sampling: what the agents could gain in an episode by best replies, summed "
            "over "
            f"them; 0 at an equilibrium, lower is better. {SMOOTHED}",
            "exploitability",
        )
    )
    measures = {"exploitability": ("Exploitability, at the end", "Evaluations of the last tenth of the steps.")}
    parts: list[Part] = [figure for figure in figures if figure is not None]
    parts += mean_tables(analysis.study, measures, "")
    return Section("Learning curves", parts=parts or ["No curve yet."])


def circulation_section(analysis: Analysis) -> Section:
    """NonPot against steps, and the residual's energy for every method."""
    study = analysis.study
    figure = curve_panels(
        study,
        "nonpot",
        "NonPot, held out",
        "Share of the update's energy that one potential cannot explain on samples that the fit has not seen, for "
        "every method, measured beside training and without a part in it: 0 to 1, and panels have scales of their own. "
        "Bands are one standard error over seeds. "
        f"{SMOOTHED}",
        "NonPot",
        from_zero=True,
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
        "noise_share": ("Noise in the update", "Share of the squared update that differs between two half batches."),
        "identifiable": ("Identifiable share", "0: a path; 1: samples all around."),
    }
    return Section("Circulation", words, [figure, *mean_tables(study, measures, "training average")])


def convention_section(analysis: Analysis) -> Section:
    """Switches of the joint convention, within episodes and between evaluations."""
    study = analysis.study
    figure = curve_panels(
        study,
        "switch_rate",
        "Convention switches within episodes",
        f"How often two interactions in a row show different joint conventions, in evaluations. {SMOOTHED}",
        "switches",
        from_zero=True,
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
    return Section("Convention switches", parts=[figure, *mean_tables(study, measures, "")])


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


def mean_tables(study: Study, measures: Mapping[str, tuple[str, str]], which: str) -> list[Part]:
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
