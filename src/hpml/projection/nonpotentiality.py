"""`hpml.nonpotentiality`: how much of a field circulates, held out and with an interval (`def:nonpot`).

In-sample, a flexible potential explains any field at n points. Here each point's residual comes from a projection that
has not seen the point. Its energy is that of the circulation plus that of the estimate's own error, since the error is
a gradient and the circulation is orthogonal to gradients: the estimate errs upwards, and less with more samples.

Of many coordinates few samples span some only. What the field does beside them at a point that was left out, nothing in
the others tells: it may climb a hill or turn. It counts as circulation in the estimate, and as neither in the interval.
"""

import warnings
from typing import Any

import equinox as eqx
import jax
import numpy as np

from hpml.geometry.arrays import Array, as_key
from hpml.geometry.metric import Euclidean, Metric
from hpml.geometry.samples import Measure, Samples, gather_samples
from hpml.projection.identifiability import NOTHING, Identifiability, identifiability
from hpml.projection.measure import measure_weights
from hpml.projection.project import project
from hpml.projection.projector import Projector
from hpml.projection.witness import Witness, witness_of

BESIDE = (
    "The samples span too few of the coordinates: nearly all of the field lies beside what the others say of a point, "
    "and could climb a hill or turn there, so the share is an upper bound: add samples, or look at fewer coordinates."
)

BLOCKS = 2000  # the bootstrap draws at most this many blocks of points, so that it costs the same for a million


class IdentifiabilityWarning(UserWarning):
    """The samples cannot show circulation, whatever the field does."""


class NonPotentiality(eqx.Module):
    """The share of the field's energy that circulates.

    - `estimate`: held out, noise taken out where it is known, in [0, 1]; `low`, `high`: its bootstrap interval.
    - `noise`: the share of the observed field's energy that is noise; None where nothing tells.
    - `loops`: how much of the sample set can show circulation, in [0, 1]; `beside`: the share of the field that lies
      beside the directions of the other samples, of which nothing is known; `identifiable`: what both leave. `warning`
      says what to do when that is nothing, and is empty otherwise.
    - `in_sample`: the same share at the samples that were fitted.
    - `witness`: the rotation that shows without any fit.
    """

    estimate: float
    low: float
    high: float
    noise: float | None
    loops: float
    beside: float
    in_sample: float
    witness: Witness
    warning: str = eqx.field(static=True)

    def __repr__(self) -> str:
        noise = "unknown" if self.noise is None else f"{self.noise:.3f}"
        return (
            f"NonPotentiality(estimate={self.estimate:.3f}, low={self.low:.3f}, high={self.high:.3f}, noise={noise}, "
            f"identifiable={self.identifiable:.3f}, in_sample={self.in_sample:.3f}, warning={self.warning!r})"
        )

    @property
    def identifiable(self) -> float:
        """How much of the circulation the samples can show, in [0, 1]."""
        return self.loops * (1.0 - self.beside)


def nonpotentiality(
    points: Any,
    field: Any,
    projector: Projector | None = None,
    metric: Metric | None = None,
    measure: Measure = None,
    weights: Any = None,
    folds: int = 5,
    resamples: int = 1000,
    level: float = 0.95,
    key: Any = None,
) -> NonPotentiality:
    """Cross-fitted non-potentiality; the arguments of `hpml.project`, and

    - `folds`: parts that the distinct points are cut into; replicates of a point stay together.
    - `resamples`, `level`: of the bootstrap over points. The folds are not refitted, so the interval covers the points'
      draw but not the fit's.

    With two estimates of the field, the noise drops out of the product of the two residuals, E<R_a, R_b>; with repeated
    points, or without either, what the projector reports as noise is taken off, if it reports any.
    Under a `measure` each sample stands for the share of it that is closest to it.
    """
    if not isinstance(folds, int | np.integer) or folds < 2:
        raise ValueError(f"folds must be an integer of at least 2, got {folds}.")
    if not isinstance(resamples, int | np.integer) or resamples < 1 or not 0 < level < 1:
        raise ValueError("resamples must be an integer of at least 1, and level lie between 0 and 1.")
    metric = Euclidean() if metric is None else metric.remembered()
    samples = gather_samples(points, field, weights, metric)
    key = as_key(0 if key is None else key)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())

    whole = project(points, field, projector, metric, measure, weights, key)
    seen = identifiability(samples.points, metric)
    witness = witness_of(samples, metric)
    # A few replicates say little, and the fit has decided within what they leave open.
    noise = samples.noise if samples.halves is not None else (whole.energy.noise or samples.noise)
    observed = float(samples.weights @ _inner(metric, samples.field, samples.field, samples.points))
    share = None if noise is None else _noise_share(noise, observed)
    if samples.count <= 3 < samples.dimension:
        warnings.warn(
            f"points has {samples.count} rows of {samples.dimension} coordinates each, and rows are samples: transpose "
            "both arrays if yours are columns.",
            IdentifiabilityWarning,
            stacklevel=2,
        )
    if samples.count < 4:  # a fold would leave fewer than the two points that a projection needs
        whole_share, warning = whole.nonpotentiality, limit_of(seen, 0.0)
        _warn(warning)
        return NonPotentiality(whole_share, 0.0, 1.0, share, seen.share, 0.0, whole_share, witness, warning)

    direction, beside = _cross_fit(
        points, field, projector, metric, measure, weights, samples, min(folds, samples.count), rng, key
    )
    energies = residual_energies(samples, direction, metric, noise or 0.0)
    counted = measure_weights(samples, metric, measure, key)
    estimate, low, high, beside_share = held_out_share(*energies, beside, counted, resamples, level, rng)
    warning = limit_of(seen, beside_share)
    _warn(warning)
    return NonPotentiality(
        estimate, low, high, share, seen.share, beside_share, whole.nonpotentiality, witness, warning
    )


def held_out_share(
    top, bottom, beside, weights, resamples: int, level: float, rng
) -> tuple[float, float, float, float]:
    """The share and its interval, which is open below by what lies beside the samples; and the share of that.

    Where most of the field lies there, what is among the samples is no witness for it, and the interval begins at 0.
    """
    estimate, low, high = ratio_interval(top, bottom, weights, resamples, level, rng)
    energy = float(weights @ bottom)
    if not np.any(beside) or not energy > 0:
        return estimate, low, high, 0.0
    share = float(np.clip(weights @ beside / energy, 0.0, 1.0))
    lowest = ratio_interval(top - beside, bottom, weights, resamples, level, rng)[1] if share < 0.5 else 0.0
    return estimate, min(low, lowest), high, share


def limit_of(seen: Identifiability, beside: float) -> str:
    """Why the samples say nothing about circulation; empty where they say something."""
    if seen.share < NOTHING:
        return seen.message
    return BESIDE if seen.share * (1.0 - beside) < NOTHING else ""


def _warn(warning: str) -> None:
    if warning:
        warnings.warn(warning, IdentifiabilityWarning, stacklevel=3)


def energy_beside(samples: Samples, train: np.ndarray, held: np.ndarray, metric: Metric) -> np.ndarray:
    """The energy of the field at some points beside the span of {x_i - x0, F_i} of others, (held,).

    n samples span 2n directions, so that only more coordinates leave something beside them. With two estimates both
    span, and the energy is the product of their parts, without the noise.
    """
    fields = [samples.field] if samples.halves is None else list(samples.halves)
    if (1 + len(fields)) * train.sum() >= samples.dimension or not metric.constant:
        return np.zeros(held.sum())
    points = np.asarray(metric.whiten(samples.points[train]))
    fields = [np.asarray(metric.whiten(f)) for f in fields]
    known = np.concatenate([points - points.mean(0), *(f[train] for f in fields)])
    length = np.sqrt((known**2).sum(1, keepdims=True))
    known = known / np.where(length > 0, length, 1.0)
    values, vectors = np.linalg.eigh(known @ known.T)
    kept = values > 1e-10 * values[-1]
    ways = (vectors[:, kept] / np.sqrt(values[kept])).T
    inside = [(f[held] @ known.T) @ ways.T for f in fields]
    whole = (fields[0][held] * fields[-1][held]).sum(1)
    return whole - (inside[0] * inside[-1]).sum(1)


def _noise_share(noise: float, observed: float) -> float:
    """Estimates that cancel exactly are noise and nothing else."""
    return float(np.clip(noise / observed, 0.0, 1.0)) if observed > 0 else 1.0


def _cross_fit(
    points, field, projector, metric, measure, weights, samples: Samples, folds: int, rng, key
) -> tuple[np.ndarray, np.ndarray]:
    """The projected field at each distinct point, from the projection of the other folds, and what lies beside them."""
    fold = np.empty(samples.count, int)
    fold[rng.permutation(samples.count)] = np.arange(samples.count) % folds
    X, F = np.asarray(points), np.asarray(field)
    w = None if weights is None else np.asarray(weights)
    given = samples.rows
    direction, beside = np.empty_like(samples.field), np.zeros(samples.count)
    for k in range(folds):
        train, held = (given >= 0) & (fold[given] != k), fold == k
        part = project(X[train], F[..., train, :], projector, metric, measure, None if w is None else w[train], key)
        direction[held] = part.at(samples.points[held])
        beside[held] = energy_beside(samples, ~held, held, metric)
    return direction, beside


def residual_energies(
    samples: Samples, direction: np.ndarray, metric: Metric, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """|R|_M^2 and |F|_M^2 at each distinct point, without the noise, whose mean over the samples is given."""
    X = samples.points
    if samples.halves is not None:
        a, b = samples.halves
        return _inner(metric, a - direction, b - direction, X), _inner(metric, a, b, X)
    R, there = samples.field - direction, noise * _noise_profile(samples, metric)
    return _inner(metric, R, R, X) - there, _inner(metric, samples.field, samples.field, X) - there


def _noise_profile(samples: Samples, metric: Metric) -> np.ndarray:
    """How the energy of the noise is spread over the samples, with mean 1: few replicates have more of it, and so have
    points where a metric that varies is large."""
    spread = np.asarray(samples.inflation)
    if not metric.constant:
        axes = np.broadcast_to(np.eye(samples.dimension)[:, None], (samples.dimension, *samples.points.shape))
        spread = spread * _inner(metric, axes, axes, samples.points).sum(0)
    return spread / (samples.weights @ spread)


def ratio_interval(top, bottom, weights, resamples: int, level: float, rng) -> tuple[float, float, float]:
    """The ratio of two weighted means, in [0, 1], and its percentile interval over resampled points.

    A draw whose field energy is not positive could have any ratio; where such draws fill a tail the interval is [0, 1].
    """
    n = len(weights)
    blocks = np.arange(n) if n <= BLOCKS else rng.permutation(n) % BLOCKS
    a, b = np.bincount(blocks, weights * top), np.bincount(blocks, weights * bottom)
    if not np.any(weights * np.abs(bottom) > 0):  # a zero field has no circulation
        return 0.0, 0.0, 0.0
    estimate = float(np.clip(a.sum() / b.sum(), 0.0, 1.0)) if b.sum() > 0 else 0.0
    counts = rng.multinomial(len(a), np.full(len(a), 1.0 / len(a)), size=resamples)
    below, above = counts @ a, counts @ b
    valid = above > 0
    tail = (1.0 - level) / 2.0
    if np.mean(~valid) > tail:
        return estimate, 0.0, 1.0
    low, high = np.quantile(np.clip(below[valid] / above[valid], 0.0, 1.0), [tail, 1.0 - tail])
    return estimate, float(min(low, estimate)), float(max(high, estimate))


def _inner(metric: Metric, left: Array, right: Array, at: Array) -> np.ndarray:
    return np.asarray(metric.inner(left, right, at))
