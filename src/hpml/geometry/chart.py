"""Isometric coordinates of the span of the samples, for d much larger than n.

Every quantity of every projector lives in span{x_i - x0, F_i}: at most 2n coordinates (3n with two estimates of the
field) carry the whole problem, whatever d is. Nothing here forms a d x d matrix.
"""

import equinox as eqx
import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.geometry.metric import Diagonal, Euclidean, Metric
from hpml.geometry.samples import Samples

# A direction whose singular value, with every row scaled to length one, is below this share of the largest is rounding.
RANK_TOLERANCE = 1e-13


class Chart(eqx.Module):
    """The r coordinates of a subspace around a centre, Euclidean where the space has the metric M.

    The rows of `basis` are orthonormal and span the whitened samples (W u has the Euclidean length |u|_M). Points and
    vectors outside the subspace are encoded as their M-orthogonal projections on it.
    """

    centre: Float[Array, " d"]
    basis: Float[Array, "r d"]
    metric: Metric

    @property
    def rank(self) -> int:
        """The number r of coordinates."""
        return self.basis.shape[0]

    def encode_points(self, points: Float[Array, "q d"]) -> Float[Array, "q r"]:
        """The coordinates of points, zero at the centre."""
        return self.encode_vectors(np.asarray(points, np.float64) - self.centre)

    def encode_vectors(self, vectors: Float[Array, "q d"]) -> Float[Array, "q r"]:
        """The coordinates of vectors such as the field."""
        return np.asarray(self.metric.whiten(np.asarray(vectors, np.float64))) @ self.basis.T

    def decode(self, coordinates: Float[Array, "q r"]) -> Float[Array, "q d"]:
        """The vectors that have these coordinates."""
        return np.asarray(self.metric.unwhiten(np.asarray(coordinates, np.float64) @ self.basis))

    def variances(self, variances: Float[Array, "q r"]) -> Float[Array, "q d"]:
        """The variances of a decoded vector's coordinates, from those of its coordinates in the chart."""
        return np.asarray(variances, np.float64) @ self.decode(np.eye(self.rank)) ** 2

    def beside(self, points: Float[Array, "q d"]) -> Float[Array, " q"]:
        """How far points lie from the subspace, squared, in the metric."""
        offset = np.asarray(self.metric.whiten(np.asarray(points, np.float64) - self.centre))
        return np.maximum((offset**2).sum(1) - ((offset @ self.basis.T) ** 2).sum(1), 0.0)

    def unit_variances(self, rows: int = 1024) -> Float[Array, " d"]:
        """The variances of a vector's coordinates where those of the whitened vector are 1: the diagonal of M^-1."""
        d = self.centre.shape[0]
        if isinstance(self.metric, Euclidean):
            return np.ones(d)
        if isinstance(self.metric, Diagonal):
            return 1.0 / np.asarray(self.metric.diagonal, np.float64)
        total = np.zeros(d)
        for start in range(0, d, rows):
            unit = np.eye(min(rows, d - start), d, start)
            total += (np.asarray(self.metric.unwhiten(unit)) ** 2).sum(0)
        return total


def chart_of(samples: Samples, metric: Metric) -> tuple[Chart, Samples]:
    """The chart of the samples' span, and the samples inside it, where the metric is Euclidean.

    The metric must be constant. QR instead of the Gram matrix: the same O(n^2 d), and a direction 10^-8 times smaller
    than the others survives, where squaring would lose it.
    """
    if not metric.constant:
        raise ValueError("A chart needs a constant metric: with one that varies, work in the full space.")
    X, F = np.asarray(samples.points, np.float64), np.asarray(samples.field, np.float64)
    centre = X.mean(0)
    halves = None if samples.halves is None else np.asarray(samples.halves, np.float64)
    vectors = [X - centre, F] if halves is None else [X - centre, halves[0], halves[1]]
    rows = np.asarray(metric.whiten(np.concatenate(vectors)))
    length = np.linalg.norm(rows, axis=1)
    rows = rows[length > 0] / length[length > 0, None]  # a small field must not vanish beside large points
    Q, R = np.linalg.qr(rows.T)
    U, s, _ = np.linalg.svd(R, full_matrices=False)
    kept = s > RANK_TOLERANCE * s[0]
    chart = Chart(centre, (Q @ U[:, kept]).T, metric)
    inner = Samples(
        chart.encode_points(X),
        chart.encode_vectors(F),
        samples.weights,
        samples.replicates,
        samples.noise,
        None if halves is None else np.stack([chart.encode_vectors(half) for half in halves]),
        samples.rows,
        samples.ambient,
    )
    return chart, inner
