"""Sections on where the runs end: final returns, averages over scenarios, and how far they can be believed."""

import numpy as np

from hpml.report.figures.curves import Curve, curves
from hpml.report.page import Section
from hpml.report.parts import FigurePart, ListPart, Part, TablePart
from hpml.report.sweep.analysis import Analysis, Block
from hpml.report.sweep.figures import Dot, dot_panels, looks
from hpml.report.sweep.paper import abbreviations
from hpml.report.sweep.progress import mean_tables
from hpml.report.sweep.tables import aggregate_table, full_table, later_table, summary_table
from hpml.report.sweep.words import counted, fixed, listed
from hpml.statistics.compare import holm
from hpml.statistics.measured import MEASURED

FINAL = (
    "**Final return of a seed**: the mean over its evaluations in the last tenth of the steps compared, at least the "
    "last one. An evaluation plays whole episodes with the policies as they are; the return is the undiscounted sum of "
    "an agent's own rewards, averaged over agents."
)


def final_section(analysis: Analysis) -> Section:
    """The paper's two tables and the raw numbers under them."""
    study = analysis.study
    words = [FINAL, analysis.scale.words]
    words += [text] if (text := abbreviations(study.environments)) else []
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
    measures = {
        "trained": ("Return in training", "Episodes that ended in the last tenth of the steps, exploration included."),
        "equality": ("Equality", "1 - Gini of the agents' returns in an episode: 1 where all get the same."),
    }
    parts += mean_tables(study, measures, "at the end")
    later = later_table(analysis)
    parts += [later] if later is not None else []
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
        parts += [improvement, _improvement_table(analysis)]
    parts.append(_profile_figure(analysis, analysis.blocks[0]))
    return Section(title, parts=parts)


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
    return dot_panels({title: dots}, looks(analysis.study), title, caption, ["probability"], 0.5, (-0.03, 1.03))


def _improvement_table(analysis: Analysis) -> TablePart:
    found = list(analysis.overall.values())
    fair = holm([each.chance.p for each in found])
    rows = [
        [
            each.method,
            each.against,
            each.chance.tasks,
            f"{each.chance.value:.2f}",
            fixed(each.chance.percentile, 2),
            fixed(each.chance.score, 2),
            f"{each.chance.p:.2g}",
            f"{p:.2g}",
        ]
        for each, p in zip(found, fair, strict=True)
    ]
    columns = ["Method", "against", "scenarios", "P(better)", "bootstrap", "score", "p", "p, Holm"]
    note = "p: runs exchanged within scenarios, exact, two-sided; Holm's is for all rows of this table together."
    return TablePart(columns, rows, note, "Probability of improvement, in numbers", tight=True)


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
