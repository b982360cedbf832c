"""One population that plays a symmetric game against itself: the field is what each action earns, on one simplex.

The smallest picture of a cycle: rock-paper-scissors is a rotation of a triangle.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from hpml.games.families.cyclic import cyclic, rock_paper_scissors
from hpml.games.game import Game
from hpml.geometry.arrays import Array, as_matrix
from hpml.geometry.domain import Domain, Simplices, tangent_basis


class Population(Game):
    """`payoffs[a, b]` is what action a earns against b; the population is a mix x, and the field is A x."""

    payoffs: Float[Array, "K K"]
    names: tuple[str, ...] = eqx.field(static=True)
    rest: Float[Array, " d"] | None

    def __init__(self, payoffs: Any, labels: Sequence[str] | None = None, equilibrium: Any = None):
        self.payoffs = as_matrix(payoffs, "payoffs")
        K = len(self.payoffs)
        if self.payoffs.shape != (K, K) or K < 2:
            raise ValueError(f"payoffs must be a square matrix of two actions or more, got {self.payoffs.shape}.")
        self.names = tuple(str(name) for name in (range(1, K + 1) if labels is None else labels))
        if len(self.names) != K:
            raise ValueError(f"labels must name {K} actions, got {len(self.names)}.")
        mix = None if equilibrium is None else np.asarray(equilibrium, np.float64)
        self.rest = None if mix is None else mix @ tangent_basis(K)

    @property
    def domain(self) -> Domain:
        """See `Game.domain`."""
        return Simplices(len(self.names), "orthonormal")

    @property
    def blocks(self):
        """See `Game.blocks`."""
        return (len(self.names) - 1,)

    @property
    def equilibrium(self):
        """See `Game.equilibrium`."""
        return self.rest

    @property
    def labels(self):
        """See `Game.labels`."""
        return (self.names,)

    def strategies(self, point):
        """See `Game.strategies`."""
        return self.domain.complete(point)

    def field(self, point):
        """See `Game.field`."""
        return self.domain.reduce_covectors([self.payoffs @ self.strategies(point)[0]])

    def regrets(self, point):
        """See `Game.regrets`: what the best action earns beyond the population's mean."""
        x = self.strategies(point)[0]
        values = self.payoffs @ x
        return (values.max() - x @ values)[None]


def population_cycle(actions: int = 3) -> Population:
    """One population with a cycle of K actions, each beating those just before it; the even mix is at rest."""
    game = rock_paper_scissors() if actions == 3 else cyclic(actions)
    return Population(game.payoffs[0], game.names[0], np.full(actions, 1 / actions))


def hawk_dove(value: float = 1.0, cost: float = 2.0) -> Population:
    """Fight or share: with a fight that costs more than the prize, the mix with value / cost hawks is stable."""
    if not 0 < value < cost:
        raise ValueError(f"The cost of a fight must exceed the prize, got value {value} and cost {cost}.")
    A = np.array([[(value - cost) / 2, value], [0.0, value / 2]])
    return Population(A, ("hawk", "dove"), (value / cost, 1 - value / cost))


def examples() -> dict[str, Game]:
    """Games of this family by name."""
    return {"population_rps": population_cycle(), "population_cycle5": population_cycle(5), "hawk_dove": hawk_dove()}
