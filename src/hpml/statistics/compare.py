"""Is one method better than another? The probability of improvement, an interval for it, and a test.

In a task it is P(X > Y) + P(X = Y) / 2 for one run of each method, Mann and Whitney's U over the number of pairs; over
tasks it is the plain mean (Agarwal et al. 2021, Deep reinforcement learning at the edge of the statistical precipice).
It says how often, not by how much.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import optimize, stats

from hpml.statistics.aggregate import MEAN, Statistic, task_shares
from hpml.statistics.bootstrap import RESAMPLES
from hpml.statistics.exchange import exchange_p, improvement_by_task
from hpml.statistics.interval import t_interval
from hpml.statistics.scores import as_scores, counts

EDGE = 1e-9  # how near to an end a probability is looked for


@dataclass(frozen=True)
class Improvement:
    """The probability that a run of one method beats a run of another, averaged over the tasks that both have.

    - `value`: the probability; 1/2 where they are alike.
    - `percentile`: the percentile bootstrap interval, rliable's; it has no width where the runs do not overlap.
    - `score`: the interval of all probabilities that the data do not contradict, which keeps its width there.
    - `p`: the chance of a value as far from 1/2 as this or farther if the methods were alike (exact, within tasks).
    - `least_p`: the smallest p that so few runs can give at all.
    - `by_task` (tasks,): the probability in each task, NaN where either method has no run.
    - `tasks`: how many tasks count.
    """

    value: float
    percentile: tuple[float, float]
    score: tuple[float, float]
    p: float
    least_p: float
    by_task: Float[np.ndarray, " tasks"]
    tasks: int
    level: float = 0.95


@dataclass(frozen=True)
class Difference:
    """One method's statistic less another's: `value`, its standard `error`, Welch's interval, the tasks compared."""

    value: float
    error: float
    interval: tuple[float, float]
    tasks: int
    level: float = 0.95

    @property
    def settled(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.interval[0] > 0 or self.interval[1] < 0


def probability_of_improvement(
    scores: Any, against: Any, level: float = 0.95, resamples: int = RESAMPLES, seed: int = 0
) -> Improvement:
    """How likely a run of `scores` (runs, tasks) beats a run of `against`, with intervals and an exact test."""
    x, y = as_scores(scores), as_scores(against, "against")
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"Both methods need a table of runs by the same tasks, got {x.shape} and {y.shape}.")
    by_task = improvement_by_task(x, y)
    both = np.isfinite(by_task)
    if not both.any():
        nothing = (float("nan"), float("nan"))
        return Improvement(float("nan"), nothing, nothing, float("nan"), float("nan"), by_task, 0, level)
    x, y = x[:, both], y[:, both]
    m, n = counts(x), counts(y)
    value = float(by_task[both].mean())
    low, high = np.quantile(
        _drawn(x, y, resamples, np.random.default_rng(seed)), [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
    )
    single = bool((m == 1).any() or (n == 1).any())
    p, least = exchange_p(x, y)
    return Improvement(
        value=value,
        percentile=(float("nan"), float("nan")) if single else (float(low), float(high)),
        score=_score_interval(value, m, n, level),
        p=p,
        least_p=least,
        by_task=by_task,
        tasks=int(both.sum()),
        level=level,
    )


def difference(scores: Any, against: Any, statistic: Statistic = MEAN, level: float = 0.95) -> Difference:
    """The statistic of `scores` less that of `against` over the tasks that both have, with Welch's t interval."""
    x, y = as_scores(scores), as_scores(against, "against")
    both = (counts(x) > 0) & (counts(y) > 0)
    if not both.any():
        return Difference(float("nan"), float("nan"), (float("nan"), float("nan")), 0, level)
    x, y = x[:, both], y[:, both]
    shares = np.concatenate([task_shares(x, statistic), task_shares(y, statistic)])
    freedom = np.maximum(np.concatenate([counts(x), counts(y)]) - 1, 1)
    value = float(statistic(x) - statistic(y))
    low, high = t_interval(value, shares, freedom, level)
    return Difference(value, float(np.sqrt(shares.sum())), (float(low), float(high)), int(both.sum()), level)


def holm(p: Sequence[float]) -> Float[np.ndarray, " tests"]:
    """Holm's p of each of several tests: below a level where the whole family errs at most that often."""
    raw = np.asarray(p, np.float64)
    order = np.argsort(raw)
    steps = raw[order] * np.arange(len(raw), 0, -1)
    found = np.empty_like(raw)
    found[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return found


def _drawn(x: np.ndarray, y: np.ndarray, resamples: int, key: np.random.Generator) -> np.ndarray:
    """The probability in each resample of both methods' runs: how often each run is drawn is all that it needs."""
    total = np.zeros(resamples)
    for task in range(x.shape[1]):
        a, b = (z[np.isfinite(z[:, task]), task] for z in (x, y))
        wins = (a[:, None] > b) + 0.5 * (a[:, None] == b)
        times = [key.multinomial(len(z), np.full(len(z), 1.0 / len(z)), resamples) for z in (a, b)]
        total += ((times[0] @ wins) * times[1]).sum(1) / wins.size
    return total / x.shape[1]


def _variance(p: float, m: np.ndarray, n: np.ndarray) -> np.ndarray:
    """The variance of U / (m n) where the probability is p, in the model of Hanley and McNeil (1982)."""
    both_x, both_y = p / (2.0 - p), 2.0 * p * p / (1.0 + p)
    return (p * (1.0 - p) + (m - 1) * (both_x - p * p) + (n - 1) * (both_y - p * p)) / (m * n)


def _score_interval(value: float, m: np.ndarray, n: np.ndarray, level: float) -> tuple[float, float]:
    """All p with |value - p| <= t s(p), s(p) the standard error that p itself implies (as Wilson has it).

    The standard error at the estimate is 0 where no runs overlap, and an interval made of it would claim certainty; at
    p it is not. The same p is put in every task, which can only widen s: the variance is concave in p. Degrees of
    freedom: m + n - 2 in each task.
    """
    t = float(stats.t.ppf((1.0 + level) / 2.0, float((m + n - 2).sum()))) if (m + n > 2).any() else float("inf")
    if not np.isfinite(t):
        return 0.0, 1.0

    def beyond(p: float) -> float:
        return (value - p) ** 2 - t * t * float(_variance(p, m, n).sum()) / len(m) ** 2

    # At the estimate itself the two sides can be equal (both 0 where no runs overlap), so the search starts beside it.
    low = 0.0 if value <= EDGE or beyond(EDGE) <= 0 else float(optimize.brentq(beyond, EDGE, value - EDGE))
    high = 1.0 if value >= 1 - EDGE or beyond(1 - EDGE) <= 0 else float(optimize.brentq(beyond, value + EDGE, 1 - EDGE))
    return low, high
