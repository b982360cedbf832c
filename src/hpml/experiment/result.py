"""What a run came to, in a few lines: the last evaluation, means over the seeds with their standard errors."""

from pathlib import Path

import numpy as np
from rich.table import Table

from hpml.experiment.metrics import columns, read_metrics
from hpml.experiment.progress import number

SHOWN = {
    "evaluation/return": "return of an agent",
    "evaluation/collective_return": "collective return",
    "evaluation/exploitability": "exploitability",
    "evaluation/equality": "equality (1 - Gini)",
    "evaluation/switch_rate": "convention switches, within an episode",
    "evaluation/switched": "convention switches, between evaluations",
}
PLAYED = {"return": "return of an agent, while learning", "collective_return": "collective return, while learning"}


def result_table(folder: Path) -> Table:
    """The first and the last evaluation of a run, in the environment's units; switches between evaluations over all.

    Without evaluations: the first and the last episodes that ended while the agents learnt.
    """
    found = columns(read_metrics(folder))
    evaluated = "evaluation/return" in found
    steps = found["steps"].max()
    title = f"after {found['update'].max():,} updates, {steps:,} steps of each seed"
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for name in ("before", "after", "standard error"):
        table.add_column(name, justify="right")
    for name, words in (SHOWN if evaluated else PLAYED).items():
        known = np.isfinite(found[name]) if name in found else np.zeros(0, bool)
        if not known.any():
            continue
        values, updates = found[name][known], found["update"][known]
        first, last = values[updates == updates[0]], values[updates == updates[-1]]
        if name == "evaluation/switched":
            first, last = np.empty(0), values
        table.add_row(words, number(_mean(first)), number(_mean(last)), number(_error(last)))
    if not table.row_count:
        table.add_row("no episode ended yet", "-", "-", "-")
    return table


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
