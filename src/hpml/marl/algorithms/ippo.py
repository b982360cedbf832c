"""IPPO: independent proximal policy optimisation.

Each agent has its own critic of its own observations and its own clipped objective, as if alone.
"""

from jax import Array

from hpml.marl.algorithm import Algorithm, clipped_objective
from hpml.marl.settings import Settings


class IPPO(Algorithm):
    """Independent actors and critics, clipped ratios."""

    central = False

    def objective(self, log_ratio: Array, advantages: Array, settings: Settings) -> Array:
        """PPO's clipped gain."""
        return clipped_objective(log_ratio, advantages, settings.clip)
