"""HAPPO: agents move one after another, each knowing how those before it have moved.

An order of the agents is drawn once an update. Agent i's clipped gain in a sample is weighted by the compound ratio:
the product of the new-to-old ratios of the agents before it in the order, held fixed. The original lets each agent
finish all its passes before the next begins. Here every minibatch is one optimiser step of all agents at once, since
the projection reads their stacked gradient, so the sweep happens inside it: agent i's gradient sees the agents before
it where the optimiser alone would move them, and then the whole stack goes through the projection and the optimiser.
With one pass over one minibatch and no projection this is exactly the original; with more, agents take turns at each
step.

The original has one reward, and one joint advantage for all. Here agent i's advantages come from its own rewards and
its own head of the central critic, and are normalised on their own. With a common reward this is the original, whose
expected return cannot fall when every step is small enough. With rewards that differ the weight still corrects agent
i's estimate for what the others just did, but its gain may be another's loss: no guarantee is left.

The two halves of the batch give independent gradients except through the weight: the agents before move by the mean of
their halves. That is of the order of the learning rate.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from hpml.marl.algorithm import Algorithm, clipped_objective, evaluate
from hpml.marl.networks import Actor, axes, map_samples
from hpml.marl.rollout import Batch
from hpml.marl.settings import Settings

Tree = Any


class HAPPO(Algorithm):
    """Decentralised actors that take turns, one critic that sees everybody, clipped ratios."""

    central = True
    sequential = True

    def objective(self, log_ratio: Array, advantages: Array, settings: Settings) -> Array:
        """PPO's clipped gain."""
        return clipped_objective(log_ratio, advantages, settings.clip)

    def gradients(
        self, actors: Actor, batch: Batch, settings: Settings, move: Callable[[Any, Tree], Tree], key: Array
    ) -> tuple[Tree, dict[str, Array]]:
        """See `Algorithm.gradients`; the agents take turns in an order drawn from `key`."""
        order = jax.random.permutation(key, batch.actions.shape[1])
        slope = jax.grad(self.loss, has_aux=True)

        def turn(log_weight: Array, agent: Array) -> tuple[Array, tuple[Tree, dict[str, Array]]]:
            own = map_samples(lambda x: jax.lax.dynamic_slice_in_dim(x, agent, 1, axis=1), batch)
            actor = jax.tree.map(lambda x: x[agent][None], actors)
            learn = jax.vmap(lambda half, weight: slope(actor, half, settings, weight), in_axes=(axes(own), 0))
            halves, seen = learn(own, jnp.exp(log_weight))
            moved = move(agent, jax.tree.map(lambda g: jnp.mean(g, 0)[0], halves))
            moved = jax.tree.map(lambda x: x[None], moved)
            after, _ = jax.vmap(lambda half: evaluate(moved, half, settings), in_axes=(axes(own),))(own)
            return log_weight + after - own.log_probs, (halves, seen)

        nobody = jnp.zeros_like(batch.log_probs[:, :1])
        _, found = jax.lax.scan(turn, nobody, order)
        back = jnp.argsort(order)
        return jax.tree.map(lambda x: jnp.moveaxis(x[back, :, 0], 0, 1), found)
