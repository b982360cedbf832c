"""Negative momentum: each step takes a part of the last one back (Gidel et al. 2019).

x <- R(x + eta F(x) + beta (x - x_before)), beta < 0. Agents move at once, or one after the other, each seeing the moves
made before its own; on bilinear games only the latter converges.
"""

import numpy as np

from hpml.dynamics.rule import Rate, Rule, Step


class NegativeMomentum(Rule):
    """Ascent with a negative momentum; one evaluation a step, also where agents take turns."""

    step: Rate = 0.1
    momentum: float = -0.5
    alternating: bool = True

    def __check_init__(self):
        if not -1 < self.momentum < 1:
            raise ValueError(f"momentum must lie between -1 and 1, got {self.momentum}.")

    def update(self, oracle, move, points, state):
        """See `Rule.update`; the state is the last displacement."""
        back = np.zeros_like(points) if state is None else self.momentum * state
        if self.alternating:
            new, g = points, back / self.step
            for agent, mine in enumerate(_masks(oracle.game.blocks)):
                F = oracle.own(new, agent)
                new, g = move(new, self.step * F + back * mine), g + F
        else:
            g = oracle(points) + back / self.step
            new = move(points, self.step * g)
        return Step(new, g, new - points)


def _masks(blocks: tuple[int, ...]) -> np.ndarray:
    """Which coordinates are each agent's, one row an agent."""
    return np.repeat(np.eye(len(blocks)), blocks, axis=1)
