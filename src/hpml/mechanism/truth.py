"""The sampled projection beside the exact decomposition of finite games into potential, harmonic, non-strategic.

The two ask different questions. The decomposition weighs pure profiles; the projection weighs mixed strategies by the
measure, and rotation that crosses the simplex's boundary has a true gradient part. They agree that a potential game
has no circulation, and both rise with the harmonic share.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from hpml.games.decomposition import decompose
from hpml.games.families.random_normal_form import random_game
from hpml.mechanism.config import OURS, PAPER, MechanismConfig
from hpml.mechanism.projected import project_game

GAMES, SAMPLES = 3, 200


@dataclass(frozen=True)
class Truth:
    """At each harmonic share: the decomposition's circulation, and the projection's on each of several random games."""

    shares: Float[np.ndarray, " k"]
    exact: Float[np.ndarray, "k games"]
    found: dict[str, Float[np.ndarray, "k games"]]


def run_truth(config: MechanismConfig) -> Truth:
    """Random 3 x 3 games of two agents, from all potential to all harmonic."""
    shares = np.linspace(0.0, 1.0, 3 if config.quick else 5)
    count = 1 if config.quick else GAMES
    games = [[random_game((3, 3), 1.0 - h, h, 0.0, seed=config.seed + k) for k in range(count)] for h in shares]
    found = {
        name: np.array(
            [
                [project_game(game, config.projectors[name], SAMPLES, config.seed).nonpotentiality for game in row]
                for row in games
            ]
        )
        for name in (PAPER, OURS)
    }
    return Truth(shares, np.array([[decompose(game).circulation for game in row] for row in games]), found)
