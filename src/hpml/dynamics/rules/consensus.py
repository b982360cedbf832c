"""Consensus optimisation: ascend, and shrink the field's own length (Mescheder et al. 2017).

The direction is F - gamma grad |F|^2 / 2 = F - gamma J^T F.
"""

from hpml.dynamics.rule import Rate, Rule, Step


class Consensus(Rule):
    """F - shrink J^T F; three evaluations a step, since a product with the Jacobian counts as two."""

    step: Rate = 0.1
    shrink: float = 1.0

    def update(self, oracle, move, points, state):
        """See `Rule.update`."""
        F = oracle(points)
        g = F - self.shrink * oracle.pull(points, F)
        return Step(move(points, self.step * g), g)
