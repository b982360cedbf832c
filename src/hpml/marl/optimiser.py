"""The optimisers of actors and critic: gradients scaled down agent by agent, then Adam."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from hpml.geometry.leaves import Leaves
from hpml.marl.settings import Settings

Tree = Any


def agent_norms(gradients: Tree) -> Array:
    """The length of each agent's block; agents are the first axis of every leaf."""
    return jnp.sqrt(jax.vmap(lambda block: Leaves(None, None).products(block, block)[0])(gradients))


def clip_agents(longest: float) -> optax.GradientTransformationExtraArgs:
    """Scale each agent's block down to `longest`; the others' gradients do not matter.

    Who knows the blocks' lengths hands them over: `update(..., norms=norms)`.
    """

    def update(
        gradients: Tree, state: optax.EmptyState, params: Tree = None, *, norms: Array | None = None, **extra: Any
    ) -> tuple[Tree, optax.EmptyState]:
        norms = agent_norms(gradients) if norms is None else norms
        factor = longest / jnp.maximum(norms, longest)
        scaled = jax.tree.map(lambda g: g * factor.reshape(-1, *[1] * (g.ndim - 1)), gradients)
        return scaled, state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def actor_optimiser(settings: Settings) -> optax.GradientTransformationExtraArgs:
    """What follows the projection in the actors' chain."""
    clip = optax.clip_by_global_norm(settings.max_gradient) if settings.share else clip_agents(settings.max_gradient)
    return optax.chain(clip, optax.adam(settings.actor_rate, eps=settings.epsilon))


def critic_optimiser(settings: Settings) -> optax.GradientTransformationExtraArgs:
    """The critics' chain; heads of different agents share it but not their parameters."""
    return optax.chain(clip_agents(settings.max_gradient), optax.adam(settings.critic_rate, eps=settings.epsilon))
