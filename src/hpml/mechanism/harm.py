"""What dropping the residual leaves behind: final exploitability where it is dropped, and where it is treated.

Dropping follows the hill and forgets the game: its rest points are those of the projection and need not be equilibria.
"""

from dataclasses import dataclass

import jax
import numpy as np

from hpml.dynamics.rule import Rule
from hpml.dynamics.rules.hpml import HPML
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import run
from hpml.games.families.cyclic import rock_paper_scissors
from hpml.games.families.normal_form import matching_pennies, stag_hunt
from hpml.games.families.random_normal_form import random_mix
from hpml.games.game import Game
from hpml.mechanism.config import OURS, MechanismConfig
from hpml.mechanism.projected import project_game
from hpml.mechanism.traces import Trace, trace

RATE, WINDOW, SAMPLES = 0.1, 100, 200
GAMES: dict[str, Game] = {
    "rock-paper-scissors": rock_paper_scissors(),
    "matching pennies": matching_pennies(),
    "random 3x3, zero-sum": random_mix((3, 3), common=0.0),
    "random 3x3, half common payoff": random_mix((3, 3), common=0.5),
    "stag hunt": stag_hunt(),
}


@dataclass(frozen=True)
class Harm:
    """One game: the share of circulation found, and a run for each treatment of the residual."""

    name: str
    nonpotentiality: float
    traces: tuple[Trace, ...]


def run_harm(config: MechanismConfig) -> tuple[Harm, ...]:
    """Raw, dropped and treated runs on potential, mixed and cyclic games."""
    return tuple(_harm(config, name, game) for name, game in GAMES.items())


def _harm(config: MechanismConfig, name: str, game: Game) -> Harm:
    starts = np.asarray(game.domain.sample(jax.random.key(config.seed + 1), config.starts), np.float64)
    p = project_game(game, config.projectors[OURS], SAMPLES, config.seed)
    rules: dict[str, Rule] = {"raw": Simultaneous(RATE)}
    rules |= {
        kind: HPML(step=RATE, direction=p.at, spent=SAMPLES, residual=kind)
        for kind in ("drop", "optimistic", "extragradient", "adjust")
    }
    traces = tuple(trace(kind, run(game, rule, starts, config.steps), WINDOW) for kind, rule in rules.items())
    return Harm(name, p.nonpotentiality, traces)
