"""Feasible sets: where iterates may be, how they return, and the uniform law on them (`ass:smooth`).

A domain knows its `diameter`, its Euclidean projection `retract`, the point that maximises a linear function
(`maximise`), and how to draw from its uniform law (`sample`), which makes it a measure for `hpml.project(measure=...)`.
"""

import itertools
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
import scipy.stats
from jaxtyping import Float

from hpml.geometry.arrays import Array, as_finite
from hpml.geometry.metric import simplex_sizes

SOBOL = 1000  # coordinates up to which evenly spread sets pay; scipy has 21,201

Points = Float[Array, "*batch d"]
Parts = Sequence[Float[Array, "*batch _"]]  # each simplex has its own number of actions


class Domain(eqx.Module):
    """A closed convex subset of R^d."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The number of coordinates."""

    @property
    @abstractmethod
    def diameter(self) -> float:
        """The largest Euclidean distance between two of its points."""

    @abstractmethod
    def retract(self, points: Points) -> Points:
        """The closest point of the domain."""

    @abstractmethod
    def maximise(self, covectors: Points) -> Points:
        """A point u of the domain with the largest <h, u>."""

    @abstractmethod
    def sample(self, key: Any, count: int) -> Float[Array, "n d"]:
        """Independent points from the uniform law."""

    def spread(self, key: Any, count: int) -> Float[Array, "n d"]:
        """Points that fill the domain more evenly than independent ones, for integrals over the uniform law."""
        return self.sample(key, count)


class Box(Domain):
    """All x with low <= x <= high."""

    low: Float[Array, " d"]
    high: Float[Array, " d"]

    def __init__(self, low: Any, high: Any):
        a, b = np.atleast_1d(as_finite(low, "low"), as_finite(high, "high"))
        if a.ndim != 1 or b.ndim != 1 or (len(a) != len(b) and 1 not in (len(a), len(b))):
            raise ValueError(f"A box needs low and high of one shape (d,), got {a.shape} and {b.shape}.")
        a, b = np.broadcast_arrays(a, b)
        self.low, self.high = a.copy(), b.copy()
        if not (self.low < self.high).all():
            raise ValueError("A box needs low < high in every coordinate.")

    @property
    def dimension(self) -> int:
        """See `Domain.dimension`."""
        return len(self.low)

    @property
    def diameter(self) -> float:
        """See `Domain.diameter`."""
        return float(np.linalg.norm(self.high - self.low))

    def retract(self, points):
        """See `Domain.retract`."""
        return jnp.clip(points, self.low, self.high)

    def maximise(self, covectors):
        """See `Domain.maximise`."""
        return jnp.where(covectors > 0, self.high, self.low)

    def sample(self, key, count):
        """See `Domain.sample`."""
        return jax.random.uniform(key, (count, self.dimension)) * (self.high - self.low) + self.low

    def spread(self, key, count):
        """See `Domain.spread`."""
        return _even_cube(key, count, self.dimension) * (self.high - self.low) + self.low


class Ball(Domain):
    """All x with |x - centre| <= radius."""

    centre: Float[Array, " d"]
    radius: float

    def __init__(self, centre: Any, radius: float = 1.0):
        self.centre = np.atleast_1d(as_finite(centre, "centre"))
        if self.centre.ndim != 1:
            raise ValueError(f"A ball needs a centre of shape (d,), got {self.centre.shape}.")
        self.radius = float(radius)
        if not 0 < self.radius < np.inf:
            raise ValueError("A ball needs a positive radius, and a finite one.")

    @property
    def dimension(self) -> int:
        """See `Domain.dimension`."""
        return len(self.centre)

    @property
    def diameter(self) -> float:
        """See `Domain.diameter`."""
        return 2.0 * self.radius

    def retract(self, points):
        """See `Domain.retract`."""
        step = points - self.centre
        length = jnp.linalg.norm(step, axis=-1, keepdims=True)
        return self.centre + step * jnp.minimum(1.0, self.radius / jnp.maximum(length, self.radius))

    def maximise(self, covectors):
        """See `Domain.maximise`."""
        length = jnp.linalg.norm(covectors, axis=-1, keepdims=True)
        return self.centre + self.radius * covectors / jnp.where(length > 0, length, 1.0)

    def sample(self, key, count):
        """See `Domain.sample`."""
        turn, stretch = jax.random.split(key)
        steps = jax.random.normal(turn, (count, self.dimension))
        lengths = jax.random.uniform(stretch, (count, 1)) ** (1.0 / self.dimension)
        return self.centre + self.radius * lengths * steps / jnp.linalg.norm(steps, axis=-1, keepdims=True)

    def spread(self, key, count):
        """See `Domain.spread`."""
        cube = _even_cube(key, count, self.dimension + 1)
        steps = scipy.special.ndtri(cube[:, :-1])
        lengths = cube[:, -1:] ** (1.0 / self.dimension)
        return self.centre + self.radius * lengths * steps / np.linalg.norm(steps, axis=-1, keepdims=True)


class Simplices(Domain):
    """A product of probability simplices in `sum(sizes) - len(sizes)` coordinates.

    - `coordinates="dropped"`: each probability vector without its last entry.
    - `coordinates="orthonormal"`: p = 1/K + B y with B an orthonormal basis of the simplex's tangent space. Lengths and
      angles are then those of the probability vectors, and the uniform strategy is the origin.

    `complete` gives the probability vectors of a point, `reduce` the point of probability vectors, `reduce_covectors`
    the covector in these coordinates of one covector a simplex. The retraction is the Euclidean projection of the
    complete vectors, which in orthonormal coordinates is the Euclidean projection of the points themselves.
    """

    sizes: tuple[int, ...] = eqx.field(static=True)
    coordinates: str = eqx.field(static=True)

    def __init__(self, sizes: int | tuple[int, ...], coordinates: str = "dropped"):
        self.sizes = simplex_sizes(sizes)
        if coordinates not in ("dropped", "orthonormal"):
            raise ValueError(f'coordinates must be "dropped" or "orthonormal", got {coordinates!r}.')
        self.coordinates = coordinates

    @property
    def dimension(self) -> int:
        """See `Domain.dimension`."""
        return sum(self.sizes) - len(self.sizes)

    @property
    def diameter(self) -> float:
        """See `Domain.diameter`: two vertices are sqrt(2) apart, and 1 where one of two coordinates is dropped."""
        short = 1.0 if self.coordinates == "dropped" else 2.0
        return float(np.sqrt(sum(2.0 if K > 2 else short for K in self.sizes)))

    def split(self, points: Points) -> Parts:
        """The coordinates of each simplex."""
        return jnp.split(jnp.asarray(points), np.cumsum([K - 1 for K in self.sizes])[:-1], axis=-1)

    def complete(self, points: Points) -> Parts:
        """The full probability vectors, one array a simplex."""
        if self.coordinates == "dropped":
            return [jnp.concatenate([x, 1.0 - x.sum(-1, keepdims=True)], -1) for x in self.split(points)]
        return [1.0 / K + y @ tangent_basis(K).T for y, K in zip(self.split(points), self.sizes, strict=True)]

    def reduce(self, parts: Parts) -> Points:
        """The coordinates of full probability vectors, from one array (..., K) a simplex."""
        self._check(parts)
        if self.coordinates == "dropped":
            return jnp.concatenate([x[..., :-1] for x in parts], -1)
        return self.reduce_covectors(parts)  # B^T 1 = 0, so the centre drops out

    def _check(self, parts: Parts) -> None:
        found = [jnp.shape(part)[-1:] for part in parts]
        alone = hasattr(parts, "shape")
        if alone or found != [(K,) for K in self.sizes]:
            wanted = ", ".join(f"(..., {K})" for K in self.sizes)
            given = (
                f"one array of shape {getattr(parts, 'shape', ())}" if alone else [jnp.shape(part) for part in parts]
            )
            raise ValueError(f"There must be a list with one array a simplex, of shapes {wanted}; got {given}.")

    def reduce_covectors(self, parts: Parts) -> Points:
        """The covector in these coordinates, such as an agent's payoff gradient, from one covector a simplex."""
        self._check(parts)
        if self.coordinates == "dropped":
            return jnp.concatenate([h[..., :-1] - h[..., -1:] for h in parts], -1)
        return jnp.concatenate([h @ tangent_basis(h.shape[-1]) for h in parts], -1)

    def complete_covectors(self, covectors: Points) -> Parts:
        """Covectors on the probability vectors that act on tangent vectors as the given ones do, one a simplex."""
        if self.coordinates == "dropped":
            return [jnp.concatenate([h, jnp.zeros_like(h[..., :1])], -1) for h in self.split(covectors)]
        return [h @ tangent_basis(K).T for h, K in zip(self.split(covectors), self.sizes, strict=True)]

    def retract(self, points):
        """See `Domain.retract`."""
        return self._in_runs(points, lambda one, x: one.reduce([project_simplex(one.complete(x)[0])]))

    def maximise(self, covectors):
        """See `Domain.maximise`."""

        def vertex(one, x):
            (h,) = one.complete_covectors(x)
            return one.reduce([jax.nn.one_hot(jnp.argmax(h, -1), h.shape[-1], dtype=h.dtype)])

        return self._in_runs(covectors, vertex)

    def _in_runs(self, points, function):
        """`function` of one simplex for all, neighbours of one size at once: policies have hundreds of states."""
        runs = [(K, len(list(run))) for K, run in itertools.groupby(self.sizes)]
        ends = np.cumsum([(K - 1) * count for K, count in runs])[:-1]
        out = []
        for (K, count), x in zip(runs, jnp.split(jnp.asarray(points), ends, axis=-1), strict=True):
            table = x.reshape(*x.shape[:-1], count, K - 1)
            out.append(function(Simplices(K, self.coordinates), table).reshape(x.shape))
        return jnp.concatenate(out, -1)

    def sample(self, key, count):
        """See `Domain.sample`."""
        keys = jax.random.split(key, len(self.sizes))
        # Exponentials over their sum are uniform on the simplex, and compile far faster than a Dirichlet.
        draws = [jax.random.exponential(k, (count, K)) for k, K in zip(keys, self.sizes, strict=True)]
        return self.reduce([e / e.sum(-1, keepdims=True) for e in draws])

    def spread(self, key, count):
        """See `Domain.spread`: the gaps between sorted numbers are uniform on the simplex."""
        parts = []
        for cube in np.split(_even_cube(key, count, self.dimension), np.cumsum([K - 1 for K in self.sizes])[:-1], 1):
            parts.append(np.diff(np.sort(cube, axis=1), axis=1, prepend=0.0, append=1.0))
        with jax.enable_x64(True):
            return np.asarray(self.reduce(parts))


class Space(Domain):
    """All of R^d: nothing to retract to, no diameter, no uniform law."""

    size: int = eqx.field(static=True)

    @property
    def dimension(self) -> int:
        """See `Domain.dimension`."""
        return self.size

    @property
    def diameter(self) -> float:
        """See `Domain.diameter`."""
        return float("inf")

    def retract(self, points):
        """See `Domain.retract`."""
        return points

    def maximise(self, covectors):
        """See `Domain.maximise`."""
        raise ValueError("A linear function has no maximum on all of R^d: give a bounded domain such as hpml.Ball.")

    def sample(self, key, count):
        """See `Domain.sample`."""
        raise ValueError("R^d has no uniform law: give a bounded domain such as hpml.Ball, or a sampler.")


def _even_cube(key: Any, count: int, dimension: int) -> Float[np.ndarray, "n d"]:
    """A scrambled Sobol set in the open unit cube; the same points for the same key."""
    seed = np.asarray(jax.random.bits(key, (4,), "uint32"))
    if dimension > SOBOL:
        return np.random.default_rng(seed).uniform(size=(count, dimension))
    # Whole powers of two keep the set balanced; what is too many is cut off its end.
    cube = scipy.stats.qmc.Sobol(dimension, rng=np.random.default_rng(seed)).random_base2(int(np.ceil(np.log2(count))))
    return np.clip(cube[:count], 1e-12, 1.0 - 1e-12)


def tangent_basis(actions: int) -> Float[np.ndarray, "K K-1"]:
    """An orthonormal basis of {v : sum v = 0}, one column a direction (Helmert's)."""
    k = np.arange(1, actions)
    basis = np.triu(np.ones((actions, actions - 1)))
    basis[k, k - 1] = -k
    return basis / np.sqrt(k * (k + 1.0))


def project_simplex(points: Points) -> Points:
    """The closest probability vector in the Euclidean norm, by sorting."""
    K = points.shape[-1]
    ordered = -jnp.sort(-points, axis=-1)
    excess = (jnp.cumsum(ordered, -1) - 1.0) / jnp.arange(1, K + 1)
    count = (ordered > excess).sum(-1, keepdims=True)
    return jnp.maximum(points - jnp.take_along_axis(excess, count - 1, -1), 0.0)
