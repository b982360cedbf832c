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

from hpml.marl.algorithm import Algorithm, evaluate
from hpml.marl.networks import Actor, axes
from hpml.marl.rollout import Batch
from hpml.marl.settings import Settings

Tree = Any


def joint_field(algorithm: Algorithm, batch: Batch, settings: Settings) -> Callable[[Actor], Tree]:
    """Gradients of all agents' losses as a function of all agents' parameters, from one minibatch.

    Each agent's loss is differentiated in its own log-probabilities alone, and one pull-back takes all of them to the
    parameters. The weights stay functions of the parameters, so that a Jacobian of the field sees the others move.
    """

    def half_field(actors: Actor, half: Batch) -> Tree:
        (log_probs, entropy), pull = jax.vjp(lambda a: evaluate(a, half, settings), actors)
        log_ratio = log_probs - half.log_probs
        slope = jax.grad(lambda r: jnp.sum(algorithm.objective(r, half.advantages, settings)))(log_ratio)
        weight = jnp.exp(jnp.sum(log_ratio, 0, keepdims=True) - log_ratio)
        samples = log_ratio[0].size
        (field,) = pull((-weight * slope / samples, jnp.full_like(entropy, -settings.entropy / samples)))
        return field

    def field(actors: Actor) -> Tree:
        halves = jax.vmap(half_field, in_axes=(None, axes(batch)))(actors, batch)
        return jax.tree.map(lambda g: jnp.mean(g, 0), halves)

    return field
