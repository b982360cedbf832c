"""A statistic with its standard error and its three intervals, side by side.

Student's interval of a statistic is estimate +- t s with s the standard error by the delta method and the degrees of
freedom by Welch and Satterthwaite over tasks: (sum v)^2 / sum v^2 / (n - 1), v each task's share of s^2 and n the runs
that the statistic looks at. For the mean of one cell this is the textbook interval with n - 1 degrees of freedom.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import special

from hpml.statistics.aggregate import MEAN, Statistic, task_shares
from hpml.statistics.bootstrap import RESAMPLES, bootstrap_intervals
from hpml.statistics.scores import as_scores, counts


@dataclass(frozen=True)
class Estimate:
    """A number over runs and tasks, and how far it can be believed; intervals are pairs (low, high).

    - `value`: the statistic.
    - `error`: its standard error over runs; NaN where a task has one run.
    - `student`: Student's t interval.
    - `studentised`: the bootstrap-t interval.
    - `percentile`: the percentile bootstrap interval, rliable's; too short for few runs.
    - `fewest`, `most`: runs of the tasks that count, the fewest and the most.
    - `tasks`: how many tasks count.
    - `level`: the nominal coverage of the intervals.
    """

    value: float
    error: float
    student: tuple[float, float]
    studentised: tuple[float, float]
    percentile: tuple[float, float]
    fewest: int
    most: int
    tasks: int
    level: float = 0.95


def estimate(
    scores: Any, statistic: Statistic = MEAN, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """A statistic of one table (runs, tasks), or of one cell (runs,), with its standard error and intervals."""
    table = as_scores(scores)
    if table.ndim != 2:
        raise ValueError(f"scores must be one table of runs by tasks, got {table.shape}.")
    percentile, studentised = bootstrap_intervals(table, statistic, level, resamples, seed)
    n = counts(table)
    n = n[n > 0]
    return Estimate(
        value=float(statistic(table)),
        error=float(np.sqrt(task_shares(table, statistic).sum(-1))) if len(n) else float("nan"),
        student=_pair(student_interval(table, statistic, level)),
        studentised=_pair(studentised),
        percentile=_pair(percentile),
        fewest=int(n.min(initial=0) if not len(n) else n.min()),
        most=int(n.max(initial=0)),
        tasks=len(n),
        level=level,
    )


def student_interval(scores: Any, statistic: Statistic = MEAN, level: float = 0.95) -> Float[np.ndarray, "*batch 2"]:
    """Student's interval of each table, (..., 2); NaN where a task has just one run."""
    table = as_scores(scores)
    shares = task_shares(table, statistic)
    return t_interval(statistic.estimate(table), shares, np.maximum(statistic.runs(table) - 1, 1), level)


def t_interval(centre: Any, shares: Any, freedom: Any, level: float = 0.95) -> Float[np.ndarray, "*batch 2"]:
    """centre +- t sqrt(sum of shares), with the degrees of freedom of Welch and Satterthwaite over the last axis."""
    total = np.sum(shares, -1)
    below = (np.asarray(shares) ** 2 / freedom).sum(-1)
    degrees = np.where(below > 0, total**2 / np.where(below > 0, below, 1.0), 1.0)
    half = special.stdtrit(degrees, (1.0 + level) / 2.0) * np.sqrt(total)
    return np.stack([centre - half, centre + half], -1)


def _pair(interval: Any) -> tuple[float, float]:
    return float(interval[0]), float(interval[1])
