"""The split behind a diagnosis: what circulates, held out, and the projection at every sample (`def:nonpot`)."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpml.geometry.metric import Metric
from hpml.geometry.samples import Measure, Samples
from hpml.projection.identifiability import identifiability
from hpml.projection.measure import measure_weights
from hpml.projection.nonpotentiality import (
    IdentifiabilityWarning,
    NonPotentiality,
    energy_beside,
    held_out_share,
    limit_of,
    nonpotentiality,
    residual_energies,
)
from hpml.projection.project import Projection, project
from hpml.projection.projector import Energy, Projector
from hpml.projection.projectors.kernel import MANY, KernelProjector
from hpml.projection.witness import witness_of
from hpml.record.samples import SampleData

LEVEL = 0.95
# Numbers n d that the kernel is fitted to: up to FOLDED, six fits take some ten seconds in all; above, one fit of at
# most FITTED (or FITTED_MANY in its dual form) does, and TESTED samples that it has not seen test it.
FOLDED, FITTED, FITTED_MANY, TESTED = 4_000, 4_000, 100_000, 4_000


@dataclass(frozen=True)
class Split:
    """What circulates, held out, and the projected field and potential at the samples."""

    share: NonPotentiality
    direction: np.ndarray
    potential: np.ndarray
    energy: Energy
    method: str
    notes: tuple[str, ...] = ()


def fitted_count(count: int, dimension: int, projector: Projector | None) -> int:
    """How many samples the potential is fitted to; all of them where that is quick or the projector is not a kernel."""
    if not (projector is None or isinstance(projector, KernelProjector)) or count * dimension <= FOLDED or count < 20:
        return count
    return min(count - count // 5, max((FITTED_MANY if dimension > MANY else FITTED) // dimension, 100))


def split_samples(
    data: SampleData, samples: Samples, metric: Metric, projector: Projector | None, measure: Measure, key: Any
) -> Split:
    """The held-out share with its interval, and the split at every sample."""
    X, n, d = data.points, samples.count, samples.dimension
    fitted = fitted_count(n, d, projector)
    if projector is None and min(d, 2 * fitted) > MANY:
        projector = KernelProjector(exact=1)  # the dual form: some seconds, where the exact one takes minutes
    notes: tuple[str, ...] = ()
    if fitted == n:
        arguments = (X, data.field, projector, metric, measure, data.weights)
        projection = project(*arguments, key=key)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IdentifiabilityWarning)  # `limits` says so
            share = nonpotentiality(*arguments, key=key, level=LEVEL)
        direction, potential = np.asarray(projection.direction), np.asarray(projection.potential)
    else:
        train = np.zeros(n, bool)
        train[np.random.default_rng(0).permutation(n)[:fitted]] = True
        rows = train[samples.rows]
        w = None if data.weights is None else data.weights[rows]
        projection = project(X[rows], data.field[..., rows, :], projector, metric, measure, w, key)
        direction, potential = np.asarray(projection.at(X)), np.asarray(projection.potential_at(X))
        share = _tested(samples, metric, measure, key, projection, train, direction)
        notes = (f"The potential is fitted to {fitted:,} samples and tested on the {n - fitted:,} others.",)
    total = float(samples.weights @ np.asarray(metric.inner(samples.field, samples.field, samples.points)))
    noise = (share.noise or 0.0) * total
    signal = total - noise
    energy = Energy((1.0 - share.estimate) * signal, share.estimate * signal, noise)
    return Split(share, direction, potential, energy, projection.method, notes)


def _tested(
    samples: Samples,
    metric: Metric,
    measure: Measure,
    key: Any,
    projection: Projection,
    train: np.ndarray,
    direction: np.ndarray,
) -> NonPotentiality:
    """What `hpml.nonpotentiality` gives, from one fit and the samples that it has not seen."""
    first = np.empty(samples.count, int)
    first[samples.rows] = np.arange(len(samples.rows))  # any given sample of each distinct point
    noise = samples.noise if samples.noise is not None else (projection.energy.noise or None)
    observed = float(samples.weights @ np.asarray(metric.inner(samples.field, samples.field, samples.points)))
    top, bottom = residual_energies(samples, direction[first], metric, noise or 0.0)
    test = ~train
    rng = np.random.default_rng(0)
    beside = energy_beside(samples, train, test, metric)
    counted = measure_weights(samples.take(np.flatnonzero(test)), metric, measure, key)
    estimate, low, high, beside_share = held_out_share(top[test], bottom[test], beside, counted, 1000, LEVEL, rng)
    seen = identifiability(samples.points, metric)
    return NonPotentiality(
        estimate=estimate,
        low=low,
        high=high,
        noise=None if noise is None else float(np.clip(noise / observed, 0.0, 1.0)) if observed > 0 else 0.0,
        loops=seen.share,
        beside=beside_share,
        in_sample=projection.nonpotentiality,
        witness=witness_of(samples, metric),
        warning=limit_of(seen, beside_share),
    )
