"""The paper's tables from the user's runs, and averages over scenarios (`tab:meltingpot_summary`, `_full`)."""

from collections.abc import Mapping, Sequence

import numpy as np

from hpml.report.parts import Mark, TablePart
from hpml.report.sweep.analysis import Analysis, Block, Verdict
from hpml.report.sweep.paper import SUMMARY, column_of
from hpml.report.sweep.study import Study
from hpml.report.sweep.words import counted, extent, fixed, listed, number, with_error
from hpml.statistics.aggregate import macro_average, standard_error

TONES = {"better": "good", "worse": "bad"}
MARKED = (
    "Green: better than its baseline (MAPPO, or its own algorithm without the projection); red: worse; only where "
    "Welch's 95 % interval of the difference and the exact test agree."
)


def summary_table(analysis: Analysis) -> TablePart:
    """`tab:meltingpot_summary`: normalised return on three scenarios, their average, and raw residual energy."""
    study = analysis.study
    shown = shown_scenarios(study)
    places = [study.environments.index(name) for name in shown]
    usable = np.array([place for place in places if np.isfinite(analysis.scale.width[place])], int)
    rows = []
    for method in study.methods:
        means, errors = analysis.mean(analysis.normalised, method.name)
        own = means[places]
        whole = len(usable) and np.isfinite(means[usable]).all()
        average, _ = macro_average(means[usable], errors[usable]) if whole else (np.nan, np.nan)
        energy = [_energy(study, method.name, shown, name) for name in ("residual_energy", "residual_clean")]
        rows.append([method.name, *(_one(mean) for mean in own), _one(average), *energy])
    columns = ["Method", *(SUMMARY.get(name, column_of(name)) for name in shown), "Shown Avg"]
    columns += ["Raw residual energy ↓", "without noise"]
    note = (
        f"The layout of the paper's `tab:meltingpot_summary`. Normalised final return in per cent; {extent(study)}. "
        f"Shown Avg: {_over(len(usable), len(places))}. Raw "
        "residual energy: mean over training and over the scenarios shown, as the paper has it, here for every "
        "method; it holds the noise of the gradient too. Without noise: the product of the residuals of two half "
        "batches, whose noise is independent; it can fall below zero."
    )
    return TablePart(columns, rows, note, "Summary, as the paper lays it out", tight=True)


def shown_scenarios(study: Study) -> tuple[str, ...]:
    """The summary's scenarios: the paper's three where they are there, else the first three."""
    there = tuple(name for name in SUMMARY if name in study.environments)
    return there or study.environments[:3]


def full_table(analysis: Analysis, kind: str) -> TablePart:
    """`tab:meltingpot_full` of `kind` normalised, raw or collective: mean ± standard error in every scenario."""
    study = analysis.study
    table = {"normalised": analysis.normalised, "raw": analysis.raw, "collective": analysis.collective}[kind]
    scaled = kind == "normalised"
    usable = np.array(
        [any(np.isfinite(own[:, k]).any() for own in table.values()) for k in range(len(study.environments))]
    )
    shared = np.array([all(np.isfinite(own[:, k]).any() for own in table.values()) for k in range(len(usable))])
    partial = scaled and bool(shared.any()) and not bool((shared == usable).all())
    verdicts = {} if kind == "collective" else analysis.verdicts  # which are about the return of an agent
    rows = []
    for method in study.methods:
        means, errors = analysis.mean(table, method.name)
        cells = [
            _marked(with_error(mean, error, 1 if scaled else None), verdicts.get((method.name, environment)))
            for environment, mean, error in zip(study.environments, means, errors, strict=True)
        ]
        if scaled:
            complete = np.isfinite(means[usable]).all()
            cells.append(with_error(*macro_average(means[usable], errors[usable]), 1) if complete else "–")
            if partial:
                cells.append(with_error(*macro_average(means[shared], errors[shared]), 1))
        rows.append([method.name, *cells])
    if kind != "normalised":
        rows += _untrained(study, {"raw": "return", "collective": "collective_return"}[kind])
    columns = ["Method", *(column_of(name) for name in study.environments)]
    columns += (["Macro Avg", *(["Shared Avg"] * partial)]) if scaled else []
    title = {
        "normalised": "Final return, normalised: mean ± standard error",
        "raw": "Final return of an agent, in the scenario's own units: mean ± standard error",
        "collective": "Final collective return, the sum over the agents: mean ± standard error",
    }[kind]
    return TablePart(columns, rows, _full_note(analysis, kind, partial, shared), title, tight=True)


def _untrained(study: Study, column: str) -> list[list[str | Mark]]:
    """A row with the evaluations before the first update, all methods and seeds together; none where there are none."""
    cells: list[str | Mark] = []
    for environment in study.environments:
        seeds: dict[int, list[float]] = {}
        for (place, _, seed), (steps, values) in study.tracks.items():
            first = values[column][np.asarray(steps) == 0]
            if place == environment and len(first) and np.isfinite(first[0]):
                seeds.setdefault(seed, []).append(float(first[0]))
        means = np.array([np.mean(each) for each in seeds.values()])
        error = float(standard_error(means)) if len(means) > 1 else float("nan")
        cells.append(Mark(with_error(float(means.mean()), error), "soft") if len(means) else "–")
    return [[Mark("before training", "soft"), *cells]] if any(cell != "–" for cell in cells) else []


def _over(count: int, total: int) -> str:
    """What an average is over."""
    if count == total:
        return "over all of them"
    return f"over the {count} of {total} that have a scale; in the others no two means differ"


def aggregate_table(analysis: Analysis, block: Block) -> TablePart:
    """Averages over a block's scenarios with all their intervals."""
    rows = []
    for name in block.methods:
        mean, middle = block.estimates[name]["mean"], block.estimates[name]["interquartile mean"]
        rows.append(
            [
                name,
                _one(middle.value),
                _ends(middle.percentile),
                _ends(middle.studentised),
                _ends(middle.student),
                with_error(mean.value, mean.error, 1),
                _ends(mean.student),
                _one(block.estimates[name]["median"].value),
            ]
        )
    columns = [
        "Method",
        "IQM",
        "IQM percentile",
        "IQM studentised",
        "IQM Student",
        "Mean ± s.e.",
        "Mean Student",
        "Median",
    ]
    cells = [analysis.study.cells[environment, name] for environment in block.environments for name in block.methods]
    note = (
        f"Over {counted([len(block.environments)], 'scenario')} that all these methods have "
        f"({listed([column_of(name) for name in block.environments], 11)}); "
        f"{counted((len(cell.seeds) for cell in cells), 'seed')} a cell. IQM: interquartile mean over all runs. 95 % "
        "intervals: stratified bootstrap by percentiles and studentised, and Student's t with the delta method; the "
        "studentised one and Student's are the ones to read with few seeds; – where the runs that count are all equal, "
        "which says nothing of their scatter."
    )
    return TablePart(columns, rows, note, "Averages over scenarios, normalised", tight=True)


def _ends(interval: Sequence[float]) -> str:
    """An interval, or – where it has no width."""
    return fixed(interval, 1) if interval[1] > interval[0] else "–"


def later_table(analysis: Analysis) -> TablePart | None:
    """The second comparison, in scenarios where some methods went on; None where nobody did."""
    study = analysis.study
    places = {name: cell.bound for (name, _), cell in study.later.items()}
    if not places:
        return None
    rows = []
    for method in study.methods:
        cells: list[str | Mark] = []
        for environment in places:
            cell = study.later.get((environment, method.name))
            if cell is None:
                cells.append("–")
                continue
            values = cell.values["final"]
            text = with_error(float(values.mean()), float(standard_error(values)))
            cells.append(_marked(text, analysis.later.get((method.name, environment))))
        rows.append([method.name, *cells])
    columns = [f"{column_of(name)} after {steps:,.0f}" for name, steps in places.items()]
    note = (
        "Tables above compare after the steps that all methods of a scenario have. Here are those that have at "
        "least half "
        "of what the furthest has, after the most steps that all of these have: return of an agent, mean ± standard "
        f"error. {MARKED}"
    )
    return TablePart(["Method", *columns], rows, note, "Further on: where some methods have more steps", tight=True)


def _full_note(analysis: Analysis, kind: str, partial: bool, shared: np.ndarray) -> str:
    study = analysis.study
    if kind == "raw":
        first = "Before training: the evaluations before the first update, of all methods together."
        return f"Return of an episode, undiscounted; {extent(study)}. {MARKED} {first}"
    if kind == "collective":
        return f"{extent(study).capitalize()}."
    words = (
        f"The layout of the paper's `tab:meltingpot_full`; {extent(study)}. Macro Avg: the plain mean over scenarios"
    )
    width = analysis.scale.width
    words += f" ({_over(int(np.isfinite(width).sum()), len(width))})"
    words += ", with the errors added in squares; – where a method has not run everywhere."
    if partial:
        words += f" Shared Avg: the same over the {int(shared.sum())} scenarios that every method has."
    return f"{words} {MARKED}"


def _marked(text: str, verdict: Verdict | None) -> str | Mark:
    tone = TONES.get(verdict.word) if verdict is not None else None
    return Mark(text, tone) if tone else text


def _one(value: float) -> str:
    return f"{round(value, 1) + 0.0:.1f}" if np.isfinite(value) else "–"


def _energy(study: Study, method: str, environments: Sequence[str], column: str) -> str:
    """Mean over the scenarios shown of the mean over seeds; – where a scenario has none."""
    means = [values.mean() for name in environments if len(values := _finite(study, name, method, column))]
    return number(float(np.mean(means))) if len(means) == len(environments) else "–"


def _finite(study: Study, environment: str, method: str, column: str) -> np.ndarray:
    values = study.values(environment, method, column)
    return values[np.isfinite(values)]


def matrix_table(
    study: Study, columns: Mapping[str, Mapping[str, str]], title: str, note: str, first: str = "Method"
) -> TablePart:
    """Methods by scenarios of texts, `columns[environment][method]`; – where there is none."""
    rows = [
        [method.name, *(columns[name].get(method.name, "–") for name in columns)]
        for method in study.methods
        if any(method.name in own for own in columns.values())
    ]
    return TablePart([first, *(column_of(name) for name in columns)], rows, note, title, tight=True)
