"""What evaluation episodes say: returns in the environment's units, equality, and conventions (docs/train.md)."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from hpml.marl.conventions import count_switches, most_frequent

_count_switches, _most_frequent = jax.jit(count_switches), jax.jit(most_frequent)


class Episodes(NamedTuple):
    """Episodes of one seed's policies that were played side by side.

    - `returns` (episodes, agents): undiscounted sums of each agent's own rewards.
    - `lengths` (episodes,): how many steps each took.
    - `conventions` (T, episodes, agents): as in `Step`, -1 after an episode's end.
    """

    returns: Float[np.ndarray, "episodes agents"]
    lengths: Int[np.ndarray, " episodes"]
    conventions: Int[np.ndarray, "T episodes agents"]


def equality(returns: Any) -> float:
    """1 - Gini of the agents' returns in an episode, averaged over episodes (..., agents).

    1 where all get the same, 1 / n where one of n gets everything. Without a meaning, and NaN, where somebody's return
    is negative or nobody gets anything; such episodes are left out.
    """
    R = np.atleast_2d(np.asarray(returns, np.float64))
    total = R.sum(-1)
    spread = np.abs(R[..., :, None] - R[..., None, :]).sum((-2, -1))
    fair = (R >= 0).all(-1) & (total > 0)
    if not fair.any():
        return float("nan")
    return float(np.mean(1.0 - spread[fair] / (2.0 * R.shape[-1] * total[fair])))


def summarise(played: Episodes, conventions: bool, before: Any) -> tuple[dict[str, float], np.ndarray]:
    """The columns of an evaluation, and the joint convention that most of its interactions show.

    `before` (agents,) is that of the evaluation before, -1s where there is none.
    """
    returns = np.asarray(played.returns, np.float64)
    columns = {
        "evaluation/return": float(returns.mean()),
        "evaluation/collective_return": float(returns.sum(-1).mean()),
        "evaluation/equality": equality(returns),
        "evaluation/length": float(np.mean(played.lengths)),
    }
    columns |= {f"evaluation/return/{i}": float(value) for i, value in enumerate(returns.mean(0))}
    frequent = np.asarray(before)
    if conventions:
        steps = np.arange(len(played.conventions))[:, None]
        switches = _count_switches(played.conventions, steps == played.lengths - 1)
        columns["evaluation/switch_rate"] = float(switches.rate)
        columns["evaluation/interactions"] = float(switches.interactions) / len(returns)
        found = np.asarray(_most_frequent(played.conventions))
        known = (found >= 0).any() and (frequent >= 0).any()
        columns["evaluation/switched"] = float((found != frequent).any()) if known else float("nan")
        frequent = found if (found >= 0).any() else frequent
    return columns, frequent
