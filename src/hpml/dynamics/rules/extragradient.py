"""Extragradient: look one step ahead and follow the field found there (Korpelevich 1976).

y = R(x + eta F(x)), x <- R(x + eta F(y)). On the bilinear saddle each step multiplies the distance to the origin by
sqrt(1 - eta^2 + eta^4).
"""

from hpml.dynamics.rule import Rate, Rule, Step


class Extragradient(Rule):
    """Look one step ahead and follow the field found there; two evaluations a step."""

    step: Rate = 0.1

    def update(self, oracle, move, points, state):
        """See `Rule.update`."""
        ahead = move(points, self.step * oracle(points))
        F = oracle(ahead)
        return Step(move(points, self.step * F), F)
