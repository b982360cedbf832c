"""Mirror-Prox: extragradient whose steps are measured by entropy on simplices (Nemirovski 2004).

y = p exp(eta F(p)), p <- p exp(eta F(y)), both normalised, whatever the run's own retraction. On a monotone game the
average of the points y has a duality gap of at most (sum of log K_i) / (eta T) for eta up to 1 / L in the 1-norm, from
the uniform start. On other domains the distance is Euclidean, and Mirror-Prox is extragradient.
"""

from hpml.dynamics.retraction import retraction
from hpml.dynamics.rule import Rate, Rule, Step
from hpml.geometry.domain import Simplices


class MirrorProx(Rule):
    """Look ahead and step by multiplicative weights on simplices; two evaluations a step. Elsewhere: extragradient."""

    step: Rate = 0.1

    def update(self, oracle, move, points, state):
        """See `Rule.update`."""
        domain = oracle.game.domain
        move = retraction(domain, "softmax") if isinstance(domain, Simplices) else move
        ahead = move(points, self.step * oracle(points))
        F = oracle(ahead)
        return Step(move(points, self.step * F), F)
