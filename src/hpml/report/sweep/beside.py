"""What the paper reports beside what was measured here (`tab:meltingpot_full`)."""

import numpy as np

from hpml.report.page import Section
from hpml.report.parts import Mark, Part, TablePart
from hpml.report.sweep import paper
from hpml.report.sweep.analysis import Analysis, Verdict
from hpml.report.sweep.study import Method, Study
from hpml.report.sweep.words import extent, number, with_error
from hpml.statistics.aggregate import macro_average, standard_error
from hpml.statistics.normalise import paper_scale
from hpml.statistics.scores import task_means

TITLE = "Beside the paper"


def beside_section(analysis: Analysis) -> Section:
    """The paper's rows and ours under each other, on the scenarios and with the methods that both have."""
    study = analysis.study
    scenarios = [scenario.name for scenario in paper.SCENARIOS if scenario.name in study.environments]
    pairs = [(method, name) for method in study.methods if (name := _counterpart(method, study)) is not None]
    if not scenarios or not pairs:
        return Section(TITLE, ["None of these runs is of a scenario and a method of the paper."])
    raw = study.table("final", scenarios, [method.name for method, _ in pairs])
    scale = paper_scale(raw)
    rows = []
    for name in dict.fromkeys(name for _, name in pairs):
        theirs = np.array([paper.NORMALISED[name][scenario] for scenario in scenarios])
        errors = np.array([paper.ERRORS[name][scenario] for scenario in scenarios])
        rows.append([name, Mark("paper", "soft"), *_cells(theirs, errors)])
        for method, other in pairs:
            if other == name:
                table = scale.apply(raw[method.name])
                errors = np.array([standard_error(column) for column in table.T])
                rows.append([method.name, "here", *_cells(task_means(table), errors)])
    note = (
        f"Normalised return in per cent, mean ± standard error. The paper: {paper.SEEDS} seeds, {paper.STEPS:,} "
        "steps, all of "
        f"its seven methods; here: {extent(study)}, and the scale runs from the worst to the best of the methods in "
        "this "
        "table. The paper prints no raw returns, so the two scales cannot be laid on each other: compare the order of "
        "methods, not the numbers."
    )
    columns = ["method", "source", *(paper.column_of(name) for name in scenarios), "Avg of these"]
    parts: list[Part] = [TablePart(columns, rows, note, "Normalised return: the paper's and ours", tight=True)]
    gains = _gains(analysis, scenarios)
    return Section(TITLE, parts=[*parts, *gains, _energy(study)])


def _counterpart(method: Method, study: Study) -> str | None:
    """The paper's name of a method; where no run has the paper's preset, that of the same projection."""
    if method.paper is not None or not method.projected:
        return method.paper
    name = f"HPML-{method.algo.upper()} ({method.projection.capitalize()})"
    exact = any(other.paper == name for other in study.methods)
    return name if name in paper.METHODS and not exact and "[" not in method.name else None


def _cells(means: np.ndarray, errors: np.ndarray) -> list[str]:
    texts = [with_error(mean, error, 1) for mean, error in zip(means, errors, strict=True)]
    return [*texts, with_error(*macro_average(means, errors), 1) if np.isfinite(means).all() else "–"]


def _gains(analysis: Analysis, scenarios: list[str]) -> list[Part]:
    """The projection's gain over MAPPO: what the paper claims, and the verdict here."""
    study = analysis.study
    rows = []
    for method in study.methods:
        name = _counterpart(method, study)
        verdicts = [analysis.verdicts.get((method.name, scenario)) for scenario in scenarios]
        if not method.projected or name is None or not any(verdicts):
            continue
        claimed = [paper.NORMALISED[name][scenario] - paper.NORMALISED["MAPPO"][scenario] for scenario in scenarios]
        rows.append([method.name, Mark("paper", "soft"), *(f"{gain:+.1f}".replace("-", "−") for gain in claimed)])
        rows.append([method.name, "here", *(_verdict(verdict) for verdict in verdicts)])
    if not rows:
        return []
    note = (
        "Paper: points of its normalised scale. Here: the verdict, and the difference in the scenario's own units. The "
        "sign is what can be compared."
    )
    columns = ["method", "source", *(paper.column_of(name) for name in scenarios)]
    return [TablePart(columns, rows, note, "What the projection gains over MAPPO", tight=True)]


def _verdict(verdict: Verdict | None) -> str | Mark:
    if verdict is None:
        return "–"
    tone = {"better": "good", "worse": "bad"}.get(verdict.word.removeprefix("likely "), "soft")
    word = "none shown" if verdict.word == "none" else verdict.word
    return Mark(f"{word} ({number(verdict.difference.value, 2)})", tone)


def _energy(study: Study) -> TablePart:
    rows = []
    for method in study.methods:
        values = np.concatenate([study.values(name, method.name, "residual_energy") for name in study.environments])
        values = values[np.isfinite(values)]
        name = _counterpart(method, study)
        theirs = paper.RESIDUAL.get(name or "")
        ours = number(float(values.mean())) if len(values) else "–"
        rows.append([method.name, "–" if theirs is None else f"{theirs:g}", ours])
    note = (
        "Training average over all scenarios and seeds, for every method here. It depends on the scale of rewards and "
        "gradients, so methods can be compared on the same scenarios, and papers hardly."
    )
    return TablePart(["method", "paper", "here"], rows, note, "Raw residual energy")
