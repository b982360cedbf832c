"""What too few runs cannot show, in sentences: each is computed from the numbers of runs or from the intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpml.statistics.compare import Difference, Improvement
from hpml.statistics.exchange import smallest_p
from hpml.statistics.measured import next_measured
from hpml.statistics.scores import as_scores, counts

USUAL = 0.05  # the usual bar for a test
SHORT = 0.87  # a 95 % interval that covers less than this misleads


def too_few(seeds: int, against: int | None = None) -> str:
    """What so many seeds of one cell cannot show, or nothing where they are enough for the usual test."""
    other = seeds if against is None else against
    if min(seeds, other) < 1:
        return "There is no run: nothing can be said."
    if min(seeds, other) == 1:
        return "One seed has no scatter: no standard error, no interval, and no difference can be claimed."
    p = smallest_p(seeds, other)
    said = []
    if p > USUAL:
        said.append(
            f"With {_seeds(seeds, other)} the smallest p of a two-sided Mann-Whitney test in one scenario is "
            f"{_short(p)}: no single scenario can show a difference at the 5 % level, however far apart the "
            "methods are."
        )
    real = next_measured("normal", "mean", min(seeds, other))
    if real is not None and real.percentile < SHORT:
        start = "Even with" if real.seeds > min(seeds, other) else "With"
        said.append(
            f"{start} {real.seeds} seeds a 95 % percentile bootstrap "
            f"interval of a mean covers {100 * real.percentile:.0f} % of the time for normal scores: read Student's "
            "interval in place of it."
        )
    return " ".join(said)


def seeds_caution(scores: Mapping[str, Any], tasks: Sequence[str]) -> tuple[str, ...]:
    """Sentences about the numbers of runs of {method: (runs, tasks)}: the fewest, missing cells, unequal numbers."""
    n = np.array([counts(as_scores(table)) for table in scores.values()])
    methods = list(scores)
    said = []
    missing = [f"{methods[i]} on {tasks[j]}" for i, j in zip(*np.nonzero(n == 0), strict=True)]
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        said.append(f"No finished run of {shown}: averages over scenarios are taken where every method has one.")
    if (n > 0).any():
        fewest = int(n[n > 0].min())
        said.extend([sentence] if (sentence := too_few(fewest)) else [])
        if int(n.max()) != fewest:
            said.append(f"Cells have between {fewest} and {int(n.max())} seeds; the sentence is about the fewest.")
    return tuple(said)


def claim(name: str, other: str, found: Difference, chance: Improvement | None = None) -> str:
    """What may be said about two methods from Welch's interval of their difference and the exact test."""
    low, high = found.interval
    if not np.isfinite([low, high]).all():
        return f"Nothing can be said about {name} and {other}: an interval needs two seeds of every scenario."
    if found.settled:
        ahead, behind = (name, other) if found.value > 0 else (other, name)
        said = f"{ahead} is ahead of {behind}: the 95 % interval of the difference leaves out zero."
    else:
        said = (
            f"The runs do not settle whether {name} or {other} is better: the 95 % interval of the difference holds "
            "zero."
        )
    if chance is not None and np.isfinite(chance.p):
        if chance.least_p > USUAL:
            said += f" No outcome of so few runs has p below {_short(chance.least_p)}."
        else:
            said += f" Exchanging runs between the two within scenarios gives p = {_short(chance.p)}."
    return said


def _seeds(first: int, second: int) -> str:
    return f"{first} seeds" if first == second else f"{first} and {second} seeds"


def _short(p: float) -> str:
    return f"{p:.2g}" if p >= 0.001 else "less than 0.001"
