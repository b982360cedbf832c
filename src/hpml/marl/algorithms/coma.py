"""COMA: an agent learns how much better its action was than its own average, given what the others did.

The central critic is told what the others do and gives a value Q for each own action. The advantage of an action is its
Q minus the mean of Q over the agent's own policy (the counterfactual baseline); forbidden actions have no part in it.
The policy gradient is plain, with one pass over the samples, as in IA2C.

The critic learns lambda-returns of Q at the actions taken. After the last step of a rollout nobody has acted yet, so
there every agent draws an action from its current policy, and agent i goes on with the mean of its Q over its own
policy, given the others' draws. One draw is enough: its mean is right.

The original has one reward and one Q for the team. Here agent i's Q is of its own reward: the critic has a trunk that
sees everybody's observations and a head for each agent. The baseline does not depend on the agent's own action, so
each agent's expected gradient is still that of its own return. With a common reward the heads learn the same Q.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from hpml.marl.advantage import Scale, advantages_of
from hpml.marl.algorithm import Algorithm, Judged, critic_values, policies
from hpml.marl.networks import Actor, Critic, axes
from hpml.marl.policy import chosen
from hpml.marl.rollout import Batch, Rollout, mend
from hpml.marl.settings import Settings


class COMA(Algorithm):
    """Decentralised actors, a central critic of every own action, plain policy gradients."""

    central = True
    counterfactual = True
    reuse = False

    def objective(self, log_ratio: Array, advantages: Array, settings: Settings) -> Array:
        """Ratio times advantage."""
        return jnp.exp(log_ratio) * advantages

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
        """See `Algorithm.assess`: counterfactual advantages, and lambda-returns of Q."""
        look = jax.vmap(lambda half: policies(actors, half, settings), in_axes=(axes(batch),))
        values = critic_values(critic, batch)
        taken = mend(chosen(values, batch.actions), settings)
        average = mend(_mean(values, look(batch)), settings)

        log_policy = look(last)
        drawn = jax.random.categorical(key, log_policy).astype(batch.actions.dtype)
        last = eqx.tree_at(lambda b: b.actions, last, drawn)
        after = jnp.moveaxis(_mean(critic_values(critic, last), log_policy)[0, :, :, 0], 0, -1)

        foretold = jnp.concatenate([taken, after[None]]) * scale.deviation + scale.centre
        ends = jnp.broadcast_to(rollout.starts[1:, :, None], rollout.rewards.shape)
        surprise = advantages_of(rollout.rewards, foretold, ends, settings.discount, settings.trace)
        return Judged((taken - average) * scale.deviation, surprise + foretold[:-1], foretold[:-1])

    def critic_loss(self, critic: Critic, batch: Batch, settings: Settings) -> Array:
        """Half the mean square error of Q at the actions taken, summed over agents."""
        values = chosen(critic_values(critic, batch), batch.actions)
        return 0.5 * jnp.sum(jnp.mean((values - batch.targets) ** 2, axis=(0, 2, 3)))


def _mean(values: Array, log_policy: Array) -> Array:
    """The mean of Q over the policy; what is forbidden has probability 0."""
    return jnp.sum(jnp.exp(log_policy) * values, -1)
