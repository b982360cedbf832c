"""Symplectic gradient adjustment: turn the update against the rotation (Balduzzi et al. 2018).

In descent sign it is xi + lambda A^T xi; with F = -xi and J the Jacobian of F it reads F + lambda A F. With `align` the
sign of lambda at each point is that of <F, J^T F> <A F, J^T F> / d + 0.1, which pulls towards stable fixed points and
away from unstable ones.
"""

import numpy as np

from hpml.dynamics.rule import Rate, Rule, Step

TOWARDS_STABLE = 0.1  # epsilon of Balduzzi et al.: where the test says nothing, lambda stays positive


class Symplectic(Rule):
    """F + adjustment A F; five evaluations a step, since a product with the Jacobian counts as two."""

    step: Rate = 0.1
    adjustment: float = 1.0
    align: bool = False

    def update(self, oracle, move, points, state):
        """See `Rule.update`."""
        F = oracle(points)
        pushed, pulled = oracle.push(points, F), oracle.pull(points, F)
        turned = (pushed - pulled) / 2
        sign = 1.0
        if self.align:
            test = (F * pulled).sum(1) * (turned * pulled).sum(1) / points.shape[1]
            sign = np.where(test + TOWARDS_STABLE >= 0, 1.0, -1.0)[:, None]
        g = F + sign * self.adjustment * turned
        return Step(move(points, self.step * g), g)
