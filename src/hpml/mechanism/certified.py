"""What is certified: every bound of the paper on runs of the suite, with its verdict (`sec:theory`)."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from hpml.certificates.certificate import Certificate
from hpml.certificates.certify import certify
from hpml.certificates.potential import Potential, Projected, Quadratic
from hpml.dynamics.rules.hpml import HPML
from hpml.dynamics.run import run
from hpml.games.families.cyclic import pulled_cycle
from hpml.games.families.linear import swirl
from hpml.games.game import Game
from hpml.mechanism.config import OURS, MechanismConfig
from hpml.mechanism.cycles import TARGET
from hpml.mechanism.projected import project_game

STEPS = 200


@dataclass(frozen=True)
class Certified:
    """One run and its certificates; some runs are there to break the bounds, or the assumptions."""

    name: str
    certificates: tuple[Certificate, ...]
    meant_to_fail: bool = False


def run_certified(config: MechanismConfig) -> tuple[Certified, ...]:
    """Runs along known potentials, along a projection, against a potential, and with a step that is too long."""
    field, cycle = swirl(0.5), pulled_cycle(TARGET, pull=1.0, turn=0.2)
    bowl = Quadratic(-np.eye(2))
    pull = Quadratic(-np.eye(4), np.asarray(cycle.optimum))
    p = project_game(cycle, config.projectors[OURS], min(config.samples, 300), config.seed)
    kept = (
        ("the 2-D field along its exact potential", field, bowl, 0.5, bowl.gradient),
        ("the pulled cycle along its exact potential", cycle, pull, 0.5, pull.gradient),
        ("the pulled cycle along its projection's potential", cycle, Projected(p), 0.1, p.at),
        ("the pulled cycle along its projection, against the exact potential", cycle, pull, 0.1, p.at),
    )
    broken = (
        ("the 2-D field, down its potential where it should go up", field, bowl, 0.5, lambda z: z),
        ("the 2-D field with a step above 1/L", field, bowl, 1.5, bowl.gradient),
    )
    return (*(_certify(config, *case) for case in kept), *(_certify(config, *case, fails=True) for case in broken))


def _certify(
    config: MechanismConfig,
    name: str,
    game: Game,
    potential: Potential,
    step: float,
    follow: Callable,
    fails: bool = False,
) -> Certified:
    starts = np.asarray(game.domain.sample(jax.random.key(config.seed + 1), config.starts), np.float64)
    made = run(game, HPML(step=step, direction=follow), starts, STEPS)
    # A run that is meant to climb the potential is judged by that, whatever it did.
    shape = made.directions.shape
    meant = potential.gradient(np.asarray(made.points)[:-1].reshape(-1, shape[2])).reshape(shape) if fails else None
    return Certified(name, certify(made, potential, meant), fails)
