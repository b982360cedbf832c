"""A run: an update rule followed from several starts, with the evaluations of the field that it cost."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from hpml.dynamics.oracle import Oracle
from hpml.dynamics.retraction import retraction as retraction_of
from hpml.dynamics.rule import Rule
from hpml.games.game import Game, as_points
from hpml.geometry.arrays import Array, as_matrix

FAR = 1e12  # a start that would go further has diverged, and stays where it is before it overflows


class Run(eqx.Module):
    """`points[t]` after t steps; `directions[t]` led from `points[t]` on; `evaluations[t]` were spent for one start."""

    game: Game
    rule: Rule
    points: Float[Array, "t s d"]
    directions: Float[Array, "t-1 s d"]
    evaluations: Int[Array, " t"]


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
    points = as_points(game, as_matrix(starts, "starts"))
    if steps < 1:
        raise ValueError(f"A run needs at least one step, got {steps}.")
    oracle, move = Oracle(game, noise, seed), retraction_of(game.domain, retraction)
    state = rule.init(oracle, points)
    if budget is not None and oracle.evaluations > budget:
        raise ValueError(
            f"{type(rule).__name__} spends {oracle.evaluations} evaluations before its first step: give it a budget "
            f"above {budget}, or fewer samples."
        )
    path, directions, spent = [points], [], [oracle.evaluations]
    for _ in range(steps):
        step = rule.update(oracle, move, path[-1], state)
        if budget is not None and oracle.evaluations > budget:
            break
        state, new = step.state, np.asarray(step.points)
        path.append(np.where(np.abs(new).max(1, keepdims=True) < FAR, new, path[-1]))
        directions.append(np.asarray(step.direction))
        spent.append(oracle.evaluations)
    return Run(
        game, rule, np.stack(path), np.asarray(directions).reshape(len(path) - 1, *points.shape), np.asarray(spent)
    )
