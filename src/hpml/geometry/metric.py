"""Inner products on joint-policy space (`def:proj`, `rem:variable_metric`).

A metric M turns vectors into covectors (`lower`: u -> M u) and back (`raise_index`: h -> M^-1 h). Every metric also has
a factor W with M = W^T W: `whiten` maps a vector u to W u, whose Euclidean length is |u|_M, and `whiten_covector` maps
h to W^-T h, whose length is |h|_{M^-1}. With a constant metric the map x -> W x carries the whole projection problem
into Euclidean space. No diagonal or low-rank metric ever forms a d x d matrix.

`at` holds the points, one row a vector; constant metrics ignore it.
"""

import functools
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Float

from hpml.geometry.arrays import Array, as_finite, kind_of

Vectors = Float[Array, "*#batch d"]  # one point may serve many vectors
Numbers = Float[Array, "*#batch"] | np.floating  # NumPy sums one vector to a scalar that is no array


class Metric(eqx.Module):
    """A symmetric positive definite inner product on R^d, perhaps another at each point."""

    @property
    def constant(self) -> bool:
        """Whether the metric is the same at every point."""
        return True

    @property
    def dimension(self) -> int | None:
        """The dimension that the metric is made for, None where it fits any."""
        return None

    @abstractmethod
    def lower(self, vectors: Vectors, at: Vectors | None = None) -> Vectors:
        """M u, the covector of a vector."""

    @abstractmethod
    def raise_index(self, covectors: Vectors, at: Vectors | None = None) -> Vectors:
        """M^-1 h, the vector of a covector: a gradient becomes a metric gradient."""

    @abstractmethod
    def whiten(self, vectors: Vectors, at: Vectors | None = None) -> Vectors:
        """W u, with |W u| = |u|_M."""

    @abstractmethod
    def unwhiten(self, vectors: Vectors, at: Vectors | None = None) -> Vectors:
        """W^-1 u, the way back from `whiten`."""

    @abstractmethod
    def whiten_covector(self, covectors: Vectors, at: Vectors | None = None) -> Vectors:
        """W^-T h, with |W^-T h| = |h| in M^-1."""

    def inner(self, left: Vectors, right: Vectors, at: Vectors | None = None) -> Numbers:
        """<u, v>_M = u^T M v."""
        return (self.lower(left, at) * right).sum(-1)

    def norm(self, vectors: Vectors, at: Vectors | None = None) -> Numbers:
        """|u|_M."""
        square: Any = self.inner(vectors, vectors, at)
        return abs(square) ** 0.5

    def distance(self, left: Vectors, right: Vectors) -> Numbers:
        """|x - y|_M; with a varying metric, M is the mean of the two ends'."""
        step = right - left
        if self.constant:
            return self.norm(step)
        return (0.5 * (self.inner(step, step, left) + self.inner(step, step, right))) ** 0.5

    def check(self, dimension: int) -> None:
        """Raise a `ValueError` where the metric is made for another dimension."""
        if self.dimension not in (None, dimension):
            made = f"The metric is made for dimension {self.dimension}, the points have {dimension}."
            raise ValueError(made + self._hint(dimension))

    def _hint(self, dimension: int) -> str:
        """What else may be wrong where the dimensions differ."""
        return ""

    def check_points(self, points: Float[Array, "n d"]) -> None:
        """Raise a `ValueError` where the metric is made for other points."""
        self.check(points.shape[1])

    def remembered(self) -> "Metric":
        """The same metric, which works out what it is at a point once where that takes its time."""
        return self


class Euclidean(Metric):
    """M = I."""

    def lower(self, vectors, at=None):
        """See `Metric.lower`."""
        return vectors

    raise_index = whiten = unwhiten = whiten_covector = lower


class Diagonal(Metric):
    """M = diag(m): one positive weight a coordinate."""

    diagonal: Float[Array, " d"]

    def __init__(self, diagonal: Any):
        if isinstance(diagonal, jax.core.Tracer):
            self.diagonal = diagonal
            return
        m = as_finite(diagonal, "The metric's diagonal")
        if m.ndim != 1 or not (m > 0).all():
            raise ValueError("A diagonal metric needs one positive number a coordinate, as an array of shape (d,).")
        self.diagonal = m

    @property
    def dimension(self) -> int | None:
        """See `Metric.dimension`."""
        return self.diagonal.shape[-1]

    def lower(self, vectors, at=None):
        """See `Metric.lower`."""
        return vectors * self.diagonal

    def raise_index(self, covectors, at=None):
        """See `Metric.raise_index`."""
        return covectors / self.diagonal

    def whiten(self, vectors, at=None):
        """See `Metric.whiten`."""
        return vectors * self.diagonal**0.5

    def unwhiten(self, vectors, at=None):
        """See `Metric.unwhiten`."""
        return vectors / self.diagonal**0.5

    whiten_covector = unwhiten


class Dense(Metric):
    """M, any symmetric positive definite matrix; W is the transpose of its Cholesky factor."""

    matrix: Float[Array, "d d"]
    factor: Float[Array, "d d"]
    inverse_factor: Float[Array, "d d"]

    def __init__(self, matrix: Any):
        M = as_finite(matrix, "The metric's matrix")
        if M.ndim != 2 or M.shape[0] != M.shape[1]:
            raise ValueError(f"A dense metric needs a square matrix, got shape {M.shape}.")
        if not np.allclose(M, M.T, rtol=1e-8, atol=1e-10 * np.abs(M).max()):
            raise ValueError("A metric must be symmetric: pass (M + M.T) / 2 if the difference is rounding.")
        self.matrix = 0.5 * (M + M.T)
        try:
            self.factor = np.linalg.cholesky(self.matrix)
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "A metric must be positive definite: the matrix has an eigenvalue at or below 0."
            ) from error
        self.inverse_factor = scipy.linalg.solve_triangular(self.factor, np.eye(len(M)), lower=True)

    @property
    def dimension(self) -> int | None:
        """See `Metric.dimension`."""
        return self.matrix.shape[0]

    def lower(self, vectors, at=None):
        """See `Metric.lower`."""
        return vectors @ self.matrix

    def raise_index(self, covectors, at=None):
        """See `Metric.raise_index`."""
        return covectors @ self.inverse_factor.mT @ self.inverse_factor

    def whiten(self, vectors, at=None):
        """See `Metric.whiten`."""
        return vectors @ self.factor

    def unwhiten(self, vectors, at=None):
        """See `Metric.unwhiten`."""
        return vectors @ self.inverse_factor

    def whiten_covector(self, covectors, at=None):
        """See `Metric.whiten_covector`."""
        return covectors @ self.inverse_factor.mT


class LowRank(Metric):
    """M = diag(m) + U U^T with few columns in U; every operation costs O(d r).

    With V E V^T the thin eigendecomposition of m^-1/2 U U^T m^-1/2, the factor is
    W = (I + V ((I + E)^1/2 - I) V^T) m^1/2.
    """

    diagonal: Float[Array, " d"]
    columns: Float[Array, "d r"]
    basis: Float[Array, "d r"]
    spectrum: Float[Array, " r"]

    def __init__(self, diagonal: Any, columns: Any):
        self.diagonal = Diagonal(diagonal).diagonal
        U = as_finite(columns, "The metric's low-rank factor")
        if U.ndim == 1:
            U = U[:, None]
        if U.ndim != 2 or U.shape[0] != self.diagonal.shape[0]:
            raise ValueError(f"The low-rank factor must have shape ({len(self.diagonal)}, r), got {U.shape}.")
        self.columns = U
        V, s, _ = np.linalg.svd(U / np.sqrt(self.diagonal)[:, None], full_matrices=False)
        self.basis, self.spectrum = V, s**2

    @property
    def dimension(self) -> int | None:
        """See `Metric.dimension`."""
        return self.diagonal.shape[0]

    def _stretch(self, vectors, gains):
        return vectors + ((vectors @ self.basis) * (gains - 1.0)) @ self.basis.T

    def lower(self, vectors, at=None):
        """See `Metric.lower`."""
        return vectors * self.diagonal + (vectors @ self.columns) @ self.columns.T

    def raise_index(self, covectors, at=None):
        """See `Metric.raise_index`."""
        root = self.diagonal**0.5
        return self._stretch(covectors / root, 1.0 / (1.0 + self.spectrum)) / root

    def whiten(self, vectors, at=None):
        """See `Metric.whiten`."""
        return self._stretch(vectors * self.diagonal**0.5, (1.0 + self.spectrum) ** 0.5)

    def unwhiten(self, vectors, at=None):
        """See `Metric.unwhiten`."""
        return self._stretch(vectors, (1.0 + self.spectrum) ** -0.5) / self.diagonal**0.5

    def whiten_covector(self, covectors, at=None):
        """See `Metric.whiten_covector`."""
        return self._stretch(covectors / self.diagonal**0.5, (1.0 + self.spectrum) ** -0.5)


OFF_SIMPLEX = 2.0**-9  # for each action: what numbers of 16 bits make of probabilities that add up to one


def simplex_sizes(sizes: Any) -> tuple[int, ...]:
    """The number of actions of each simplex."""
    given = (sizes,) if np.ndim(sizes) == 0 else tuple(sizes)
    if not given or not all(isinstance(K, int | np.integer) and K >= 2 for K in given):
        raise ValueError(f"A simplex has a whole number of actions, at least 2; got {sizes!r}.")
    return tuple(int(K) for K in given)


class Shahshahani(Metric):
    """The Fisher metric of a product of simplices, in coordinates with each simplex's last one dropped.

    For one simplex with K actions and x in R^(K-1): M(x) = diag(1/x) + 1 1^T / x_K, M(x)^-1 = diag(x) - x x^T, so that
    the metric gradient is the replicator field. `sizes` holds K for every simplex; d = sum(K - 1). Probabilities below
    `floor` count as `floor`: the metric is infinite on the boundary.
    """

    sizes: tuple[int, ...] = eqx.field(static=True)
    floor: float = eqx.field(static=True, default=1e-9)

    def __init__(self, sizes: int | tuple[int, ...], floor: float = 1e-9):
        self.sizes = simplex_sizes(sizes)
        self.floor = floor
        if not 0 < floor < 1:
            raise ValueError(f"floor is the least probability that counts, between 0 and 1, got {floor}.")

    @property
    def constant(self) -> bool:
        """See `Metric.constant`."""
        return False

    @property
    def dimension(self) -> int | None:
        """See `Metric.dimension`."""
        return sum(self.sizes) - len(self.sizes)

    def _hint(self, dimension):
        if dimension != sum(self.sizes):
            return ""
        return " Leave each simplex's last probability out, in points and field: hpml.Simplices(sizes).reduce does."

    def check_points(self, points):
        """See `Metric.check_points`: they are probabilities, up to rounding."""
        super().check_points(points)
        start = 0
        for K in self.sizes:
            block = np.asarray(points)[:, start : start + K - 1]
            least, total = block.min(-1), block.sum(-1)
            worst = int(np.minimum(least, 1.0 - total).argmin())
            if min(least[worst], 1.0 - total[worst]) < -OFF_SIMPLEX * K:
                negative = least[worst] < -OFF_SIMPLEX * K
                what = f"an entry of {least[worst]:.2g}" if negative else f"the sum {total[worst]:.3g}"
                raise ValueError(
                    f"Under the Shahshahani metric points are probabilities, each simplex's last one left out: row "
                    f"{worst} of points has {what} where entries are at least 0 and add up to at most 1."
                )
            start += K - 1

    def _blocks(self, vectors, at):
        if at is None:
            raise ValueError("The Shahshahani metric varies with the point: pass the points as `at`.")
        xp = jnp if isinstance(vectors, jax.Array) or isinstance(at, jax.Array) else np
        start = 0
        for K in self.sizes:
            block = slice(start, start + K - 1)
            x = xp.maximum(at[..., block], self.floor)
            last = xp.maximum(1.0 - at[..., block].sum(-1, keepdims=True), self.floor)
            yield xp, vectors[..., block], x, last
            start += K - 1

    def lower(self, vectors, at=None):
        """See `Metric.lower`."""
        parts = [u / x + u.sum(-1, keepdims=True) / last for _, u, x, last in self._blocks(vectors, at)]
        return _join(parts)

    def raise_index(self, covectors, at=None):
        """See `Metric.raise_index`."""
        parts = []
        for _, h, x, last in self._blocks(covectors, at):
            # Sherman-Morrison with the floored entries, so that it inverts `lower` to rounding everywhere.
            total = x.sum(-1, keepdims=True) + last
            parts.append(x * h - x * (x * h).sum(-1, keepdims=True) / total)
        return _join(parts)

    def _gain(self, x, last):
        # M = D^1/2 (I + e v v^T) D^1/2 with D = 1/x, v the unit vector along sqrt(x), e = sum(x) / last.
        total = x.sum(-1, keepdims=True)
        return (x / total) ** 0.5, total / last

    def whiten(self, vectors, at=None):
        """See `Metric.whiten`."""
        parts = []
        for _, u, x, last in self._blocks(vectors, at):
            v, e = self._gain(x, last)
            w = u / x**0.5
            parts.append(w + ((1 + e) ** 0.5 - 1) * (w * v).sum(-1, keepdims=True) * v)
        return _join(parts)

    def unwhiten(self, vectors, at=None):
        """See `Metric.unwhiten`."""
        parts = []
        for _, w, x, last in self._blocks(vectors, at):
            v, e = self._gain(x, last)
            parts.append((w + ((1 + e) ** -0.5 - 1) * (w * v).sum(-1, keepdims=True) * v) * x**0.5)
        return _join(parts)

    def whiten_covector(self, covectors, at=None):
        """See `Metric.whiten_covector`."""
        parts = []
        for _, h, x, last in self._blocks(covectors, at):
            v, e = self._gain(x, last)
            w = h * x**0.5
            parts.append(w + ((1 + e) ** -0.5 - 1) * (w * v).sum(-1, keepdims=True) * v)
        return _join(parts)


DENSE = ("matrix", "factor", "inverse_factor")
REMEMBERED = 1 << 16  # points, at about a kilobyte each


class _Memory:
    """A function of a point that is asked, and its answer checked, once for each of some thousand points."""

    def __init__(self, function: Callable[[Any], Metric], checked: Callable[[np.ndarray], Metric]):
        self.function = function  # for what JAX traces
        self.at = functools.lru_cache(REMEMBERED)(lambda point: checked(np.frombuffer(point).copy()))

    def __call__(self, point: Any) -> Metric:
        return self.at(point.tobytes()) if isinstance(point, np.ndarray) else self.function(point)


class Varying(Metric):
    """M(x) from a function of one point that returns a constant metric (`rem:variable_metric`)."""

    function: Callable[[np.ndarray], Metric] = eqx.field(static=True)

    @property
    def constant(self) -> bool:
        """See `Metric.constant`."""
        return False

    def remembered(self) -> "Varying":
        """See `Metric.remembered`; for as long as what is returned is in use, since the function may change later."""
        return self if isinstance(self.function, _Memory) else Varying(_Memory(self.function, self._metric_at))

    def _diagonals(self, points: np.ndarray) -> Diagonal | None:
        """The metric at every point at once, where the function gives a diagonal one and JAX can trace it."""

        def diagonal(x: jax.Array) -> jax.Array:
            metric = self.function(x)  # type: ignore[arg-type]
            if type(metric) is not Diagonal:
                raise TypeError("not diagonal")
            return jnp.broadcast_to(metric.diagonal, x.shape)

        try:
            with jax.enable_x64(True):
                m = np.asarray(jax.vmap(diagonal)(jnp.asarray(points)), np.float64)
        except Exception:  # any function of a NumPy point is welcome: it is then called point by point
            return None
        if not (np.isfinite(m) & (m > 0)).all():
            return None  # the call for that point says what is wrong
        rows = Diagonal(np.ones(points.shape[1]))
        return eqx.tree_at(lambda metric: metric.diagonal, rows, m)

    def _metric_at(self, point: np.ndarray) -> Metric:
        metric = self.function(point)
        if isinstance(self.function, _Memory):
            return metric
        if not isinstance(metric, Metric) or not metric.constant:
            raise ValueError(
                "The function of hpml.Varying must give a constant metric such as hpml.Diagonal(m), "
                f"got {kind_of(metric)}."
            )
        metric.check(len(point))
        return metric

    def _each(self, verb: str, vectors, at):
        if at is None:
            raise ValueError("This metric varies with the point: pass the points as `at`.")
        vectors, at = np.asarray(vectors, np.float64), np.asarray(at, np.float64)
        vectors = np.broadcast_to(vectors, np.broadcast_shapes(vectors.shape, at.shape))
        points = at.reshape(-1, at.shape[-1])
        # Vectors along leading axes share their points, and so the metric there.
        if at.ndim < vectors.ndim and vectors.shape[vectors.ndim - at.ndim :] == at.shape:
            rows = vectors.reshape(-1, *points.shape)
        else:
            points = np.broadcast_to(at, vectors.shape).reshape(-1, at.shape[-1])
            rows = vectors.reshape(1, *points.shape)
        diagonals = self._diagonals(points)
        if diagonals is not None:
            return np.asarray(getattr(diagonals, verb)(rows)).reshape(vectors.shape)
        metrics = [self._metric_at(x) for x in points]
        if metrics and all(type(metric) is Dense for metric in metrics):
            parts = [np.stack([getattr(metric, name) for metric in metrics]) for name in DENSE]
            at_once = eqx.tree_at(lambda dense: [getattr(dense, name) for name in DENSE], metrics[0], parts)
            return np.asarray(getattr(at_once, verb)(rows[..., None, :])).reshape(vectors.shape)
        out = np.empty(rows.shape)
        for i, metric in enumerate(metrics):
            out[:, i] = getattr(metric, verb)(rows[:, i])
        return out.reshape(vectors.shape)

    def lower(self, vectors, at=None):
        """See `Metric.lower`."""
        return self._each("lower", vectors, at)

    def raise_index(self, covectors, at=None):
        """See `Metric.raise_index`."""
        return self._each("raise_index", covectors, at)

    def whiten(self, vectors, at=None):
        """See `Metric.whiten`."""
        return self._each("whiten", vectors, at)

    def unwhiten(self, vectors, at=None):
        """See `Metric.unwhiten`."""
        return self._each("unwhiten", vectors, at)

    def whiten_covector(self, covectors, at=None):
        """See `Metric.whiten_covector`."""
        return self._each("whiten_covector", covectors, at)


def _join(parts):
    xp = jnp if any(isinstance(part, jax.Array) for part in parts) else np
    return xp.concatenate(parts, axis=-1)
