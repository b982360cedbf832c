"""A run: an update rule followed from several starts, with the evaluations of the field that it cost."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from hpml.dynamics.oracle import Oracle
from hpml.dynamics.retraction import retraction as retraction_of
from hpml.dynamics.rule import Rule
from hpml.games.game import Game, as_points
from hpml.geometry.arrays import Array


class Run(eqx.Module):
    """`points[t]` after t steps; `directions[t]` led from `points[t]` on; `evaluations[t]` were spent for one start."""

    game: Game
    rule: Rule
    points: Float[Array, "steps+1 s d"]
    directions: Float[Array, "steps s d"]
    evaluations: Int[Array, " steps+1"]


def run(
    game: Game,
    rule: Rule,
    starts: Any,
    steps: int = 1000,
    budget: int | None = None,
    noise: float = 0.0,
    retraction: str = "euclidean",
    seed: int = 0,
) -> Run:
    """Follow `rule` from `starts` (s, d) for `steps` steps, or until the next step would spend more than `budget`
    evaluations of the field."""
    points = as_points(game, starts)
    if steps < 1:
        raise ValueError(f"A run needs at least one step, got {steps}.")
    oracle, move = Oracle(game, noise, seed), retraction_of(game.domain, retraction)
    state = rule.init(oracle, points)
    path, directions, spent = [points], [], [oracle.evaluations]
    cost = 0
    for _ in range(steps):
        if budget is not None and oracle.evaluations + cost > budget:
            break
        before = oracle.evaluations
        step = rule.update(oracle, move, path[-1], state)
        state, cost = step.state, oracle.evaluations - before
        path.append(np.asarray(step.points))
        directions.append(np.asarray(step.direction))
        spent.append(oracle.evaluations)
    return Run(
        game, rule, np.stack(path), np.asarray(directions).reshape(len(path) - 1, *points.shape), np.asarray(spent)
    )
