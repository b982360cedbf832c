"""IA2C: independent advantage actor-critic.

Each agent has its own critic of its own observations and follows its own policy gradient, as if alone. Nothing is
clipped, so a sample is used once: the others' passes become as many minibatches of one pass. Those after the first
carry the ratio of new to old probability, which is close to 1.
"""

import jax.numpy as jnp
from jax import Array

from hpml.marl.algorithm import Algorithm
from hpml.marl.settings import Settings


class IA2C(Algorithm):
    """Independent actors and critics, plain policy gradients."""

    central = False
    reuse = False

    def objective(self, log_ratio: Array, advantages: Array, settings: Settings) -> Array:
        """Ratio times advantage."""
        return jnp.exp(log_ratio) * advantages
