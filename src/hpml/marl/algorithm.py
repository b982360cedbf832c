"""The contract that every algorithm keeps.

An algorithm says what its critic sees, how advantages and targets come from it, what each agent maximises, and how the
stacked gradient of all agents is formed. Networks, batches, optimisers and the projection are shared: `learner.py` runs
the same lines for all of them.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from hpml.marl.advantage import Scale, advantages_of
from hpml.marl.networks import Actor, Critic, axes, map_samples
from hpml.marl.policy import allowed, chosen, entropy_of
from hpml.marl.rollout import Batch, Rollout, mend
from hpml.marl.settings import Settings

Tree = Any


class Judged(NamedTuple):
    """What the critic makes of a rollout, in units of its rewards.

    `returns` is what it should have foretold, `foretold` what it did.
    """

    advantages: Float[Array, "T E agents"]
    returns: Float[Array, "T E agents"]
    foretold: Float[Array, "T E agents"]


class Algorithm(ABC):
    """How several agents learn at once.

    - `central`: the critic sees everybody's observations, else each agent's critic its own.
    - `counterfactual`: the critic gives a value for each own action and is told what the others do.
    - `sequential`: agents move one after another, so each needs an actor of its own.
    - `reuse`: samples may serve in several passes. Without a clipped ratio policies run away from the ones that played:
      such methods see a sample once, and get as many optimiser steps from smaller minibatches.
    """

    central: ClassVar[bool]
    counterfactual: ClassVar[bool] = False
    sequential: ClassVar[bool] = False
    reuse: ClassVar[bool] = True

    @abstractmethod
    def objective(self, log_ratio: Array, advantages: Array, settings: Settings) -> Array:
        """What an agent maximises in each sample; `log_ratio` is of the action's new to its old probability."""

    def assess(
        self,
        critic: Critic,
        scale: Scale,
        actors: Actor,
        batch: Batch,
        last: Batch,
        rollout: Rollout,
        settings: Settings,
        key: Array,
    ) -> Judged:
        """Advantages and returns from the critic before the update.

        `batch` has the inputs of the networks, without advantages and targets yet; `last` those of the last
        observation, as one half of E chunks of one step in which nobody has acted. `key` is for draws.
        """
        values = mend(critic_values(critic, batch)[..., 0], settings)
        after = jnp.moveaxis(critic_values(critic, last)[0, :, :, 0, 0], 0, -1)
        values = jnp.concatenate([values, after[None]]) * scale.deviation + scale.centre
        ends = jnp.broadcast_to(rollout.starts[1:, :, None], rollout.rewards.shape)
        advantages = advantages_of(rollout.rewards, values, ends, settings.discount, settings.trace)
        return Judged(advantages, advantages + values[:-1], values[:-1])

    def critic_loss(self, critic: Critic, batch: Batch, settings: Settings) -> Array:
        """Half the mean square error of the values, summed over agents."""
        values = critic_values(critic, batch)[..., 0]
        return 0.5 * jnp.sum(jnp.mean((values - batch.targets) ** 2, axis=(0, 2, 3)))

    def loss(
        self, actors: Actor, half: Batch, settings: Settings, weight: Array | float = 1.0
    ) -> tuple[Array, dict[str, Array]]:
        """The actors' losses on one half, added up, and what to log of each agent; `weight` multiplies the gains."""
        log_probs, entropy = evaluate(actors, half, settings)
        log_ratio = log_probs - half.log_probs
        gain = weight * self.objective(log_ratio, half.advantages, settings)
        mean = lambda x: jnp.mean(x, axis=(1, 2))  # noqa: E731
        seen = {
            "gain": mean(gain),
            "entropy": mean(entropy),
            "divergence": mean(jnp.exp(log_ratio) - 1.0 - log_ratio),
            "clipped": mean((jnp.abs(jnp.exp(log_ratio) - 1.0) > settings.clip).astype(jnp.float32)),
        }
        return -jnp.sum(mean(gain) + settings.entropy * mean(entropy)), seen

    def gradients(
        self, actors: Actor, batch: Batch, settings: Settings, move: Callable[[Any, Tree], Tree], key: Array
    ) -> tuple[Tree, dict[str, Array]]:
        """Gradients of the losses from each half of the batch, (half, ...), and what to log, (half, agents).

        All agents at once unless an algorithm says otherwise. `move(i, gradient)` tells where the optimiser alone would
        take agent i; `key` is the same for all minibatches of an update.
        """
        slope = jax.grad(self.loss, has_aux=True)
        return jax.vmap(lambda half: slope(actors, half, settings), in_axes=(axes(batch),))(batch)


def policies(actors: Actor, batch: Batch, settings: Settings) -> Array:
    """Log-probabilities of all actions, (agents, chunks, steps, actions), from one half."""
    seen = batch.seen
    memory = None if batch.memory is None else batch.memory[:, :, 0]
    own = None if settings.share else 0
    run = jax.vmap(lambda actor, *rest: actor(*rest)[0], in_axes=(own, 0, axes(seen.patches), 0, 0))
    return allowed(run(actors, seen.vector, seen.patches, memory, batch.starts), seen.mask)


def evaluate(actors: Actor, batch: Batch, settings: Settings) -> tuple[Array, Array]:
    """Log-probabilities of the actions taken and entropies, each (agents, chunks, steps), from one half."""
    log_policy = policies(actors, batch, settings)
    return chosen(log_policy, batch.actions), entropy_of(log_policy)


def critic_values(critic: Critic, batch: Batch) -> Array:
    """The critic's outputs, (half, agents, chunks, steps, outputs), in its own scale."""
    actions = batch.actions if critic.actions is not None else None
    vector = batch.seen.vector if batch.memory is None else jnp.concatenate([batch.seen.vector, batch.memory], -1)
    # Both halves in one matrix product for each agent: on the CPU up to three times as fast as two.
    halves, agents, *samples = batch.actions.shape
    merge = lambda x: jnp.moveaxis(x, 0, 1).reshape(agents, halves * math.prod(samples), *x.shape[4:])  # noqa: E731
    values = critic(merge(vector), map_samples(merge, batch.seen.patches), None if actions is None else merge(actions))
    return jnp.moveaxis(values.reshape(agents, halves, *samples, values.shape[-1]), 1, 0)


def clipped_objective(log_ratio: Array, advantages: Array, clip: float) -> Array:
    """The pessimistic gain of PPO: ratio times advantage, with no reward for a ratio beyond 1 +- clip."""
    ratio = jnp.exp(log_ratio)
    return jnp.minimum(ratio * advantages, jnp.clip(ratio, 1.0 - clip, 1.0 + clip) * advantages)
