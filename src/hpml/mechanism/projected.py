"""The projection of a game's field from samples of a measure, as every experiment takes it."""

import jax
import numpy as np

from hpml.games.game import Game, evaluate
from hpml.geometry.domain import Domain
from hpml.projection.project import Projection, project
from hpml.projection.projector import Projector
from hpml.projection.projectors.kernel import KernelProjector


def project_game(
    game: Game, projector: Projector | None, samples: int, seed: int, measure: Domain | None = None
) -> Projection:
    """The projection from `samples` points drawn from the measure's uniform law (the game's domain unless given).

    The kernel projector is told the measure where one is given, and integrates over more points of it than the samples.
    """
    draw, key = jax.random.split(jax.random.key(seed))
    points = np.asarray((game.domain if measure is None else measure).sample(draw, samples), np.float64)
    told = measure if projector is None or isinstance(projector, KernelProjector) else None
    return project(points, evaluate(game, points), projector, measure=told, key=key)
