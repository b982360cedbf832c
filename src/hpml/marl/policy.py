"""Policies over finitely many actions, some of which may be forbidden."""

from collections.abc import Callable
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


def draw_by_keys(keys: Array) -> Callable[[Array], Array]:
    """Actions of policies (E, agents, actions), with a key for each environment."""
    return lambda log_policy: jax.vmap(jax.random.categorical)(keys, log_policy)


def draw_by_numbers(numbers: Array) -> Callable[[Array], Array]:
    """Actions of policies (E, agents, actions), by numbers (E, agents) that are uniform on [0, 1): as `Player` does."""

    def draw(log_policy: Array) -> Array:
        mass = jnp.cumsum(jnp.exp(log_policy), -1)
        return jnp.sum(mass <= (numbers * mass[..., -1])[..., None], -1)

    return draw


def entropy_of(log_policy: Float[Array, "*batch actions"]) -> Float[Array, "*batch"]:
    """The entropy of each policy; a forbidden action adds nothing."""
    return -jnp.sum(jnp.where(log_policy > 0.5 * FORBIDDEN, jnp.exp(log_policy) * log_policy, 0.0), -1)


class Played(NamedTuple):
    """Actions with their log-probabilities, (..., agents), and the memory after them."""

    actions: Array
    log_probs: Array
    memory: Any
