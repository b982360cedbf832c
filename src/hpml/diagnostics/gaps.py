"""Gaps of the variational inequality: Stampacchia (`def:gap`), Minty (`rem:minty_app`), and the natural residual.

A game's field U has the sign of ascent and the operator of the inequality (`def:vi`) is F = -U, so that
Gap(x) = max_u <F(x), x - u> = max_u <U(x), u - x>, with the maximum over the domain taken exactly.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hpml.games.game import Game, as_points, evaluate
from hpml.geometry.arrays import Array, in_double
from hpml.geometry.domain import Domain, Space

STEPS = 400  # of a local search; its steps shrink from half the diameter to 1e-6 of it
CONCAVE_STEPS = 3000  # of accelerated ascent with restarts
CLOSED = 1e-8  # bounds this close, relative to the size of the problem, count as one value


class MintyGap(eqx.Module):
    """`value` was reached and is a lower bound of the gap; `upper` is an upper bound, infinite where none is known.

    `method` is "linear" (exact), "concave" (solved to `upper - value`) or "search" (the best of many local searches).
    """

    value: Float[np.ndarray, " n"]
    upper: Float[np.ndarray, " n"]
    method: str

    @property
    def exact(self) -> bool:
        """Whether value and upper bound agree."""
        return bool((self.upper - self.value <= CLOSED * (1.0 + np.abs(self.value))).all())


@in_double
def _linear_gap(domain: Domain, points: Array, covectors: Array) -> Array:
    return ((domain.maximise(covectors) - points) * covectors).sum(-1)


def linear_gap(domain: Domain, points: Any, covectors: Any) -> Float[np.ndarray, "*n"]:
    """max_u <h, u - x> over the domain, at each point x with its covector h."""
    return _linear_gap(domain, np.asarray(points, np.float64), np.asarray(covectors, np.float64))


def stampacchia_gap(game: Game, points: Any) -> Float[np.ndarray, " n"]:
    """Gap(x) = max_u <U(x), u - x> over the domain: zero at solutions and nowhere else (`lem:gap_zero_vi`)."""
    return linear_gap(game.domain, as_points(game, points), evaluate(game, points))


@in_double
def _natural_residual(domain: Domain, points: Array, field: Array, step: float) -> Array:
    return jnp.linalg.norm(domain.retract(points + step * field) - points, axis=-1) / step


def natural_residual(game: Game, points: Any, step: float = 1.0) -> Float[np.ndarray, " n"]:
    """|x - P(x + step U(x))| / step: zero at solutions and nowhere else, on unbounded domains too."""
    if not step > 0:
        raise ValueError(f"step must be positive, got {step}.")
    return _natural_residual(game.domain, as_points(game, points), evaluate(game, points), float(step))


def minty_gap(game: Game, points: Any, starts: int = 32, seed: int = 0) -> MintyGap:
    """max_u <U(u), u - x> over the domain, at each point x.

    Where U is affine with a skew Jacobian (bilinear zero-sum games) this is a linear problem; where its Jacobian's
    symmetric part is negative semidefinite (monotone games) a concave one. Anything else is searched from `starts`
    uniform points, as many extreme ones and x itself, and the answer is a lower bound. U counts as affine where its
    Jacobians at `starts` points of the domain agree.
    """
    if isinstance(game.domain, Space):
        raise ValueError("The Minty gap needs a bounded domain such as hpml.Ball: on R^d it is infinite.")
    X = as_points(game, points)
    seeds = spread(game.domain, starts, starts, seed)
    jacobians = _jacobians(game, seeds[:starts])
    J = jacobians.mean(0)
    size = np.linalg.norm(J, 2)
    if np.abs(jacobians - J).max() > 1e-9 * (size + 1e-300):
        value = _search(game, X, seeds, game.domain.diameter)
        return MintyGap(value, np.full(len(X), np.inf), "search")
    S = np.linalg.eigvalsh((J + J.T) / 2)
    if np.abs(S).max() <= 1e-12 * size:
        value = _at_linear_maximum(game, X)
        return MintyGap(value, value, "linear")
    if S.max() <= 1e-12 * size:
        value, upper = _concave(game, X, float(0.5 / np.abs(S).max()))
        return MintyGap(value, upper, "concave")
    value = _search(game, X, seeds, game.domain.diameter)
    return MintyGap(value, np.full(len(X), np.inf), "search")


def spread(domain: Domain, uniform: int, extreme: int, seed: int = 0) -> Float[np.ndarray, "n d"]:
    """Points of a bounded domain: `uniform` from its uniform law, then `extreme` that maximise random covectors."""
    return _spread(domain, uniform, extreme, np.asarray(seed % 2**32, np.uint32))


@in_double
def _spread(domain: Domain, uniform: int, extreme: int, seed: Array) -> Array:
    inside, outward = jax.random.split(jax.random.key(seed))
    corners = domain.maximise(jax.random.normal(outward, (extreme, domain.dimension)))
    return jnp.concatenate([domain.sample(inside, uniform), corners])


def _objective(game: Game, u: Array, x: Array) -> Array:
    return game.field(u) @ (u - x)


@in_double
def _jacobians(game: Game, points: Array) -> Array:
    return jax.vmap(jax.jacfwd(game.field))(points)


@in_double
def _at_linear_maximum(game: Game, points: Array) -> Array:
    def one(x):
        h = jax.grad(_objective, argnums=1)(game, x, x)  # the same at every point
        return _objective(game, game.domain.maximise(h), x)

    return jax.vmap(one)(points)


@in_double
def _concave(game: Game, points: Array, step: float) -> tuple[Array, Array]:
    def one(x):
        slope = jax.grad(_objective, argnums=1)

        def move(state, _):
            u, ahead, t = state
            h = slope(game, ahead, x)
            after = game.domain.retract(ahead + step * h)
            t_after = (1.0 + jnp.sqrt(1.0 + 4.0 * t**2)) / 2.0
            back = h @ (after - u) < 0  # momentum that points downhill is dropped
            t_after = jnp.where(back, 1.0, t_after)
            momentum = jnp.where(back, 0.0, (t - 1.0) / t_after)
            return (after, after + momentum * (after - u), t_after), None

        (u, _, _), _ = jax.lax.scan(move, (x, x, jnp.ones_like(x[0])), length=CONCAVE_STEPS)
        h = slope(game, u, x)
        value = _objective(game, u, x)
        # A concave function lies below its tangent plane, whose maximum is linear.
        return value, value + h @ (game.domain.maximise(h) - u)

    return jax.vmap(one)(points)


@in_double
def _search(game: Game, points: Array, seeds: Array, diameter: float) -> Array:
    lengths = 0.5 * diameter * jnp.logspace(0.0, -6.0, STEPS)

    def climb(x, u):
        def move(state, length):
            u, best = state
            h = jax.grad(_objective, argnums=1)(game, u, x)
            u = game.domain.retract(u + length * h / jnp.maximum(jnp.linalg.norm(h), 1e-300))
            return (u, jnp.maximum(best, _objective(game, u, x))), None

        return jax.lax.scan(move, (u, _objective(game, u, x)), lengths)[0][1]

    def one(x):
        return jnp.maximum(0.0, jax.vmap(lambda u: climb(x, u))(jnp.concatenate([seeds, x[None]])).max())

    return jax.lax.map(one, points)
