"""Rock-paper-scissors: raw ascent goes round, a dropped residual stops it, a treated one takes it home (`fig:part1`).

The second game adds a pull to a mix away from the middle, so that standing still is not enough. Its rotation is around
the even mix and stays on spheres around it, so on the ball that fits into the simplices the exact projection is the
pull.
"""

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from hpml.diagnostics.orbits import distance_to
from hpml.dynamics.rules.hpml import HPML
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import run
from hpml.games.families.cyclic import PulledCycle, pulled_cycle, rock_paper_scissors
from hpml.games.families.normal_form import NormalForm
from hpml.geometry.domain import Ball, Domain
from hpml.mechanism.config import OURS, PAPER, MechanismConfig
from hpml.mechanism.projected import project_game
from hpml.mechanism.traces import Trace, trace

RATE = 0.1
ADJUSTMENT = 0.3  # of the residual: with 1, steps of this length are too long for the strong cycle
WINDOW = 100
TARGET = (0.2, 0.3, 0.5)
INSCRIBED = 1 / np.sqrt(6)  # the radius of the largest ball around the even mix inside a triangle of side sqrt(2)


@dataclass(frozen=True)
class CycleRuns:
    """Runs on one cyclic game, and the first agent's mixes along them for the simplex plot.

    `distances` are the medians of the last points' distance to the potential's optimum, where the game has one.
    """

    labels: tuple[str, ...]
    traces: tuple[Trace, ...]
    mixes: tuple[Float[np.ndarray, "times s 3"], ...]
    optimum: Float[np.ndarray, " 3"] | None
    distances: tuple[float, ...]


def run_cycle(config: MechanismConfig) -> CycleRuns:
    """Rock-paper-scissors with the uniform law of its domain."""
    game = rock_paper_scissors()
    return _runs(config, game, game.domain, ("optimistic", "extragradient", "adjust"))


def run_optimum(config: MechanismConfig) -> CycleRuns:
    """Rock-paper-scissors with a pull to a mix away from the middle, measured on the inscribed ball."""
    game = pulled_cycle(TARGET, pull=1.0, turn=3.0)
    return _runs(config, game, Ball(np.zeros(4), INSCRIBED), ("adjust",), game.optimum)


def _runs(
    config: MechanismConfig,
    game: NormalForm | PulledCycle,
    measure: Domain,
    treatments: tuple[str, ...],
    optimum: np.ndarray | None = None,
) -> CycleRuns:
    starts = np.asarray(measure.sample(jax.random.key(config.seed + 1), config.starts), np.float64)
    traces = [trace("raw", run(game, Simultaneous(RATE), starts, config.steps), WINDOW)]
    for name in (PAPER, "graph", OURS):
        p = project_game(game, config.projectors[name], config.samples, config.seed, measure)
        rule = HPML(step=RATE, direction=p.at, spent=config.samples)
        traces.append(trace(f"dropped, {name}", run(game, rule, starts, config.steps), WINDOW, p.nonpotentiality))
    for residual in treatments:  # with the last projection
        rule = HPML(step=RATE, direction=p.at, spent=config.samples, residual=residual, adjustment=ADJUSTMENT)
        traces.append(trace(f"treated, {residual}", run(game, rule, starts, config.steps), WINDOW, p.nonpotentiality))
    mixes = tuple(np.asarray(game.strategies(t.points)[0], np.float64) for t in traces)
    ends = () if optimum is None else tuple(float(np.median(distance_to(t.points, optimum)[-1])) for t in traces)
    return CycleRuns(game.labels[0], tuple(traces), mixes, None if optimum is None else np.asarray(TARGET), ends)
