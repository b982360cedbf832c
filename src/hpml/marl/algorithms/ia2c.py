"""IA2C: independent advantage actor-critic.

Each agent has its own critic of its own observations and follows its own policy gradient, as if alone. In the first
pass over a batch the gradient is the advantage actor-critic's; later passes carry the ratio of new to old probability,
which is 1 in the first, so that IA2C makes as many passes as the others and nothing is clipped.
"""

import jax.numpy as jnp
from jax import Array

from hpml.marl.algorithm import Algorithm
from hpml.marl.settings import Settings


class IA2C(Algorithm):
    """Independent actors and critics, plain policy gradients."""

    central = False

    def objective(self, log_ratio: Array, advantages: Array, settings: Settings) -> Array:
        """Ratio times advantage."""
        return jnp.exp(log_ratio) * advantages
