"""The contract of every game: a joint update field on a domain, and what is known about it (`subsec:mg`).

The field has the sign of ascent, U = (grad_i J_i)_i; the operator of the variational inequality is -U. A family is one
file of `families/` with a function `examples()` that names games of it; contract tests run them all.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array, as_matrix, in_double
from hpml.geometry.domain import Domain

OUTSIDE = 1e-6  # a distance from the domain that rounding explains

Strategies = Sequence[Float[Array, "*batch _"]]  # one array an agent


class Game(eqx.Module):
    """Agents with coordinates in one domain; arrays are kept as NumPy float64, so that either precision can be used."""

    @property
    @abstractmethod
    def domain(self) -> Domain:
        """Where the joint strategy lives."""

    @property
    @abstractmethod
    def blocks(self) -> tuple[int, ...]:
        """How many coordinates each agent has, in order."""

    @abstractmethod
    def field(self, point: Float[Array, " d"]) -> Float[Array, " d"]:
        """Each agent's own ascent direction, stacked: pure JAX, differentiable, at one point."""

    @property
    def equilibrium(self) -> Float[Array, " d"] | None:
        """A known equilibrium, or None."""
        return None

    @property
    def labels(self) -> tuple[tuple[str, ...], ...] | None:
        """The names of each agent's actions, in the order of `strategies`, or None where agents have no actions."""
        return None

    def strategies(self, point: Float[Array, " d"]) -> Strategies | None:
        """Each agent's probabilities over its actions, or None where agents have no actions.

        Where agents choose in several states there is one entry for each agent and state, and one of `labels`.
        """
        return None

    def returns(self, point: Float[Array, " d"]) -> Float[Array, " agents"] | None:
        """What each agent gets: block i of the field is the gradient of entry i. None where the field is no gradient
        of payoffs."""
        return None

    def regrets(self, point: Float[Array, " d"]) -> Float[Array, " agents"] | None:
        """What each agent could gain by its best reply, or None where the game has no payoffs."""
        return None


@in_double
def _field(game: Game, points: Array) -> Array:
    return jax.vmap(game.field)(points)


@in_double
def _retract(domain: Domain, points: Array) -> Array:
    return domain.retract(points)


@in_double
def _regrets(game: Game, points: Array) -> Array | None:
    return jax.vmap(lambda x: game.regrets(x))(points)


def evaluate(game: Game, points: Any) -> Float[np.ndarray, "n d"]:
    """The field at many points, in float64."""
    return _field(game, as_points(game, points))


def exploitability(game: Game, points: Any) -> Float[np.ndarray, " n"]:
    """The sum over agents of what each could gain by its best reply: 0 at equilibria and nowhere else."""
    X = as_feasible(game, points)
    regrets = _regrets(game, X)
    if regrets is None:
        raise ValueError(f"{type(game).__name__} has no payoffs, so no exploitability: use the Stampacchia gap.")
    return regrets.sum(-1)


def has_payoffs(game: Game) -> bool:
    """Whether agents have payoffs, so that there is an exploitability."""
    return jax.eval_shape(game.regrets, np.zeros(game.domain.dimension)) is not None


def as_points(game: Game, points: Any) -> Float[np.ndarray, "n d"]:
    """The points in float64, or a `ValueError` where they do not fit the game."""
    X = as_matrix(points, "points")
    if X.shape[1] != game.domain.dimension:
        raise ValueError(f"points must have {game.domain.dimension} columns for this game, got {X.shape[1]}.")
    return X


def as_feasible(game: Game, points: Any) -> Float[np.ndarray, "n d"]:
    """The points in float64, or a `ValueError` where one lies outside the game's domain."""
    X = as_points(game, points)
    far = np.linalg.norm(X - _retract(game.domain, X), axis=1)
    if far.max(initial=0.0) > OUTSIDE:
        raise ValueError(
            f"Point {int(far.argmax())} lies {far.max():.2g} outside the game's domain (such as strategies off the "
            "simplex): use game.domain.retract first."
        )
    return X
