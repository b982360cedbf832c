"""The page of `hpml report`, put together and written with its tables for other programs."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hpml.report.page import Fact, Page, Section, write_page
from hpml.report.parts import CodePart, ListPart, Part, TablePart
from hpml.report.sweep.analysis import Analysis, analyse
from hpml.report.sweep.beside import beside_section
from hpml.report.sweep.exports import cells_csv, marl_eval, runs_csv
from hpml.report.sweep.latex import full_latex, summary_latex
from hpml.report.sweep.missing import Gap, failures, gaps
from hpml.report.sweep.paper import SUMMARY, column_of, paper_order, title_of
from hpml.report.sweep.plain import plain_results
from hpml.report.sweep.progress import circulation_section, convention_section, curves_section, speed_section
from hpml.report.sweep.sections import belief_section, final_section, overall_section
from hpml.report.sweep.study import Study
from hpml.report.sweep.tables import shown_scenarios
from hpml.report.sweep.verdicts import verdict_section
from hpml.report.sweep.words import counted, listed

AGREE = ("env", "algo", "projection", "residual")


def write_report(
    study: Study,
    out: Path,
    command: str = "",
    say: Callable[[str], None] = lambda words: None,
) -> tuple[Path, Analysis]:
    """Write the page and its files under `out`, and return the page's path and its numbers.

    `say` hears what is being done, and `command` is what the reader types to see the page again.
    """
    check_out(out)
    say("computing")
    analysis = analyse(study)
    say("writing")
    out.mkdir(parents=True, exist_ok=True)
    notes = write_files(analysis, out)
    say("drawing")
    return write_page(report_page(analysis, command, notes), out / "report.html"), analysis


def check_out(out: Path) -> None:
    """Refuse a folder whose files of these names are not a report's."""
    for name, mark in {"report.html": 'id="themes"', "cells.csv": "scenario,method,seeds,steps"}.items():
        file = out / name
        if file.is_file() and mark not in file.read_text(encoding="utf-8", errors="replace"):
            raise ValueError(f"{file} is not of a report and would be written over: choose another --out.")


def write_files(analysis: Analysis, out: Path) -> tuple[str, ...]:
    """CSV, LaTeX and marl-eval's JSON; what the last one had to leave out, in sentences."""
    plain = plain_results(analysis)
    (out / "cells.csv").write_text(cells_csv(plain), encoding="utf-8")
    (out / "runs.csv").write_text(runs_csv(plain), encoding="utf-8")
    heads = {name: SUMMARY.get(name, column_of(name)) for name in shown_scenarios(analysis.study)}
    (out / "summary.tex").write_text(summary_latex(plain, heads), encoding="utf-8")
    (out / "full.tex").write_text(full_latex(plain), encoding="utf-8")
    found, notes = marl_eval(plain)
    (out / "marl_eval.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return notes


def report_page(analysis: Analysis, command: str = "", notes: Sequence[str] = ()) -> Page:
    """The whole page."""
    study = analysis.study
    seeds = counted((len(cell.seeds) for cell in study.cells.values()), "seed")
    steps = [cell.bound for cell in study.cells.values()]
    facts = [
        Fact(str(len(study.environments)), "scenarios" if len(study.environments) != 1 else "scenario"),
        Fact(str(len(study.methods)), "methods" if len(study.methods) != 1 else "method"),
        Fact(seeds.removesuffix(" seeds").removesuffix(" seed"), "seeds in a cell"),
        Fact(_short(steps), "environment steps compared"),
    ]
    sections = [
        verdict_section(analysis),
        final_section(analysis),
        overall_section(analysis),
        curves_section(analysis),
        circulation_section(analysis),
        convention_section(analysis),
        speed_section(analysis),
        beside_section(analysis),
        belief_section(analysis),
        missing_section(study),
        read_section(study, command, notes),
    ]
    return Page("What these runs show", lead(analysis), sections, facts)


def lead(analysis: Analysis) -> str:
    """The first sentences: what is compared, the verdicts in short, and whether anything is missing."""
    study = analysis.study
    places = "one scenario" if len(study.environments) == 1 else f"{len(study.environments)} scenarios"
    words = [f"{listed([method.name for method in study.methods], 10)} on {places}."]
    judged = Counter(
        verdict.word.removeprefix("likely ")
        for verdict in analysis.verdicts.values()
        if study.method(verdict.method).projected
    )
    if judged:
        words.append(_judged(judged))
    open_, _ = gaps(study)
    if open_ or study.aside or failures(study):
        words.append("Something is missing: the page says what, near its end.")
    return " ".join(words)


def _judged(words: Counter[str]) -> str:
    total = words.total()
    if total == 1:
        shown = {"better": "a **gain**", "worse": "a **loss**", "none": "**no difference** that so many seeds can show"}
        return f"The one comparison with the same method unprojected shows {shown[next(iter(words))]}."
    return (
        f"Of {total} comparisons of a method with the same one unprojected, **{words['better']}** show a gain, "
        f"**{words['worse']}** a loss, and **{words['none']}** no difference that so many seeds can show."
    )


def missing_section(study: Study) -> Section:
    """What was asked for and is not there, what failed, what could not be read."""
    open_, troubles = gaps(study)
    parts: list[Part] = []
    for suite in dict.fromkeys(gap.suite for gap in open_):
        parts.append(_open_table(study, suite, [gap for gap in open_ if gap.suite == suite]))
    if failed := failures(study):
        note = "The last attempt of each. `hpml sweep` tries them again."
        parts.append(TablePart(["run", "attempts", "outcome", "reason"], failed, note, "Failed"))
    if study.aside:
        rows = [[item.name, item.reason] for item in study.aside]
        parts.append(TablePart(["what", "why"], rows, "Nothing was changed or deleted.", "Set aside"))
    notes = [*troubles, *study.notes]
    if notes:
        parts.append(ListPart(notes))
    return Section("What is missing", parts=parts or ["Nothing: every run has all that it was asked for."])


def _open_table(study: Study, suite: str, open_: Sequence[Gap]) -> TablePart:
    """Scenarios by methods: how far each cell is that has less than was asked for."""
    found = {(gap.environment, gap.method): gap for gap in open_}
    places = sorted({gap.environment for gap in open_}, key=paper_order)
    order = {method.name: place for place, method in enumerate(study.methods)}
    names = sorted({gap.method for gap in open_}, key=lambda name: (order.get(name, len(order)), name))
    rows = []
    for place in places:
        own = [found.get((place, name)) for name in names]
        asked = {f"{gap.wanted_seeds}\u00a0×\u00a0{gap.wanted_steps:,}" for gap in own if gap is not None}
        rows.append([title_of(place), ", ".join(sorted(asked)), *("" if gap is None else gap.words for gap in own)])
    note = (
        "Seeds that have all their steps, of those asked for, and how far the slowest is; empty where nothing is "
        "missing. "
        "Asked for: seeds × environment steps."
    )
    title = f"Not finished, of the suite {suite}" if suite else "Not finished"
    return TablePart(["scenario", "asked for", *names], rows, note, title, tight=True)


def read_section(study: Study, command: str, notes: Sequence[str] = ()) -> Section:
    """Folders, versions, settings in which methods differ, files beside the page."""
    runs = study.found.runs
    words = [f"{counted([len(runs)], 'run')} under {listed(study.folders)}."]
    parts: list[Part] = [CodePart(command)] if command else []
    kinds = Counter(tuple(sorted(run.versions.items())) for run in runs)
    columns = sorted({name for kind in kinds for name, _ in kind})
    if columns:
        rows = [[count, *(dict(kind).get(name, "–") for name in columns)] for kind, count in kinds.most_common()]
        note = "What runs were started with."
        if len(kinds) > 1:
            note += " They are not all alike: differences between methods may come from that."
        if restarted := sum(run.restarted for run in runs):
            note += f" {counted([restarted], 'run')} went on with other versions than at the start."
        parts.append(TablePart(["runs", *columns], rows, note, "Versions"))
    parts += _settings(study)
    files = (
        "`cells.csv`: every cell with its means, errors and intervals. `runs.csv`: every seed. `summary.tex`, "
        "`full.tex`: "
        "the paper's tables in LaTeX. `marl_eval.json`: the evaluations, as marl-eval reads them."
    )
    parts += ["Beside this page:", files, *([ListPart(list(notes))] if notes else [])]
    return Section("What was read", words, parts)


def _settings(study: Study) -> list[Part]:
    """Settings in which the methods of a scenario differ, those of the projection aside: a fair comparison has none."""
    rows = []
    for environment in study.environments:
        runs = [run for run in study.found.runs if run.environment == environment]
        names = dict.fromkeys(name for run in runs for name in run.settings)
        for name in names:
            if name in AGREE or name.startswith(("projection", "strength")):
                continue
            values: dict[str, list[str]] = {}
            for run in runs:
                values.setdefault(str(run.settings.get(name)), []).append(run.method)
            if len(values) > 1:
                told = "; ".join(f"{value}: {listed(list(dict.fromkeys(who)), 4)}" for value, who in values.items())
                rows.append([column_of(environment), name, told])
    if not rows:
        return ["All methods of a scenario learn with the same settings, but for the algorithm and the projection."]
    note = "A comparison is fair where these were tuned alike for all."
    return [TablePart(["scenario", "setting", "values"], rows, note, "Settings in which methods differ")]


def _short(values: Sequence[float]) -> str:
    """10M, or 100k–1M."""

    def one(value: float) -> str:
        for size, letter in ((1e6, "M"), (1e3, "k")):
            if value >= size:
                return f"{value / size:.3g}{letter}"
        return f"{value:.0f}"

    low, high = float(np.min(values)), float(np.max(values))
    return one(low) if one(low) == one(high) else f"{one(low)}–{one(high)}"
