"""How often the 95 % intervals hold the truth, measured in simulation: the reader of an interval should know.

Three quantities: the mean of one cell, and the mean ("macro") and the interquartile mean ("iqm") over ten tasks whose
centres are spread over two standard deviations of a run. Three kinds of scores, each with mean 0 and standard
deviation 1:

- normal;
- skewed: log-normal with the logarithm's standard deviation 1 (skewness 6.2), a few runs that do very well;
- bimodal: a quarter of the runs near one value and the rest near another, a convention found or not.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy import integrate, optimize, special

from hpml.statistics.aggregate import IQM, MEAN, TRIM
from hpml.statistics.bootstrap import bootstrap_intervals
from hpml.statistics.compare import probability_of_improvement
from hpml.statistics.interval import student_interval

KINDS = ("normal", "skewed", "bimodal")
QUANTITIES = ("mean", "macro", "iqm")
INTERVALS = ("percentile", "studentised", "student")
SEEDS = (3, 5, 10)
TASKS = 10
SPREAD = 2.0  # the tasks' centres, in standard deviations of a run
SHARE, NEAR = 0.25, 0.1  # bimodal: the share of the upper mode, and the standard deviation around either
SIGMA = 1.0  # skewed: the standard deviation of the logarithm


@dataclass(frozen=True)
class Coverage:
    """The measured coverage of the three intervals in one setting.

    - `kind`, `quantity`, `seeds`: the setting.
    - `percentile`, `studentised`, `student`: shares of trials in which the interval held the truth.
    - `trials`: how many there were.
    - `widths`: the median widths of the intervals, in standard deviations of a run.
    """

    kind: str
    quantity: str
    seeds: int
    percentile: float
    studentised: float
    student: float
    trials: int
    widths: tuple[float, float, float]

    def error(self, interval: str) -> float:
        """The Monte Carlo standard error of a share."""
        share = float(getattr(self, interval))
        return float(np.sqrt(max(share * (1.0 - share), 1.0 / self.trials) / self.trials))


def draw(kind: str, shape: tuple[int, ...], key: np.random.Generator) -> np.ndarray:
    """Scores with mean 0 and standard deviation 1."""
    if kind == "normal":
        return key.standard_normal(shape)
    if kind == "skewed":
        size = np.exp(SIGMA * key.standard_normal(shape))
        return (size - np.exp(SIGMA**2 / 2)) / np.sqrt(np.expm1(SIGMA**2) * np.exp(SIGMA**2))
    if kind == "bimodal":
        modes = (key.random(shape) < SHARE).astype(np.float64) - SHARE
        scatter = np.sqrt(SHARE * (1 - SHARE) + NEAR**2)
        return (modes + NEAR * key.standard_normal(shape)) / scatter
    raise ValueError(f'kind must be one of {", ".join(KINDS)}, got "{kind}".')


def measure_coverage(
    kind: str, quantity: str, seeds: int, trials: int = 1000, resamples: int = 400, level: float = 0.95, seed: int = 0
) -> Coverage:
    """Draw tables of runs, make the intervals, count how often they hold the truth."""
    key = np.random.default_rng([seed, KINDS.index(kind), QUANTITIES.index(quantity), seeds])
    statistic, tasks = IQM if quantity == "iqm" else MEAN, 1 if quantity == "mean" else TASKS
    tables = draw(kind, (trials, seeds, tasks), key) + centres(tasks)
    true = truth(kind, quantity)
    percentile, studentised = bootstrap_intervals(tables, statistic, level, resamples, seed)
    found = [percentile, studentised, student_interval(tables, statistic, level)]
    held = [float(((pair[:, 0] <= true) & (true <= pair[:, 1])).mean()) for pair in found]
    widths = [float(np.median(pair[:, 1] - pair[:, 0])) for pair in found]
    return Coverage(kind, quantity, seeds, held[0], held[1], held[2], trials, (widths[0], widths[1], widths[2]))


def coverage_table(
    trials: int = 1000, resamples: int = 400, seeds: tuple[int, ...] = SEEDS, seed: int = 0
) -> tuple[Coverage, ...]:
    """The coverage in every setting, freshly simulated."""
    return tuple(
        measure_coverage(kind, quantity, n, trials, resamples, seed=seed)
        for quantity in QUANTITIES
        for kind in KINDS
        for n in seeds
    )


def measure_improvement(
    kind: str, seeds: int, tasks: int, shift: float, trials: int = 500, resamples: int = 300, seed: int = 0
) -> tuple[float, float, float]:
    """The true probability of improvement by a shift, and how often the percentile and the score interval hold it."""
    key = np.random.default_rng([seed, KINDS.index(kind), seeds, tasks])
    many = draw(kind, (2, 400_000), key)
    true = float(improvement_by_pairs(many[0] + shift, many[1]))
    held = np.zeros((trials, 2), bool)
    for trial in range(trials):
        x, y = draw(kind, (2, seeds, tasks), key)
        found = probability_of_improvement(x + shift, y, resamples=resamples, seed=trial)
        held[trial] = [low <= true <= high for low, high in (found.percentile, found.score)]
    return true, float(held[:, 0].mean()), float(held[:, 1].mean())


def improvement_by_pairs(x: np.ndarray, y: np.ndarray) -> float:
    """The share of pairs (x, y), each run met once, in which x is higher, ties counting half."""
    return float(((x > y) + 0.5 * (x == y)).mean())


def centres(tasks: int) -> np.ndarray:
    """The means of the simulated tasks."""
    return np.linspace(-SPREAD / 2, SPREAD / 2, tasks) if tasks > 1 else np.zeros(1)


@cache
def truth(kind: str, quantity: str) -> float:
    """The population's value: 0 for means; the mean of the middle half of the pooled tasks for the other."""
    if quantity != "iqm":
        return 0.0
    middle = centres(TASKS)

    def pooled(x: float) -> float:
        return float(distribution(kind, x - middle).mean())

    low, high = (float(optimize.brentq(lambda x, q=q: pooled(x) - q, -50.0, 50.0)) for q in (TRIM, 1.0 - TRIM))
    # The mean of the middle half is low and high less the area under the distribution between them.
    area = integrate.quad(pooled, low, high, limit=400, epsabs=1e-10)[0]
    return ((1.0 - TRIM) * high - TRIM * low - area) / (1.0 - 2.0 * TRIM)


def distribution(kind: str, x: np.ndarray) -> np.ndarray:
    """The distribution function of `draw`."""
    if kind == "normal":
        return special.ndtr(x)
    if kind == "skewed":
        size = x * np.sqrt(np.expm1(SIGMA**2) * np.exp(SIGMA**2)) + np.exp(SIGMA**2 / 2)
        return np.where(size > 0, special.ndtr(np.log(np.maximum(size, 1e-300)) / SIGMA), 0.0)
    back = x * np.sqrt(SHARE * (1 - SHARE) + NEAR**2)
    return (1 - SHARE) * special.ndtr((back + SHARE) / NEAR) + SHARE * special.ndtr((back - 1 + SHARE) / NEAR)
