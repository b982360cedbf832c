"""Coordinates of unit size in which a potential is fitted, and the way back to metric gradients.

A metric that varies with the point is frozen at one point for the coordinates alone (`rem:variable_metric`).
"""

import equinox as eqx
import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.geometry.metric import Metric

UNLIKE = 3.0  # times that lengths are longer or shorter in a metric than they are anywhere among the samples


def anchor_of(points: Float[Array, "n d"], weights: Float[Array, " n"], metric: Metric) -> np.ndarray:
    """Where a varying metric is frozen: at the samples' mean, or, where it is far larger or smaller there than at any
    of them, as in the middle of a ring, at a usual sample.
    """
    given = np.asarray(points)
    mean = np.asarray(weights @ given)
    if metric.constant:
        return mean
    everywhere = np.concatenate([mean[None], given])
    axes = np.broadcast_to(np.eye(len(mean))[:, None], (len(mean), *everywhere.shape))
    with np.errstate(all="ignore"):
        sizes = np.linalg.slogdet(np.moveaxis(np.asarray(metric.whiten(axes, everywhere)), 0, -1))[1]
    there, margin = sizes[1:], len(mean) * np.log(UNLIKE)
    if there.min() - margin <= sizes[0] <= there.max() + margin:
        return mean
    return given[np.argsort(there)[len(there) // 2]]


class Scaling(eqx.Module):
    """Coordinates of unit size: u = (W x - centre) / spread, field W F / size, with W the metric's constant factor."""

    metric: Metric
    anchor: Float[Array, " d"]
    centre: Float[Array, " d"]
    spread: float
    size: float

    def points(self, points: Array) -> np.ndarray:
        """Scaled coordinates."""
        return (np.asarray(self._whiten(points)) - self.centre) / self.spread

    def vectors(self, vectors: Array) -> np.ndarray:
        """Scaled field values."""
        return np.asarray(self._whiten(vectors)) / self.size

    def restore(self, gradients: Array) -> np.ndarray:
        """Field values W^-1 g in the caller's coordinates, from whitened ones of unit size."""
        return np.asarray(self.metric.unwhiten(gradients, self._at())) * self.size

    def covectors(self, gradients: Array) -> np.ndarray:
        """Gradients with respect to x in the caller's coordinates: W^T g."""
        vectors = np.asarray(self.metric.unwhiten(gradients, self._at()))
        return np.asarray(self.metric.lower(vectors, self._at())) * self.size

    def metric_gradient(self, gradients: Array, points: Array) -> np.ndarray:
        """M^-1 grad Phi in the caller's coordinates, from the gradient in scaled ones."""
        if self.metric.constant:
            return self.restore(gradients)
        return np.asarray(self.metric.raise_index(self.covectors(gradients), points))

    def factors(self, points: Array) -> np.ndarray | None:
        """B with |B h| the scaled length of the metric gradient of a scaled gradient h, (n, d, d); None for B = I.

        Where the metric varies, B = W(x)^-T W^T, and B^T B h is the scaled metric gradient itself.
        """
        if self.metric.constant:
            return None
        columns = self.covectors(np.eye(points.shape[-1])) / self.size
        everywhere = np.broadcast_to(columns[:, None], (len(columns), *points.shape))
        return np.moveaxis(np.asarray(self.metric.whiten_covector(everywhere, points)), 0, -1)

    def stretch(self, points: Array) -> np.ndarray | None:
        """C = B^T B, which makes the scaled metric gradient of a scaled gradient, (n, d, d); None for C = I."""
        B = self.factors(points)
        return None if B is None else B.swapaxes(-1, -2) @ B

    @property
    def energy(self) -> float:
        """The potential's unit."""
        return self.size * self.spread

    def _whiten(self, vectors):
        return self.metric.whiten(vectors, self._at())

    def _at(self):
        return None if self.metric.constant else self.anchor
