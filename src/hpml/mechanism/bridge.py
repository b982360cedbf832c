"""One shared reward is not enough: exact joint gradients have no residual, blocks do (`rem:bellman_bridge`)."""

from dataclasses import dataclass

import jax
import numpy as np

from hpml.diagnostics.jacobian import split_jacobian
from hpml.games.families.markov import random_markov
from hpml.games.families.shared_reward import UPDATES, SharedReward
from hpml.mechanism.config import OURS, MechanismConfig
from hpml.mechanism.projected import project_game

GAMES = 5
POINTS = 64


@dataclass(frozen=True)
class Bridge:
    """For each way of updating one shared-reward game, over several random games.

    - `antisymmetric`: the share |A|^2 / |J|^2 of the Jacobian, averaged over the domain.
    - `nonpotentiality`: the share of circulation that the projection finds.
    """

    antisymmetric: dict[str, np.ndarray]
    nonpotentiality: dict[str, np.ndarray]


def run_bridge(config: MechanismConfig) -> Bridge:
    """Random Markov games of two agents, three states and two actions."""
    count = 2 if config.quick else GAMES
    antisymmetric = {name: np.zeros(count) for name in UPDATES}
    nonpotentiality = {name: np.zeros(count) for name in UPDATES}
    for k in range(count):
        markov = random_markov(3, (2, 2), shared=True, seed=config.seed + k)
        points = np.asarray(markov.domain.sample(jax.random.key(config.seed), POINTS), np.float64)
        for name in UPDATES:
            game = SharedReward(markov, name)
            split = split_jacobian(game.field, points)
            whole = (split.symmetric**2).sum() + (split.antisymmetric**2).sum()
            antisymmetric[name][k] = (split.antisymmetric**2).sum() / whole
            p = project_game(game, config.projectors[OURS], min(config.samples, 300), config.seed)
            nonpotentiality[name][k] = p.nonpotentiality
    return Bridge(antisymmetric, nonpotentiality)
