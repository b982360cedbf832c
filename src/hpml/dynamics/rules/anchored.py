"""Anchored extragradient: every step is pulled back a little to the start, less and less (Yoon & Ryu 2021).

With b = 1 / (t + 2): y = R(x + b (x_0 - x) + eta F(x)), x <- R(x + b (x_0 - x) + eta F(y)). On a monotone field that is
L-Lipschitz the squared field at x_t is at most 260 L^2 |x_0 - x*|^2 / (t + 1)^2 for eta = 1 / (8 L) (EAG-C), and at
most 27 L^2 |x_0 - x*|^2 / ((t + 1)(t + 2)) with the shrinking steps of EAG-V from eta_0 = 0.618 / L.
"""

from typing import Any

import equinox as eqx

from hpml.dynamics.rule import Batch, Rate, Rule, Step


class Anchor(eqx.Module):
    """The start, the number of steps made, and the step to make."""

    start: Batch
    count: int
    step: Any


class Anchored(Rule):
    """Extragradient anchored at the start; two evaluations a step.

    `lipschitz`: None keeps the step (EAG-C); the field's Lipschitz constant shrinks it as EAG-V does.
    """

    step: Rate = 0.1
    lipschitz: float | None = None

    def __check_init__(self):
        if self.lipschitz is not None and not self.lipschitz > 0:
            raise ValueError(f"lipschitz must be positive, got {self.lipschitz}.")

    def init(self, oracle, points):
        """See `Rule.init`."""
        return Anchor(points, 0, self.step)

    def update(self, oracle, move, points, state):
        """See `Rule.update`."""
        t, eta = state.count, state.step
        pull = (state.start - points) / (t + 2)
        ahead = move(points, pull + eta * oracle(points))
        F = oracle(ahead)
        new = move(points, pull + eta * F)
        if self.lipschitz is not None:
            square = (eta * self.lipschitz) ** 2
            eta = eta * (1.0 - square / ((t + 1) * (t + 3) * (1.0 - square)))
        return Step(new, F + pull / state.step, Anchor(state.start, t + 1, eta))
