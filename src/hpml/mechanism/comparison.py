"""Every update rule on games of three kinds, by the field evaluations that it spends.

Each rule takes the best of the same steps on starts of their own (`hpml.dynamics.compare`). HPML's samples count.
"""

from dataclasses import dataclass

import jax
import numpy as np

from hpml.dynamics.compare import Curve, compare
from hpml.dynamics.rule import Rule
from hpml.dynamics.rules.anchored import Anchored
from hpml.dynamics.rules.consensus import Consensus
from hpml.dynamics.rules.extragradient import Extragradient
from hpml.dynamics.rules.hpml import HPML
from hpml.dynamics.rules.mirror_prox import MirrorProx
from hpml.dynamics.rules.negative_momentum import NegativeMomentum
from hpml.dynamics.rules.neural_hpml import NeuralHPML
from hpml.dynamics.rules.optimistic import Optimistic
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.rules.symplectic import Symplectic
from hpml.games.families.cyclic import rock_paper_scissors
from hpml.games.families.markov import nosde
from hpml.games.families.random_normal_form import random_mix
from hpml.games.game import Game
from hpml.mechanism.config import OURS, MechanismConfig
from hpml.mechanism.projected import project_game

GAMES: dict[str, Game] = {
    "rock-paper-scissors": rock_paper_scissors(),
    "random 3x3, half common payoff": random_mix((3, 3), common=0.5, seed=1),
    "Markov game with a cyclic equilibrium": nosde(),
}
SAMPLES = 100


@dataclass(frozen=True)
class GameComparison:
    """One game: a curve of exploitability for each rule."""

    name: str
    budget: int
    curves: tuple[Curve, ...]


def run_comparison(config: MechanismConfig) -> tuple[GameComparison, ...]:
    """All rules on all games; the quick form takes the first two games."""
    games = dict(list(GAMES.items())[:2]) if config.quick else GAMES
    return tuple(_compare(config, name, game) for name, game in games.items())


def _compare(config: MechanismConfig, name: str, game: Game) -> GameComparison:
    budget = 400 if config.quick else 800
    starts = np.asarray(game.domain.sample(jax.random.key(config.seed + 1), config.starts), np.float64)
    p = project_game(game, config.projectors[OURS], SAMPLES, config.seed)
    rules: dict[str, Rule] = {
        "simultaneous": Simultaneous(),
        "extragradient": Extragradient(),
        "optimistic": Optimistic(),
        "Mirror-Prox": MirrorProx(),
        "symplectic adjustment": Symplectic(),
        "consensus": Consensus(),
        "negative momentum": NegativeMomentum(),
        "anchored extragradient": Anchored(),
        "HPML, dropped": HPML(direction=p.at, spent=SAMPLES),
        "HPML, optimistic": HPML(direction=p.at, spent=SAMPLES, residual="optimistic"),
        "HPML, adjusted": HPML(residual="adjust"),
    }
    if game is next(iter(GAMES.values())) and not config.quick:  # networks train long: one game shows them
        rules["HPML, neural"] = NeuralHPML(samples=SAMPLES, warm=100)
    return GameComparison(name, budget, tuple(compare(game, rules, starts, budget, seed=config.seed)))
