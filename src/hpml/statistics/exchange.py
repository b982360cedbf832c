"""The exact test of two methods: if they were alike, their runs could be exchanged within each task.

For one task this is the Mann-Whitney test with its exact distribution, ties as they are. Over tasks the statistic is
the mean of U / (m n), and the tasks' distributions convolve.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import special, stats

from hpml.statistics.scores import counts

FINEST = 100_000  # steps of the common grid; finer ones use the normal approximation


def improvement_by_task(x: Any, y: Any) -> Float[np.ndarray, "*batch tasks"]:
    """Mann and Whitney's U over the number of pairs in each task, ties counting half; NaN where a method has no run."""
    a, b = np.asarray(x)[..., :, None, :], np.asarray(y)[..., None, :, :]
    there = np.isfinite(a) & np.isfinite(b)
    wins = np.where(there, (a > b) + 0.5 * (a == b), 0.0).sum((-3, -2))
    pairs = there.sum((-3, -2))
    return np.where(pairs > 0, wins / np.maximum(pairs, 1), np.nan)


def smallest_p(runs: int, against: int, tasks: int = 1) -> float:
    """The smallest two-sided p that Mann and Whitney's test can give: twice one order among all, in every task."""
    orders = float(special.comb(runs + against, runs))
    return min(1.0, 2.0 * orders ** -float(tasks))


def exchange_p(x: Any, y: Any) -> tuple[float, float]:
    """The two-sided p of the mean of U / (m n) over tasks when methods are exchanged within tasks, and the least p.

    The null distribution of each task counts the ways to choose which of its runs are X, by their rank sum, ties as
    they are; tasks are independent, so distributions convolve on a common grid.
    """
    m, n = counts(x), counts(y)
    # Twice U is a whole number; on the grid of 1 / lcm the tasks' shares of the mean are whole numbers too.
    grid = int(np.lcm.reduce(2 * m * n))
    if grid > FINEST:
        return _normal_p(x, y), min(1.0, 2.0 * float(np.prod(1.0 / special.comb(m + n, m))))
    total = np.ones(1)
    for task in range(x.shape[1]):
        a, b = (z[np.isfinite(z[:, task]), task] for z in (x, y))
        step = grid // (2 * len(a) * len(b))
        more = np.zeros(len(total) + grid)
        for twice_u, chance in enumerate(_null(a, b)):
            more[twice_u * step : twice_u * step + len(total)] += chance * total
        total = more
    at = np.abs(np.arange(len(total)) - (len(total) - 1) / 2.0)
    seen = abs(float(improvement_by_task(x, y).sum()) * grid - (len(total) - 1) / 2.0)
    farthest = at[total > 0].max()
    return min(1.0, float(total[at >= seen - 0.25].sum())), min(1.0, float(total[at >= farthest - 0.25].sum()))


def _null(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The distribution of 2 U over all ways to call len(a) of the pooled runs X."""
    m, n = len(a), len(b)
    doubled = np.rint(2.0 * stats.rankdata(np.concatenate([a, b]))).astype(int)
    ways = np.zeros((m + 1, int(doubled.sum()) + 1))
    ways[0, 0] = 1.0
    for rank in doubled:
        for chosen in range(m, 0, -1):
            ways[chosen, rank:] += ways[chosen - 1, : ways.shape[1] - rank]
    least = m * (m + 1)
    found = ways[m, least : least + 2 * m * n + 1]
    return found / found.sum()


def _normal_p(x: np.ndarray, y: np.ndarray) -> float:
    """The same p by the normal approximation, for many unequal numbers of runs."""
    variance = 0.0
    for task in range(x.shape[1]):
        a, b = (z[np.isfinite(z[:, task]), task] for z in (x, y))
        null = _null(a, b)
        share = np.arange(len(null)) / (2.0 * len(a) * len(b))
        variance += float((null * (share - 0.5) ** 2).sum())
    away = abs(float((improvement_by_task(x, y) - 0.5).sum()))
    return float(2.0 * stats.norm.sf(away / np.sqrt(variance))) if variance > 0 else 1.0
