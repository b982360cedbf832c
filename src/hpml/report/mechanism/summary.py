"""The figures of the suite in a few lines, for the terminal and for result.json."""

from typing import Any

import numpy as np
from rich.table import Table

from hpml.mechanism.config import OURS, PAPER
from hpml.mechanism.suite import Mechanism

COLUMNS = ("", "raw", "paper", "kernel", "treated", "exact")
"""Raw ascent; the residual dropped, with the paper's projector and with ours; the residual adjusted; the ideal."""


def summary_rows(found: Mechanism) -> list[tuple[str, ...]]:
    """What was measured, a line each."""
    cycle = {trace.name: trace for trace in found.cycle.traces}
    names = ("raw", f"dropped, {PAPER}", f"dropped, {OURS}", "treated, adjust")
    ends = dict(zip([trace.name for trace in found.optimum.traces], found.optimum.distances, strict=True))
    plane, space = found.sweeps
    k = int(np.argmax(plane.rhos == 2.0))
    cosines = {name: values.mean(1)[-1] for name, values in found.accuracy.cosines.items()}
    rows = [
        ("RPS: orbit diameter", *(f"{cycle[name].diameter:.3f}" for name in names), "0"),
        ("RPS: exploitability", *(f"{cycle[name].exploitable:.4f}" for name in names), "0"),
        ("RPS with a pull: distance", *(f"{ends[name]:.3f}" for name in names[:3]), "", "0"),
    ]
    for sweep in (plane, space):
        shares = (f"{sweep.shares[name][k]:.3f}" for name in (PAPER, OURS))
        title = f"{sweep.name} field, rho {sweep.rhos[k]:g}: NonPot"
        rows.append((title, "", *shares, "", f"{sweep.exact[k]:.3f}"))
    raw, paper, ours = (f"{value:.3f}" for value in (found.accuracy.raw, cosines[PAPER], cosines[OURS]))
    title = f"3-D field, rho {found.accuracy.rho:g}: cosine to -z"
    rows.append((title, raw, paper, ours, "", "1"))
    return rows


def summary_table(found: Mechanism) -> Table:
    """The same as a table for the terminal."""
    table = Table(title="What the projection does in games with a known answer")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column else "left")
    for row in summary_rows(found):
        table.add_row(*row)
    return table


def summary_numbers(found: Mechanism) -> list[dict[str, Any]]:
    """The same with names, for JSON."""
    return [dict(zip(("measure", *COLUMNS[1:]), row, strict=True)) for row in summary_rows(found)]
