"""The logistic 2x2 game: strategies are logits (a, b), shown on (p, q) = (sigma(a), sigma(b)).

p and q are the probabilities of each agent's first action. One agent wants to match, the other to differ (`turn`), and
both like to match by `coordination`, so (0, 0) is always an equilibrium: a centre of circles, or a saddle.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hpml.games.game import Game
from hpml.geometry.arrays import Array, as_finite, as_matrix, in_double
from hpml.geometry.domain import Box, Domain


class Logistic(Game):
    """Payoffs of two agents with two actions each, (2, 2, 2), and logits between -reach and reach."""

    payoffs: Float[Array, "2 2 2"]
    reach: float
    names: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    rest: Float[Array, " 2"] | None

    def __init__(self, payoffs: Any, reach: float = 4.0, labels: Any = None):
        self.payoffs = as_finite(payoffs, "payoffs")
        if self.payoffs.shape != (2, 2, 2):
            raise ValueError(f"payoffs must have shape (2, 2, 2), agents first, got {self.payoffs.shape}.")
        if not 0 < reach < np.inf:
            raise ValueError(f"reach must be positive and finite, got {reach}.")
        self.reach = float(reach)
        self.names = tuple(tuple(str(name) for name in part) for part in labels or [("heads", "tails")] * 2)
        if [len(part) for part in self.names] != [2, 2]:
            raise ValueError("labels must name two actions for each of two agents.")
        self.rest = self._interior()

    def _interior(self) -> np.ndarray | None:
        """The logits at which both agents are indifferent, where there are such in the box."""
        A, B = self.payoffs[0], self.payoffs[1].T
        mixes = []
        for M in (B, A):  # p makes agent 2 indifferent, q agent 1
            slope = M[0, 0] - M[1, 0] - M[0, 1] + M[1, 1]
            mix = (M[1, 1] - M[0, 1]) / slope if slope else np.nan
            mixes.append(mix if 0 < mix < 1 else np.nan)
        logits = np.log(np.asarray(mixes)) - np.log1p(-np.asarray(mixes))
        return logits if (abs(logits) <= self.reach).all() else None

    @property
    def domain(self) -> Domain:
        """See `Game.domain`."""
        return Box(np.full(2, -self.reach), np.full(2, self.reach))

    @property
    def blocks(self):
        """See `Game.blocks`."""
        return (1, 1)

    @property
    def equilibrium(self):
        """See `Game.equilibrium`."""
        return self.rest

    @property
    def labels(self):
        """See `Game.labels`."""
        return self.names

    def strategies(self, point):
        """See `Game.strategies`."""
        p = jax.nn.sigmoid(point)
        return [jnp.stack([p[..., i], 1.0 - p[..., i]], -1) for i in range(2)]

    def returns(self, point):
        """See `Game.returns`."""
        p, q = self.strategies(point)
        return jnp.stack([p @ u @ q for u in jnp.asarray(self.payoffs)])

    def slopes(self, shown: Float[Array, " 2"]) -> Float[Array, " 2"]:
        """What each agent gains by one more unit of probability on its first action, at (p, q)."""
        A, B = self.payoffs[0], self.payoffs[1].T
        p, q = shown[0], shown[1]
        return jnp.stack([(A[0] - A[1]) @ jnp.stack([q, 1 - q]), (B[0] - B[1]) @ jnp.stack([p, 1 - p])])

    def field(self, point):
        """See `Game.field`: sigma' times the slopes."""
        shown = jax.nn.sigmoid(point)
        return shown * (1.0 - shown) * self.slopes(shown)

    def regrets(self, point):
        """See `Game.regrets`: against all mixed strategies, also those outside the box."""
        shown = jax.nn.sigmoid(point)
        slopes = self.slopes(shown)
        return jnp.where(slopes > 0, (1.0 - shown) * slopes, -shown * slopes)

    def pushed_field(self, shown: Float[Array, " 2"]) -> Float[Array, " 2"]:
        """How (p, q) moves when the logits follow the field: the pushforward sigma' F at one (p, q)."""
        return (shown * (1.0 - shown)) ** 2 * self.slopes(shown)


@in_double
def _push(game: Logistic, shown: Array) -> Array:
    return jax.vmap(game.pushed_field)(shown)


def show(points: Any) -> Float[np.ndarray, "n 2"]:
    """Logits (a, b) as probabilities (p, q) of the first actions."""
    X = as_matrix(points, "points")
    if X.shape[1] != 2:
        raise ValueError(f"points must have 2 columns, the logits (a, b), got {X.shape[1]}.")
    return in_double(jax.nn.sigmoid)(X)


def pushed_field(game: Logistic, shown: Any) -> Float[np.ndarray, "n 2"]:
    """The field on (p, q) at many of them, in float64."""
    P = as_matrix(shown, "The probabilities (p, q)")
    if P.shape[1] != 2 or (P < 0).any() or (P > 1).any():
        raise ValueError("The probabilities (p, q) must be two columns of numbers between 0 and 1.")
    return _push(game, P)


def logistic(turn: float = 1.0, coordination: float = 0.0, reach: float = 4.0) -> Logistic:
    """Matching pennies of size `turn`, plus a common payoff of size `coordination` for matching."""
    match = np.array([[1.0, -1.0], [-1.0, 1.0]])
    return Logistic(np.stack([(coordination + turn) * match, (coordination - turn) * match]), reach)


def examples() -> dict[str, Game]:
    """Games of this family by name."""
    return {"logistic": logistic(), "logistic_coordination": logistic(coordination=0.5)}
