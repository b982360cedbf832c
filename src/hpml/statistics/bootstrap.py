"""The stratified bootstrap: runs are drawn again within each task, never between tasks.

Two intervals come from the resamples. The percentile interval is rliable's: the quantiles of the statistic itself. With
n runs the resamples scatter less than new runs would, by sqrt((n - 1) / n), and their tails are those of a handful of
numbers, so it is too short for few runs. The studentised interval (bootstrap-t) uses the quantiles of
(resample - estimate) / (standard error of the resample), turned round: it pays for the unknown scatter.
"""

from typing import Any

import numpy as np

from hpml.statistics.aggregate import Statistic, task_shares
from hpml.statistics.scores import as_scores, compact, counts

RESAMPLES = 2000
AT_ONCE = 4_000_000  # numbers held at a time


def bootstrap_intervals(
    scores: Any, statistic: Statistic, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> tuple[Any, Any]:
    """The percentile and the studentised interval, each as an array (..., 2).

    The first needs two runs of every task and the second three, NaN otherwise: of two runs every resample is one run
    twice or the two runs themselves, which says nothing about scatter. A resample whose runs are all equal has no
    standard error and is left out of the studentised interval; where every resample is like that (all runs equal) the
    interval is the estimate.
    """
    table = as_scores(scores)
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must lie between 0 and 1, got {level}.")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}.")
    batch, shape = table.shape[:-2], table.shape[-2:]
    key = np.random.default_rng(seed)
    tables = compact(table).reshape(-1, *shape)
    found = np.empty((len(tables), 2, 2))
    step = max(1, AT_ONCE // (resamples * shape[0] * shape[1]))
    for start in range(0, len(tables), step):
        some = tables[start : start + step]
        drawn = _draw(some[:, None], key.random((len(some), resamples, *shape)))
        found[start : start + step] = _intervals(some, drawn, statistic, level)
    n = counts(tables)
    fewest = np.where(n > 0, n, shape[0] + 1).min(-1) * (n > 0).any(-1)
    found[fewest < 2] = np.nan
    found[fewest < 3, 1] = np.nan
    found = found.reshape(*batch, 2, 2)
    return found[..., 0, :], found[..., 1, :]


def _draw(tables: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """Rows of compacted tables at uniform numbers in [0, 1), the missing ones last and still missing."""
    n = counts(tables)[..., None, :]
    rows = (uniform * np.maximum(n, 1)).astype(np.intp)
    drawn = np.take_along_axis(np.broadcast_to(tables, uniform.shape), rows, -2)
    if (n == tables.shape[-2]).all():
        return drawn
    return np.where(np.arange(tables.shape[-2])[:, None] < n, drawn, np.nan)


def _intervals(tables: np.ndarray, drawn: np.ndarray, statistic: Statistic, level: float) -> np.ndarray:
    """Both intervals (m, 2, 2) of m tables from their resamples (m, resamples, runs, tasks)."""
    tails = np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0])
    centre, error = statistic.estimate(tables), np.sqrt(task_shares(tables, statistic).sum(-1))
    values, errors = statistic.estimate(drawn), np.sqrt(task_shares(drawn, statistic).sum(-1))
    percentile = np.quantile(values, tails, axis=-1)
    # Rounding leaves the error of equal runs a hair above zero.
    varied = errors > 1e-9 * (error[:, None] + 1e-9 * np.abs(centre[:, None]))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(varied, (values - centre[:, None]) / errors, np.nan)
    low, high = _nan_quantile(ratio, tails)
    # The upper quantile of the ratio is how far the estimate may lie above the truth, so it gives the lower end.
    studentised = np.where(varied.any(-1), [centre - high * error, centre - low * error], centre)
    return np.stack([percentile.T, studentised.T], 1)


def _nan_quantile(values: np.ndarray, tails: np.ndarray) -> np.ndarray:
    """Quantiles along rows, NaN left out; `np.nanquantile` loops over rows and is a hundred times slower."""
    rows = np.sort(values, -1)  # NaN last
    n = np.isfinite(rows).sum(-1)
    at = tails[:, None] * np.maximum(n - 1, 0)
    below = np.floor(at).astype(np.intp)
    above = np.minimum(below + 1, np.maximum(n - 1, 0))
    index = np.arange(len(rows))
    low, high = rows[index, below], rows[index, above]
    return low + (at - below) * (high - low)
