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
        average = macro_average(np.where(part.averaged, means, np.nan), errors)[0]
        energy = _energy(part, method)
        shares = [*(_number(mean) for mean in means), _number(average), _number(energy, 3)]
        lines.append(_line(method, shares))
    caption = (
        r"\textbf{Melting Pot summary.} Final normalized return (\%) on representative scenarios, average over the "
        r"listed scenarios, and raw cyclic residual energy averaged over training, seeds and these scenarios (lower is "
        f"better). {_conditions(part)}"
    )
    heads = [*(shown[name] for name in names), "Shown Avg", r"Raw residual energy$\downarrow$"]
    return _table(caption, "tab:meltingpot_summary", heads, _ruled(part.methods, lines), wide=False)


def full_latex(results: Results) -> str:
    """Mean normalised return and standard error on every scenario, and the macro average."""
    lines = []
    for method in results.methods:
        means, errors = _cells(results, method)
        both = [*zip(means, errors, strict=True), macro_average(np.where(results.averaged, means, np.nan), errors)]
        lines.append(_line(method, [_pair(mean, error) for mean, error in both]))
    short = [f"{_tex(results.head(name))} = {_tex(name)}" for name in results.scenarios if results.head(name) != name]
    caption = (
        rf"Full Melting Pot results (mean normalized return \% $\pm$ s.e.) on {len(results.scenarios)} scenarios. "
        f"{_conditions(results)}"
    )
    caption += f"\nAbbreviations: {', '.join(short)}." if short else ""
    heads = [*(_tex(results.head(name)) for name in results.scenarios), "Macro Avg"]
    return _table(caption, "tab:meltingpot_full", heads, _ruled(results.methods, lines), wide=True)


def _cells(results: Results, method: str) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the standard error of each scenario on the normalised scale."""
    table = results.normalised[method]
    found = [estimate(table[:, column], resamples=1) for column in range(table.shape[1])]
    return np.array([each.value for each in found]), np.array([each.error for each in found])


def _energy(results: Results, method: str) -> float:
    table = results.residual.get(method)
    return float("nan") if table is None else estimate(table, resamples=1).value


def _conditions(results: Results) -> str:
    """Seeds, steps, the scale, and which scenarios the average is over, in a sentence each."""
    n = np.concatenate([counts(table) for table in results.final.values()])
    n = n[n > 0]
    seeds = MISSING if not len(n) else str(n.min()) if n.min() == n.max() else f"{n.min()} to {n.max()}"
    steps = sorted({results.steps[name] for name in results.scenarios if name in results.steps})
    span = "" if not steps else f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    said = [f"Seeds in a cell: {seeds}" + (f"; environment steps of a run: {span}." if span else ".")]
    said.append(_tex(results.anchors.words))
    used = results.averaged
    if not used.all():
        names = [_tex(results.head(name)) for name, kept in zip(results.scenarios, used, strict=True) if kept]
        said.append(
            f"The average is over the {len(names)} scenarios where every method has a run and methods differ"
            + (f" ({', '.join(names)})." if names else ".")
        )
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


def _pair(mean: float, error: float) -> str:
    return _number(mean) if np.isnan(mean) or np.isnan(error) else rf"{_number(mean)} $\pm$ {_number(error)}"


def _tex(text: str) -> str:
    return text.translate(ESCAPES)
