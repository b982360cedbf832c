"""Circulation of a field around closed curves, and the bound by its residual (`prop:circulation_residual`).

Circ_F(gamma) = int_0^1 <F(gamma(t)), gamma'(t)>_M dt vanishes for metric gradients. It is the residual's alone, and
|Circ_F| <= (E |R(gamma)|_M^2)^1/2 (E |gamma'|_M^2)^1/2. The norm of gamma' is the one of the paper's proof; its
statement has M^-1 there, which M = 4I breaks.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from hpml.diagnostics.jacobian import Field, one_form, traceable
from hpml.geometry.arrays import Array, as_finite, as_matrix, in_double
from hpml.geometry.metric import Euclidean, Metric

Sampled = Callable[[np.ndarray], Any]  # a field at many points: (n, d) -> (n, d)

NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
DOUBLINGS = 12  # of the number of panels a piece, at most 4096 panels with 8 nodes each


class Circulation(eqx.Module):
    """A loop integral: its `value`, the quadrature's `error`, and the `bound` by the residual along the loop."""

    value: float
    error: float
    bound: float

    @property
    def holds(self) -> bool:
        """Whether the bound holds within the quadrature's error."""
        return abs(self.value) <= self.bound + self.error


class Loop(eqx.Module):
    """A closed curve gamma on [0, 1] in smooth pieces."""

    @abstractmethod
    def pieces(self, metric: Metric) -> Float[np.ndarray, " corners"]:
        """The times where smooth pieces begin and end."""

    @abstractmethod
    def at(self, times: Float[np.ndarray, " n"], metric: Metric) -> tuple[np.ndarray, np.ndarray]:
        """The points and velocities at each time."""


class Polygon(Loop):
    """Straight edges between the vertices in order and back to the first, at constant speed: the tightest bound."""

    vertices: Float[Array, "k d"]

    def __init__(self, vertices: Any):
        self.vertices = as_matrix(vertices, "vertices")
        if len(self.vertices) < 2:
            raise ValueError(f"A polygon needs at least two vertices, got {len(self.vertices)}.")

    def _edges(self) -> np.ndarray:
        return np.roll(self.vertices, -1, axis=0) - self.vertices

    def pieces(self, metric):
        """See `Loop.pieces`."""
        lengths = np.asarray(metric.distance(self.vertices, np.roll(self.vertices, -1, axis=0)))
        if not lengths.sum() > 0:
            raise ValueError("The polygon's vertices are all one point: give a loop that goes somewhere.")
        return np.concatenate([[0.0], np.cumsum(lengths) / lengths.sum()])

    def at(self, times, metric):
        """See `Loop.at`."""
        ends = self.pieces(metric)
        which = np.clip(np.searchsorted(ends, times, side="right") - 1, 0, len(ends) - 2)
        duration = np.diff(ends)[which][:, None]
        edges = self._edges()[which]
        return self.vertices[which] + (times - ends[which])[:, None] / duration * edges, edges / duration


class Smooth(Loop):
    """t -> gamma(t) in JAX for one time t in [0, 1], with gamma(1) = gamma(0)."""

    function: Callable[..., Any]

    def pieces(self, metric):
        """See `Loop.pieces`."""
        (first, last), _ = self.at(np.array([0.0, 1.0]), metric)
        if np.abs(first - last).max() > 1e-9 * (1.0 + np.abs(first).max()):
            raise ValueError("The curve is not closed: gamma(0) and gamma(1) must be one point.")
        return np.array([0.0, 1.0])

    def at(self, times, metric):
        """See `Loop.at`."""
        return _along(self.function, times)


@in_double
def _along(function: Callable, times: Array) -> tuple[Array, Array]:
    return jax.vmap(lambda t: jax.jvp(function, (t,), (t * 0 + 1,)))(times)


def circulation(
    field: Sampled,
    loop: Loop | Float[Array, "k d"],
    metric: Metric | None = None,
    residual: Sampled | None = None,
    tolerance: float = 1e-9,
) -> Circulation:
    """The loop integral of a field, with Gauss panels doubled until two answers agree within `tolerance`.

    - `field` and `residual` take many points, as `Projection.at` does; for a game `lambda x: evaluate(game, x)`.
    - `loop` is a `Polygon`, a `Smooth` curve, or the vertices of a polygon.
    - `residual` is R = F - (a metric gradient). Without it the bound has F in its place, the worst that R can be.
    - `tolerance` is relative to the bound that has F in R's place.
    """
    metric = Euclidean() if metric is None else metric
    gamma = loop if isinstance(loop, Loop) else Polygon(loop)
    ends = gamma.pieces(metric)
    parts, before = [field] if residual is None else [field, residual], np.inf
    for doubling in range(DOUBLINGS + 1):
        times, weights = _panels(ends, 2**doubling)
        points, velocity = gamma.at(times, metric)
        vectors = [_values(part, points) for part in parts]
        value = float(weights @ np.asarray(metric.inner(vectors[0], velocity, points)))
        sizes = [np.sqrt(weights @ np.asarray(metric.inner(v, v, points))) for v in (*vectors, velocity)]
        error = abs(value - before)
        if error <= tolerance * sizes[0] * sizes[-1]:
            break
        before = value
    return Circulation(value, float(error), float(sizes[-2] * sizes[-1]))


def parallelogram(point: Any, u: Any, v: Any, size: float = 1e-3) -> Polygon:
    """The loop x, x + size u, x + size (u + v), x + size v: along u first, so that it turns from u to v."""
    x, a, b = (as_finite(part, name) for part, name in ((point, "point"), (u, "u"), (v, "v")))
    return Polygon(np.stack([x, x + size * a, x + size * (a + b), x + size * b]))


def local_circulation(
    field: Field, points: Any, u: Any, v: Any, metric: Metric | None = None
) -> Float[np.ndarray, " n"]:
    """2 <B(x) u, v> at each point, the circulation around a small parallelogram over its size squared
    (`rem:residual_quantitative`); `field` is a JAX function of one point.

    The remark's two-agent form, h^T (d_2 g_1 - d_1 g_2^T) k, is this with u = (0, k) and v = (h, 0).
    """
    X, metric = as_matrix(points, "points"), traceable(metric)
    U, V = (np.broadcast_to(as_finite(part, name), X.shape) for part, name in ((u, "u"), (v, "v")))
    return _local(field, X, np.array(U), np.array(V), metric)


@in_double
def _local(field: Field, points: Array, u: Array, v: Array, metric: Metric) -> Array:
    def one(x, u, v):
        form = one_form(field, metric)
        return jax.jvp(form, (x,), (u,))[1] @ v - jax.jvp(form, (x,), (v,))[1] @ u

    return jax.vmap(one)(points, u, v)


def _panels(ends: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss nodes and weights on `count` equal panels of each piece that takes any time."""
    starts, spans = ends[:-1][np.diff(ends) > 0], np.diff(ends)[np.diff(ends) > 0] / count
    corners = (starts[:, None] + spans[:, None] * np.arange(count)).ravel()
    spans = np.repeat(spans, count)
    times = corners[:, None] + spans[:, None] * (NODES + 1) / 2
    return times.ravel(), (spans[:, None] * WEIGHTS / 2).ravel()


def _values(field: Sampled, points: np.ndarray) -> np.ndarray:
    values = as_matrix(field(points), "field")
    if values.shape != points.shape:
        raise ValueError(f"The field must give one vector a point, {points.shape}, got {values.shape}.")
    return values
