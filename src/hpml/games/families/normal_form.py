"""Normal-form games from payoff arrays, for any number of agents and actions.

Mixed strategies are points of a simplex product, with the redundant coordinate dropped or in an orthonormal basis of
the tangent space, or logits in R^d (`rem:param_app`).
"""

import string
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hpml.games.game import Game, Strategies
from hpml.games.policies import Policies
from hpml.geometry.arrays import Array, as_finite
from hpml.geometry.domain import Domain, Simplices


class NormalForm(Game):
    """`payoffs[i][a_1, ..., a_n]` is what agent i gets; `coordinates` are "orthonormal", "dropped" or "logits"."""

    payoffs: Float[Array, " agents *actions"]
    names: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    policies: Policies
    rest: Float[Array, " d"] | None

    def __init__(
        self,
        payoffs: Any,
        labels: Sequence[Sequence[str]] | None = None,
        coordinates: str = "orthonormal",
        equilibrium: Sequence[Any] | None = None,
    ):
        self.payoffs = as_finite(payoffs, "payoffs")
        agents, *sizes = self.payoffs.shape or (0,)
        if agents != len(sizes) or not sizes or min(sizes) < 2:
            raise ValueError(
                "payoffs must have shape (agents, actions of agent 1, ..., actions of the last agent) with at least "
                f"two actions each, got {self.payoffs.shape}."
            )
        self.policies = Policies(tuple(sizes), coordinates=coordinates)
        plain = [[string.ascii_uppercase[a] if K <= 26 else str(a) for a in range(K)] for K in sizes]
        self.names = tuple(tuple(str(name) for name in part) for part in (plain if labels is None else labels))
        if tuple(len(part) for part in self.names) != tuple(sizes):
            raise ValueError(f"labels must name {sizes} actions, one list an agent.")
        self.rest = None if equilibrium is None else self.point(equilibrium)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many actions each agent has."""
        return self.payoffs.shape[1:]

    @property
    def coordinates(self) -> str:
        """See `Policies`."""
        return self.policies.coordinates

    @property
    def simplices(self) -> Simplices:
        """The mixed strategies; logits use the orthonormal ones underneath."""
        return Simplices(self.sizes, "dropped" if self.coordinates == "dropped" else "orthonormal")

    @property
    def domain(self) -> Domain:
        """See `Game.domain`."""
        return self.policies.domain

    @property
    def blocks(self):
        """See `Game.blocks`."""
        return self.policies.blocks

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
        return [p[..., 0, :] for p in self.policies.probabilities(point)]

    def point(self, strategies: Sequence[Any]) -> Float[Array, " d"]:
        """The coordinates of mixed strategies, one probability vector an agent."""
        return self.policies.point(strategies)

    def action_values(self, point: Float[Array, " d"]) -> Strategies:
        """What each of an agent's actions is worth against the others' mixed strategies."""
        strategies = self.strategies(point)
        values = []
        for i in range(len(self.sizes)):
            worth = jnp.moveaxis(jnp.asarray(self.payoffs[i]), i, 0)
            for p in reversed([p for j, p in enumerate(strategies) if j != i]):
                worth = worth @ p
            values.append(worth)
        return values

    def field(self, point):
        """See `Game.field`."""
        return self.policies.gradient(point, [q[None] for q in self.action_values(point)])

    def returns(self, point):
        """See `Game.returns`."""
        return jnp.stack([p @ q for p, q in zip(self.strategies(point), self.action_values(point), strict=True)])

    def regrets(self, point):
        """See `Game.regrets`."""
        best = jnp.stack([q.max() for q in self.action_values(point)])
        return jnp.maximum(best - self.returns(point), 0.0)  # rounding may go below 0


def bimatrix(A: Any, B: Any = None, **options: Any) -> NormalForm:
    """Two agents: the row agent gets A, the column agent B, or -A where B is not given."""
    first = as_finite(A, "A")
    second = -first if B is None else as_finite(B, "B")
    if first.ndim != 2 or first.shape != second.shape:
        raise ValueError(f"A and B must be matrices of one shape, got {first.shape} and {second.shape}.")
    return NormalForm(np.stack([first, second]), **options)


def matching_pennies(**options: Any) -> NormalForm:
    """One agent wants equal pennies, the other different ones; the equilibrium is even."""
    names = [["heads", "tails"]] * 2
    return bimatrix([[1.0, -1.0], [-1.0, 1.0]], labels=names, equilibrium=[[0.5, 0.5]] * 2, **options)


def prisoners_dilemma(**options: Any) -> NormalForm:
    """Both defect."""
    A = np.array([[3.0, 0.0], [5.0, 1.0]])
    return bimatrix(A, A.T, labels=[["cooperate", "defect"]] * 2, equilibrium=[[0.0, 1.0]] * 2, **options)


def stag_hunt(**options: Any) -> NormalForm:
    """A good convention that needs both, and a safe one."""
    A = np.array([[4.0, 0.0], [3.0, 2.0]])
    return bimatrix(A, A.T, labels=[["stag", "hare"]] * 2, **options)


def bach_or_stravinsky(**options: Any) -> NormalForm:
    """Both want to go together, each to another concert."""
    return bimatrix([[3.0, 0.0], [0.0, 2.0]], [[2.0, 0.0], [0.0, 3.0]], labels=[["Bach", "Stravinsky"]] * 2, **options)


def examples() -> dict[str, Game]:
    """Games of this family by name."""
    rng = np.random.default_rng(0)
    return {
        "matching_pennies": matching_pennies(),
        "prisoners_dilemma": prisoners_dilemma(),
        "stag_hunt": stag_hunt(coordinates="dropped"),
        "bach_or_stravinsky": bach_or_stravinsky(coordinates="logits"),
        "three_agents": NormalForm(rng.normal(size=(3, 2, 3, 4))),
    }
