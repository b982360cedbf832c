"""One shared reward is not enough: exact joint gradients have no residual, blocks do (`rem:bellman_bridge`)."""

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from hpml.diagnostics.jacobian import split_jacobian
from hpml.games.families.markov import MarkovGame, random_markov
from hpml.games.families.shared_reward import UPDATES, SharedReward, relay
from hpml.mechanism.config import MechanismConfig

GAMES = 5
POINTS = 64


@dataclass(frozen=True)
class Bridge:
    """The share |A|^2 / |J|^2 of the Jacobian, over the domain, for each way of updating shared-reward games.

    `relay` is one game of two agents that take turns; `random` has several random games.
    """

    relay: dict[str, float]
    random: dict[str, Float[np.ndarray, " games"]]


def run_bridge(config: MechanismConfig) -> Bridge:
    """A relay of two agents, and random Markov games of two agents, three states and two actions."""
    games = [random_markov(3, (2, 2), shared=True, seed=config.seed + k) for k in range(2 if config.quick else GAMES)]
    return Bridge(
        {name: _share(config, relay(), name) for name in UPDATES},
        {name: np.array([_share(config, game, name) for game in games]) for name in UPDATES},
    )


def _share(config: MechanismConfig, markov: MarkovGame, update: str) -> float:
    points = np.asarray(markov.domain.sample(jax.random.key(config.seed), POINTS), np.float64)
    split = split_jacobian(SharedReward(markov, update).field, points)
    turning = float((split.antisymmetric**2).sum())
    return turning / (turning + float((split.symmetric**2).sum()))
