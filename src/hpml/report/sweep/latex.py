"""The paper's two tables from one's own runs, as LaTeX (`tab:meltingpot_summary`, `tab:meltingpot_full`)."""

from collections.abc import Mapping, Sequence

import numpy as np

from hpml.report.sweep.results import Results
from hpml.statistics.aggregate import macro_average
from hpml.statistics.interval import estimate
from hpml.statistics.scores import counts

MISSING = "--"
SIGNS = {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
ESCAPES = str.maketrans({**{sign: f"\\{sign}" for sign in "&%$#_{}"}, **SIGNS})


def summary_latex(results: Results, shown: Mapping[str, str]) -> str:
    """Final normalised return on the scenarios `shown` {scenario: head}, their average, and raw residual energy."""
    names = [name for name in shown if name in results.scenarios]
    part = results.only(scenarios=names)
    lines = []
    for method in part.methods:
        means, errors = _cells(part, method)
        average, _ = _average(means, errors, part.scaled)
        lines.append(_line(method, [*map(_number, means), _number(average), _small(_energy(part, method))]))
    caption = (
        r"\textbf{Melting Pot summary.} Final normalized return (\%) on representative scenarios, average over the "
        r"listed scenarios, and raw cyclic residual energy averaged over training, seeds and these scenarios (lower is "
        f"better). {_conditions(part)}"
    )
    heads = [*(shown[name] for name in names), "Shown Avg", r"Raw residual energy$\downarrow$"]
    return _table(caption, "tab:meltingpot_summary", heads, _ruled(part.methods, lines), wide=False)


def full_latex(results: Results) -> str:
    """Mean normalised return and standard error on every scenario, and the macro average.

    A method that has not run on every scenario has no macro average; then a last column has the average over the
    scenarios that every method has.
    """
    partial = bool(results.shared.any()) and not bool((results.shared == results.scaled).all())
    over = [results.scaled, *([results.shared] * partial)]
    lines = []
    for method in results.methods:
        means, errors = _cells(results, method)
        pairs = [*zip(means, errors, strict=True), *(_average(means, errors, kept) for kept in over)]
        lines.append(_line(method, [_pair(mean, error) for mean, error in pairs]))
    short = [f"{_tex(results.head(name))} = {_tex(name)}" for name in results.scenarios if results.head(name) != name]
    caption = (
        rf"Full Melting Pot results (mean normalized return \% $\pm$ s.e.) on {len(results.scenarios)} scenarios. "
        f"{_conditions(results)}"
    )
    caption += f" Shared Avg: over the {int(results.shared.sum())} scenarios that every method has." if partial else ""
    caption += f"\nAbbreviations: {', '.join(short)}." if short else ""
    heads = [*(_tex(results.head(name)) for name in results.scenarios), "Macro Avg", *(["Shared Avg"] * partial)]
    return _table(caption, "tab:meltingpot_full", heads, _ruled(results.methods, lines), wide=True)


def _cells(results: Results, method: str) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the standard error of each scenario on the normalised scale."""
    table = results.normalised[method]
    found = [estimate(table[:, column], resamples=1) for column in range(table.shape[1])]
    return np.array([each.value for each in found]), np.array([each.error for each in found])


def _average(means: np.ndarray, errors: np.ndarray, kept: np.ndarray) -> tuple[float, float]:
    """The mean over the scenarios kept, NaN where one is missing."""
    return macro_average(means[kept], errors[kept]) if np.isfinite(means[kept]).all() else (np.nan, np.nan)


def _energy(results: Results, method: str) -> float:
    """The mean over scenarios, NaN where one is missing."""
    table = results.residual.get(method)
    if table is None or not (counts(table) > 0).all():
        return float("nan")
    return estimate(table, resamples=1).value


def _conditions(results: Results) -> str:
    """Seeds, steps, the scale, and what has none, in a sentence each."""
    n = np.concatenate([counts(table) for table in results.final.values()])
    n = n[n > 0]
    seeds = MISSING if not len(n) else str(n.min()) if n.min() == n.max() else f"{n.min()} to {n.max()}"
    steps = sorted({results.steps[name] for name in results.scenarios if name in results.steps})
    span = "" if not steps else f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    said = [f"Seeds in a cell: {seeds}" + (f"; environment steps of a run: {span}." if span else ".")]
    said.append(_tex(results.anchors.words))
    if not results.scaled.all():
        gone = [results.head(name) for name, kept in zip(results.scenarios, results.scaled, strict=True) if not kept]
        said.append(f"No scale, as no two means differ there: {_tex(', '.join(gone))}.")
    return " ".join(said)


def _ruled(methods: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The lines with a rule between the baselines and the projected methods, as in the paper."""
    found: list[str] = []
    for number, (method, line) in enumerate(zip(methods, lines, strict=True)):
        if number and method.startswith("HPML") and not methods[number - 1].startswith("HPML"):
            found.append(r"\midrule")
        found.append(line)
    return found


def _table(caption: str, label: str, heads: Sequence[str], lines: Sequence[str], wide: bool) -> str:
    kind, size = ("table*", r"\scriptsize") if wide else ("table", r"\small")
    begin = [r"\resizebox{\textwidth}{!}{%"] if wide else []
    return "\n".join(
        [
            rf"\begin{{{kind}}}[t]",
            r"\centering",
            size,
            rf"\caption{{{caption}}}",
            rf"\label{{{label}}}",
            *begin,
            rf"\begin{{tabular}}{{l{'c' * len(heads)}}}",
            r"\toprule",
            rf"Method & {' & '.join(heads)} \\",
            r"\midrule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}" + ("}" if wide else ""),
            rf"\end{{{kind}}}",
            "",
        ]
    )


def _line(method: str, cells: Sequence[str]) -> str:
    return rf"{_tex(method)} & {' & '.join(cells)} \\"


def _number(value: float, digits: int = 1) -> str:
    # Adding zero takes the sign from a negative number that rounds to nothing.
    return f"{round(value, digits) + 0.0:.{digits}f}" if np.isfinite(value) else MISSING


def _small(value: float) -> str:
    """Three digits behind the point as in the paper, or a power of ten where these would all be 0."""
    if not np.isfinite(value) or value == 0 or abs(value) >= 0.001:
        return _number(value, 3)
    digits, power = f"{value:.1e}".split("e")
    return rf"${digits}\cdot 10^{{{int(power)}}}$"


def _pair(mean: float, error: float) -> str:
    return _number(mean) if np.isnan(mean) or np.isnan(error) else rf"{_number(mean)} $\pm$ {_number(error)}"


def _tex(text: str) -> str:
    return text.translate(ESCAPES)
