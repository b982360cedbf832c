"""Statistics along a line: performance profiles over thresholds, sample efficiency over steps."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from hpml.statistics.aggregate import IQM, Statistic, standard_error
from hpml.statistics.bootstrap import RESAMPLES, bootstrap_intervals
from hpml.statistics.interval import student_interval
from hpml.statistics.scores import as_scores, counts, task_means


@dataclass(frozen=True)
class Band:
    """A line with a band around it.

    - `at` (points,): where along the line: thresholds, or environment steps.
    - `value` (points,): the line; NaN where no run has got so far.
    - `low`, `high` (points,): the band at each point by itself, not for the whole line at once.
    - `runs` (points,): the fewest runs that any task has there.
    """

    at: Float[np.ndarray, " points"]
    value: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]
    runs: Any


def performance_profile(
    scores: Any, thresholds: Any = None, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Band:
    """The share of runs with a score above each threshold, every task weighing the same, with percentile bands.

    Thresholds go from 0 to 100 unless given, for the paper's scale.
    """
    table = as_scores(scores)
    tau = np.linspace(0.0, 100.0, 101) if thresholds is None else np.asarray(thresholds, np.float64)
    key = np.random.default_rng(seed)
    tasks = [column[np.isfinite(column)] for column in table.T]
    tasks = [runs for runs in tasks if len(runs)]
    fewest = min(map(len, tasks), default=0)
    value, shares = np.full(len(tau), np.nan if not tasks else 0.0), np.zeros((resamples, len(tau)))
    for runs in tasks:
        above = (runs[:, None] > tau) / (len(runs) * len(tasks))
        value += above.sum(0)
        # How often each run is drawn is all that a share needs to know.
        shares += key.multinomial(len(runs), np.full(len(runs), 1.0 / len(runs)), resamples) @ above
    low, high = np.quantile(shares, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)
    if fewest < 2:
        low, high = np.full_like(low, np.nan), np.full_like(high, np.nan)
    return Band(tau, value, low, high, np.full(len(tau), fewest))


def learning_curve(
    scores: Any,
    steps: Any,
    statistic: Statistic = IQM,
    band: str = "student",
    level: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> Band:
    """A statistic at each of the steps, from scores (steps, runs, tasks) or, for one scenario, (steps, runs).

    - `band`: "student", "percentile", "studentised", or "error" for one standard error on either side, as in the paper.
    """
    table = np.asarray(scores, np.float64)
    table = as_scores(table[..., None] if table.ndim == 2 else table)
    at = np.asarray(steps, np.float64)
    if table.ndim != 3 or len(table) != len(at):
        raise ValueError(f"scores must be (steps, runs, tasks) with {len(at)} steps, got {table.shape}.")
    value = statistic.estimate(table)
    if band == "student":
        low, high = np.moveaxis(student_interval(table, statistic, level), -1, 0)
    elif band == "error":
        half = standard_error(table, statistic)
        low, high = value - half, value + half
    elif band in ("percentile", "studentised"):
        pair = bootstrap_intervals(table, statistic, level, resamples, seed)
        low, high = np.moveaxis(pair[band == "studentised"], -1, 0)
    else:
        raise ValueError(f'band must be "student", "percentile", "studentised" or "error", got "{band}".')
    n = counts(table)
    fewest = np.where(n > 0, n, table.shape[1] + 1).min(-1)
    return Band(at, value, low, high, np.where((n > 0).any(-1), fewest, 0))


def average_profile(scores: Any, thresholds: Any) -> Float[np.ndarray, " points"]:
    """The share of tasks whose mean score lies above each threshold."""
    means = task_means(as_scores(scores))
    means = means[np.isfinite(means)]
    return np.array([(means > threshold).mean() for threshold in np.asarray(thresholds, np.float64)])
