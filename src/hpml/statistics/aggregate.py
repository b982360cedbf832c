"""One number from a table of scores, and each run's pull on it.

A statistic comes with its linearisation: pulls h, one a run, such that the statistic moves as the sum over tasks of the
mean pull of the task's runs. Runs of a task are independent and alike, so the squared standard error is the sum over
tasks of var(h) / n (the delta method). For the mean over tasks that is what the paper prints: the standard errors of
the scenarios added in squares, divided by their number.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from hpml.statistics.scores import as_scores, counts, task_means, task_variances

TRIM = 0.25  # of the runs at each end, as rliable trims
WHOLE = 1e-9  # a share of a run below this is rounding


@dataclass(frozen=True)
class Statistic:
    """A number from a table of scores (..., runs, tasks), and the pull of each run on it.

    - `name`: what a report calls it.
    - `estimate`: the number, one for each table.
    - `pulls`: the table of h, NaN where the run is missing.
    - `runs`: how many runs of each task it looks at, (..., tasks): Student's degrees of freedom are one less.
    """

    name: str
    estimate: Callable[[Any], Any]
    pulls: Callable[[Any], Any]
    runs: Callable[[Any], Any] = counts

    def __call__(self, scores: Any) -> Any:
        """The number from a table of runs by tasks."""
        return self.estimate(as_scores(scores))[()]


def optimality_gap(target: float = 100.0) -> Statistic:
    """How far the runs stay below a target on average; what lies above the target counts as reaching it."""

    def estimate(scores: np.ndarray) -> np.ndarray:
        return np.asarray(target - _mean_of_tasks(np.minimum(scores, target)))

    def pulls(scores: np.ndarray) -> np.ndarray:
        return -np.minimum(scores, target) / _tasks(scores)

    return Statistic(f"optimality gap below {target:g}", estimate, pulls)


def standard_error(scores: Any, statistic: Statistic | None = None) -> Any:
    """The standard error of a statistic (the mean over tasks unless given) over runs; NaN where a task has one run."""
    return np.sqrt(task_shares(as_scores(scores), MEAN if statistic is None else statistic).sum(-1))[()]


def task_shares(scores: Float[np.ndarray, "*batch runs tasks"], statistic: Statistic) -> Any:
    """Each task's share of the squared standard error, var(h) / n: 0 where it has no run, NaN where it has one."""
    n = counts(scores)
    return np.where(n > 0, task_variances(statistic.pulls(scores)) / np.maximum(n, 1), 0.0)


def macro_average(means: Any, errors: Any) -> tuple[float, float]:
    """The paper's last column from its other columns: the plain mean, and sqrt(sum of squared errors) / number.

    Scenarios without a mean are left out; one without an error leaves the average without an error.
    """
    m, e = np.asarray(means, np.float64), np.asarray(errors, np.float64)
    kept = np.isfinite(m)
    if not kept.any():
        return float("nan"), float("nan")
    return float(m[kept].mean()), float(np.sqrt((e[kept] ** 2).sum()) / kept.sum())


def _tasks(scores: np.ndarray) -> np.ndarray:
    """The number of tasks with runs, ready to divide a table."""
    return np.maximum((counts(scores) > 0).sum(-1), 1)[..., None, None]


def _mean_of_tasks(scores: np.ndarray) -> np.ndarray:
    means = task_means(scores)
    there = np.isfinite(means)
    total = np.where(there, means, 0.0).sum(-1)
    return np.where(there.any(-1), total / np.maximum(there.sum(-1), 1), np.nan)


def _middle(scores: np.ndarray) -> np.ndarray:
    """The weight of each task in the median of the task means: 1 for the middle one, or 1/2 for each of two."""
    means = task_means(scores)
    count = np.isfinite(means).sum(-1)[..., None]
    rank = np.argsort(np.argsort(np.where(np.isfinite(means), means, np.inf), -1), -1)
    return ((rank == (count - 1) // 2) * 0.5 + (rank == count // 2) * 0.5) * (count > 0)


def _median(scores: np.ndarray) -> np.ndarray:
    means = task_means(scores)
    weight = _middle(scores)
    there = np.isfinite(means)
    return np.where(there.any(-1), (weight * np.where(there, means, 0.0)).sum(-1), np.nan)


@dataclass(frozen=True)
class _Trimmed:
    """A table sorted into one row: values, the weight of each that is kept, and (..., 1) what is kept altogether."""

    values: np.ndarray
    kept: np.ndarray
    total: np.ndarray

    @property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The lowest and the highest value that is kept, ready to be set beside a table."""
        low = np.where(self.kept > 0, self.values, np.inf).min(-1)
        high = np.where(self.kept > 0, self.values, -np.inf).max(-1)
        return low[..., None, None], high[..., None, None]


def _trim(scores: np.ndarray) -> _Trimmed:
    """Sort runs x tasks and cut floor(N / 4) / N of the weight at each end, N runs in all.

    Every task weighs the same: its runs share 1 / tasks. With equal numbers of runs this cuts floor(N / 4) whole runs
    at each end, which is rliable's interquartile mean; otherwise a run at the cut counts in part.
    """
    batch, flat = scores.shape[:-2], scores.shape[-2] * scores.shape[-1]
    there = np.isfinite(scores)
    N = np.maximum(there.sum((-2, -1)), 1)[..., None]
    cut = np.floor(TRIM * N) / N
    if there.all():
        values = np.sort(scores.reshape(*batch, flat), -1)
        kept = np.zeros(flat)
        off = int(TRIM * flat)
        kept[off : flat - off] = 1.0 / flat
        return _Trimmed(values, np.broadcast_to(kept, values.shape), 1.0 - 2.0 * cut)
    weights = np.where(there, 1.0 / (np.maximum(counts(scores), 1)[..., None, :] * _tasks(scores)), 0.0)
    values = np.where(there, scores, np.inf).reshape(*batch, flat)
    order = np.argsort(values, -1)
    values, weights = (
        np.take_along_axis(values, order, -1),
        np.take_along_axis(weights.reshape(*batch, flat), order, -1),
    )
    upto = np.cumsum(weights, -1)
    kept = np.clip(np.minimum(upto, 1.0 - cut) - np.maximum(upto - weights, cut), 0.0, None)
    kept = np.where(kept > WHOLE * weights, kept, 0.0)
    return _Trimmed(np.where(np.isfinite(values), values, 0.0), kept, kept.sum(-1, keepdims=True))


def _iqm(scores: np.ndarray) -> np.ndarray:
    row = _trim(scores)
    some = row.kept.any(-1)
    return np.where(some, (row.values * row.kept).sum(-1) / np.where(some, row.total[..., 0], 1.0), np.nan)


def _iqm_pulls(scores: np.ndarray) -> np.ndarray:
    """Scores drawn in to the lowest and highest kept ones, over what is kept (Tukey and McLaughlin's rule)."""
    row = _trim(scores)
    return np.clip(scores, *row.ends) / (_tasks(scores) * np.where(row.total > 0, row.total, 1.0)[..., None])


def _iqm_runs(scores: np.ndarray) -> np.ndarray:
    """Runs that are kept: those drawn in tell nothing of the spread between them (Tukey and McLaughlin again)."""
    low, high = _trim(scores).ends
    return ((scores >= low) & (scores <= high)).sum(-2)


MEAN = Statistic("mean", _mean_of_tasks, lambda scores: scores / _tasks(scores))
MEDIAN = Statistic("median of the tasks' means", _median, lambda scores: scores * _middle(scores)[..., None, :])
IQM = Statistic("interquartile mean", _iqm, _iqm_pulls, _iqm_runs)
