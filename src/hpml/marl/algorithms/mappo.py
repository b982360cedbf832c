"""MAPPO: proximal policy optimisation with a centralised critic.

The original has one reward and one value for the team. Here every agent keeps its own reward, so the critic that sees
everybody's observations has a value head for each agent, and each agent's advantages come from its own head and are
normalised on their own. With a common reward the heads learn the same value.
"""

from jax import Array

from hpml.marl.algorithm import Algorithm, clipped_objective
from hpml.marl.settings import Settings


class MAPPO(Algorithm):
    """Decentralised actors, one critic that sees everybody, clipped ratios."""

    central = True

    def objective(self, log_ratio: Array, advantages: Array, settings: Settings) -> Array:
        """PPO's clipped gain."""
        return clipped_objective(log_ratio, advantages, settings.clip)
