"""Simultaneous ascent: every agent follows its own gradient, x <- R(x + eta F(x))."""

from hpml.dynamics.rule import Rate, Rule, Step


class Simultaneous(Rule):
    """Every agent follows its own gradient at once; one evaluation a step."""

    step: Rate = 0.1

    def update(self, oracle, move, points, state):
        """See `Rule.update`."""
        F = oracle(points)
        return Step(move(points, self.step * F), F)
