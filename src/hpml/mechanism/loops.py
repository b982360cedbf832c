"""Which strategies form the circle: the loops that carry the circulation, by name (`rem:convention_graph`)."""

from dataclasses import dataclass

import jax
import numpy as np

from hpml.diagnostics.conventions import ConventionGraph, convention_graph, convention_loops, joint_conventions
from hpml.diagnostics.cycles import Loop
from hpml.diagnostics.disc import DiscPlanes, disc_planes
from hpml.diagnostics.jacobian import split_jacobian
from hpml.games.families.cyclic import rock_paper_scissors
from hpml.games.families.normal_form import NormalForm
from hpml.games.families.population import Population, population_cycle
from hpml.games.game import evaluate
from hpml.mechanism.config import MechanismConfig
from hpml.projection.project import project

GAMES: dict[str, Population | NormalForm] = {
    "one population, rock-paper-scissors": population_cycle(3),
    "two agents, rock-paper-scissors": rock_paper_scissors(),
    "one population, five actions": population_cycle(5),
}
SHOWN = 6


@dataclass(frozen=True)
class NamedLoops:
    """The convention graph of one game, its strongest loops, and the rotation planes of its Jacobian at rest."""

    name: str
    graph: ConventionGraph
    loops: tuple[Loop, ...]
    planes: DiscPlanes
    nonpotentiality: float


def run_loops(config: MechanismConfig) -> tuple[NamedLoops, ...]:
    """Loops between pure joint strategies, from uniform samples of each game."""
    return tuple(_loops(config, name, game) for name, game in GAMES.items())


def _loops(config: MechanismConfig, name: str, game: Population | NormalForm) -> NamedLoops:
    points = np.asarray(game.domain.sample(jax.random.key(config.seed), config.samples), np.float64)
    p = project(points, evaluate(game, points), key=jax.random.key(config.seed))
    mixes = [np.asarray(part, np.float64) for part in game.strategies(points)]
    conventions = joint_conventions(points, mixes, game.labels)
    graph = convention_graph(conventions, points, p.residual, p.potential)
    loops = convention_loops(conventions, graph, points, p.residual, limit=SHOWN)
    at_rest = split_jacobian(game.field, np.asarray(game.equilibrium)[None])
    J = at_rest.symmetric[0] + at_rest.antisymmetric[0]
    return NamedLoops(name, graph, loops, disc_planes(J, game.equilibrium), p.nonpotentiality)
