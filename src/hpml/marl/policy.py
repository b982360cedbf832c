"""Policies over finitely many actions, some of which may be forbidden."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from hpml.marl.env import FORBIDDEN


def allowed(logits: Array, mask: Any) -> Array:
    """Log-probabilities (..., actions), those of forbidden actions practically minus infinity."""
    return jax.nn.log_softmax(logits if mask is None else jnp.where(mask, logits, FORBIDDEN))


def chosen(log_policy: Array, actions: Int[Array, "..."]) -> Array:
    """The log-probability of the actions that were taken."""
    # A sum, not a look-up: the gradient of a look-up adds entries one by one.
    return jnp.sum(jnp.where(actions[..., None] == jnp.arange(log_policy.shape[-1]), log_policy, 0.0), -1)


def entropy_of(log_policy: Float[Array, "*batch actions"]) -> Float[Array, "*batch"]:
    """The entropy of each policy; a forbidden action adds nothing."""
    return -jnp.sum(jnp.where(log_policy > 0.5 * FORBIDDEN, jnp.exp(log_policy) * log_policy, 0.0), -1)


class Played(NamedTuple):
    """Actions with their log-probabilities, (..., agents), and the memory after them."""

    actions: Array
    log_probs: Array
    memory: Any
