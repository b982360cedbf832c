"""Optimistic ascent: the last change of the field is expected to repeat (Popov 1980, Daskalakis et al. 2018).

x <- R(x + eta (2 F(x_t) - F(x_{t-1}))); the first step is a plain one.
"""

from hpml.dynamics.rule import Rate, Rule, Step


class Optimistic(Rule):
    """Follow 2 F now - F before; one evaluation a step."""

    step: Rate = 0.1

    def update(self, oracle, move, points, state):
        """See `Rule.update`; the state is the field of the step before."""
        F = oracle(points)
        g = 2.0 * F - (F if state is None else state)
        return Step(move(points, self.step * g), g, F)
