"""What a run came to, in a few lines: the last evaluation, means over the seeds with their standard errors."""

from pathlib import Path

import numpy as np
from rich.table import Table

from hpml.experiment.metrics import columns, read_metrics
from hpml.experiment.progress import number

SHOWN = {
    "evaluation/return": "return of an agent",
    "evaluation/collective_return": "collective return",
    "evaluation/equality": "equality (1 - Gini)",
    "evaluation/switch_rate": "convention switches, within an episode",
    "evaluation/switched": "convention switches, between evaluations",
}


def result_table(folder: Path) -> Table:
    """The first and the last evaluation of a run, in the environment's units; switches between evaluations over all."""
    found = columns(read_metrics(folder))
    evaluated = ~np.isnan(found["evaluation/return"])
    updates = found["update"][evaluated]
    table = Table(
        title=f"after {updates[-1]:,} updates, {found['steps'].max():,} steps of each seed", title_justify="left"
    )
    table.add_column("")
    for name in ("before", "after", "standard error"):
        table.add_column(name, justify="right")
    for name, words in SHOWN.items():
        if name not in found:
            continue
        values = found[name][evaluated]
        first, last = values[updates == updates[0]], values[updates == updates[-1]]
        if name == "evaluation/switched":
            first, last = np.array([np.nan]), values
        if np.isfinite(last).any():
            table.add_row(words, number(_mean(first)), number(_mean(last)), number(_error(last)))
    return table


def _mean(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _error(values: np.ndarray) -> float:
    known = values[np.isfinite(values)]
    return float(known.std(ddof=1) / np.sqrt(len(known))) if len(known) > 1 else float("nan")
