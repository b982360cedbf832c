"""Sampled points of a joint field, with weights and replicates, and the measure that the projection is taken in.

Repeated points and a field given as two independent estimates are replicates: they are averaged, and their spread is
the noise. Noise looks like circulation, so every energy is reported in three parts.
"""

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from hpml.geometry.arrays import Array, as_finite, as_matrix, kind_of
from hpml.geometry.domain import Domain
from hpml.geometry.metric import Euclidean, Metric

# Squares of anything smaller or larger leave the range of float64.
SMALL, LARGE = 1e-140, 1e140
DRAWN = 1 << 26  # numbers drawn from a measure in many dimensions: half a gigabyte
FAINT = 1e-15  # share of the largest weight below which a sample counts for nothing: sums would not see it

Sampler: TypeAlias = Callable[[Any, int], Array]
Measure: TypeAlias = Domain | Sampler | None


class Samples(eqx.Module):
    """Distinct points x^i with the mean F_i of the field estimates there.

    - `weights` sum to one and say how much of the measure each point carries.
    - `replicates` counts the different estimates behind each F_i: a copy of one, a row that was logged twice, is none.
    - `noise` is E|F_i - F(x^i)|_M^2, the energy of the noise that is left in the means; None without replicates.
    - `halves` are two independent estimates where the caller gave them, and at no point two copies of one.
    - `rows` maps each given sample to its distinct point.
    - `ambient` is the dimension that the points really live in, larger than d inside a chart.
    """

    points: Float[Array, "n d"]
    field: Float[Array, "n d"]
    weights: Float[Array, " n"]
    replicates: Float[Array, " n"]
    noise: float | None
    halves: Float[Array, "2 n d"] | None
    rows: Int[Array, " given"]
    ambient: int = eqx.field(static=True)

    @property
    def count(self) -> int:
        """The number n of distinct points."""
        return self.points.shape[0]

    @property
    def dimension(self) -> int:
        """The number d of coordinates."""
        return self.points.shape[1]

    @property
    def inflation(self) -> Float[Array, " n"]:
        """How much more noise each mean has in its variance than one of as many estimates as there are on average."""
        return self.replicates.mean() / self.replicates

    def take(self, index: np.ndarray) -> "Samples":
        """The samples at some rows, their weights scaled to sum to one."""
        weights = self.weights[index]
        return Samples(
            self.points[index],
            self.field[index],
            weights / weights.sum(),
            self.replicates[index],
            self.noise,
            None if self.halves is None else self.halves[:, index],
            np.arange(len(weights)),
            self.ambient,
        )


def gather_samples(points: Any, field: Any, weights: Any = None, metric: Metric | None = None) -> Samples:
    """Check what a user gave and average the replicates; a `ValueError` says what is wrong and what to do."""
    metric = Euclidean() if metric is None else metric
    X = as_matrix(points, "points")
    F = as_finite(field, "field")
    if F.shape not in (X.shape, (2, *X.shape)):
        raise ValueError(
            f"field must have the shape of points, {X.shape}, or (2, {X.shape[0]}, {X.shape[1]}) for two independent "
            f"estimates; got {F.shape}."
        )
    n, d = X.shape
    if n < 2:
        raise ValueError(f"A projection needs at least two points, got {n}: collect more samples.")
    if d < 1:
        raise ValueError("points has no columns: every sample needs at least one coordinate.")
    metric.check(d)
    _check_size(X - X[0], "The spread of points")
    _check_size(F, "field")
    w = np.full(n, 1.0 / n) if weights is None else as_finite(weights, "weights")
    if w.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one for each point; got {w.shape}.")
    if (w < 0).any():
        raise ValueError("weights must not be negative: drop the samples that should not count.")
    if not w.max() > 0:
        raise ValueError("weights are all zero: at least two points must count.")
    w = w / w.max()  # before the sum, which huge weights would overflow
    w = w / w.sum()
    keep = w >= FAINT * w.max()
    metric.check_points(np.where(keep[:, None], X, X[w.argmax()]))
    rows = np.full(n, -1)
    estimates = F if F.ndim == 3 else F[None]
    X, estimates, w = X[keep], estimates[:, keep], w[keep]

    _, first, inverse = np.unique(X, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)  # of first appearance, as the caller gave them
    distinct = X[first[order]]
    inverse = np.argsort(order)[inverse.reshape(-1)]
    if len(distinct) < 2:
        raise ValueError(
            "All points that count are equal, so the field has no direction to be compared along: sample at least "
            "two distinct points."
        )
    share = np.bincount(inverse, w)

    def average(values: np.ndarray) -> np.ndarray:
        total = np.zeros_like(distinct)
        np.add.at(total, inverse, values * w[:, None])
        return total / share[:, None]

    halves = np.stack([average(values) for values in estimates])
    replicates, noise = np.ones(len(distinct)), None
    if len(distinct) < estimates.shape[0] * estimates.shape[1]:
        place, single = np.tile(inverse, len(estimates)), np.tile(w, len(estimates)) / len(estimates)
        replicates, noise = _pooled(distinct, place, estimates.reshape(-1, d), single, metric)
    rows[keep] = inverse
    independent = len(halves) == 2 and bool(np.all(np.any(halves[0] != halves[1], axis=1)))
    return Samples(distinct, halves.mean(0), share, replicates, noise, halves if independent else None, rows, d)


def _pooled(
    points: np.ndarray, place: np.ndarray, estimates: np.ndarray, weights: np.ndarray, metric: Metric
) -> tuple[np.ndarray, float | None]:
    """How many different estimates each point has, and the energy of the noise left in their weighted means."""
    _, first, same = np.unique(np.column_stack([place, estimates]), axis=0, return_index=True, return_inverse=True)
    place, estimates, weights = place[first], estimates[first], np.bincount(same.reshape(-1), weights)
    replicates = np.bincount(place).astype(float)
    freedom = float((replicates - 1).sum())
    if freedom == 0:
        return replicates, None
    # Pooled variance of one estimate around its point's mean; the mean of r equal estimates keeps 1/r of it.
    plain = np.zeros_like(points)
    np.add.at(plain, place, estimates)
    spread = estimates - (plain / replicates[:, None])[place]
    energy = np.sum(np.asarray(metric.inner(spread, spread, points[place])))
    share = np.bincount(place, weights)
    kept = np.bincount(place, weights**2) / share**2
    return replicates, float(np.sum(share * kept) * energy / freedom)


def _takes(function: Callable, given: tuple) -> bool:
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature says itself what it wants
        pass
    return True


def _check_size(values: np.ndarray, name: str) -> None:
    largest = np.abs(values).max()
    if largest > LARGE or 0 < largest < SMALL:
        raise ValueError(f"{name} has the size {largest:.0e}, whose square float64 cannot hold: change the units.")


def draw_measure(
    measure: Measure, samples: Samples, key: Any, count: int
) -> tuple[Float[Array, "m d"], Float[Array, " m"]]:
    """Points and weights of the measure mu: the samples themselves, a domain's uniform law, or a sampler's draws.

    `count` of these, or as many as memory has room for.
    """
    if measure is None:
        return samples.points, samples.weights
    draw = measure.spread if isinstance(measure, Domain) else measure
    count = min(count, max(DRAWN // samples.dimension, 256))
    given = (jax.random.key(0) if key is None else key, count)
    if isinstance(draw, type) or not callable(draw) or not _takes(draw, given):
        raise ValueError(
            "measure must be None, a domain such as hpml.Ball(...), or a function (key, count) -> points; got "
            f"{'a function of other arguments' if inspect.isroutine(draw) else kind_of(measure)}."
        )
    drawn = as_matrix(draw(*given), "The measure's points")
    if drawn.shape[1] != samples.dimension:
        raise ValueError(
            f"The measure draws points in dimension {drawn.shape[1]}, the samples have {samples.dimension}: a domain "
            "is made with arrays of that many numbers, and a function returns rows of them."
        )
    if len(drawn) < 2:
        raise ValueError(f"The measure drew {len(drawn)} of {count} points: its function (key, count) returns `count`.")
    if (drawn == drawn[0]).all():
        raise ValueError("The points that the measure drew are all equal: at one point any field is a gradient.")
    return drawn, np.full(len(drawn), 1.0 / len(drawn))
