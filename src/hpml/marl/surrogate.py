"""The joint-ratio surrogate: each agent's objective with everybody's likelihood ratios, so that its gradient field has
the true cross-agent response at the current parameters (`rem:jac_bridge`).

Agent i's gain in a sample is weighted by the product of the other agents' ratios of new to old probability. At the
parameters that played these are 1 and the field is the algorithm's own; away from them the batch says how i's gradient
answers when the others change, from the same data.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from hpml.marl.algorithm import Algorithm, evaluate
from hpml.marl.networks import Actor
from hpml.marl.rollout import Batch
from hpml.marl.settings import Settings

Tree = Any


def joint_field(algorithm: Algorithm, batch: Batch, settings: Settings) -> Callable[[Actor], Tree]:
    """Gradients of all agents' losses as a function of all agents' parameters, from one minibatch."""

    def loss(actors: Actor, others: Actor, half: Batch) -> Array:
        log_probs, entropy = evaluate(actors, half, settings)
        fixed, _ = evaluate(others, half, settings)
        ratio = fixed - half.log_probs
        weight = jnp.exp(jnp.sum(ratio, 0, keepdims=True) - ratio)
        gain = weight * algorithm.objective(log_probs - half.log_probs, half.advantages, settings)
        return -jnp.sum(jnp.mean(gain + settings.entropy * entropy, axis=(1, 2)))

    def field(actors: Actor) -> Tree:
        # Differentiated in the first argument only, but a function of both: a Jacobian of it sees the others move.
        halves = jax.vmap(jax.grad(loss), in_axes=(None, None, 0))(actors, actors, batch)
        return jax.tree.map(lambda g: jnp.mean(g, 0), halves)

    return field
