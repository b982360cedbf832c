"""Advantages, targets and running scales, each agent on its own."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float

# The running scales follow the last hundred updates or so.
FOLLOW = 0.01


def advantages_of(
    rewards: Float[Array, " T *batch"],
    values: Float[Array, " times *batch"],
    ends: Bool[Array, " T *batch"],
    discount: float,
    trace: float,
) -> Float[Array, " T *batch"]:
    """Generalised advantage estimation: sums of temporal differences, (discount trace)^k each.

    `values` has one time more than `rewards`; where a step ends the episode nothing comes after it.
    """

    def back(later: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
        reward, value, after, end = now
        goes_on = 1.0 - end.astype(value.dtype)
        here = reward + discount * goes_on * after - value + discount * trace * goes_on * later
        return here, here

    first = jnp.zeros_like(values[0])
    _, found = jax.lax.scan(back, first, (rewards, values[:-1], values[1:], ends), reverse=True)
    return found


class Scale(eqx.Module):
    """A running mean and mean square, (agents,), that forgets; `seen` undoes the start from zero."""

    mean: Float[Array, " agents"]
    square: Float[Array, " agents"]
    seen: Float[Array, ""]

    @property
    def centre(self) -> Array:
        """The mean so far, 0 before any data."""
        return self.mean / jnp.where(self.seen > 0, self.seen, 1.0)

    @property
    def deviation(self) -> Array:
        """The standard deviation so far, 1 before any data, never below 1e-3."""
        known = jnp.where(self.seen > 0, self.seen, 1.0)
        variance = jnp.maximum(self.square / known - self.centre**2, 1e-6)
        return jnp.where(self.seen > 0, jnp.sqrt(variance), 1.0)


def new_scale(agents: int) -> Scale:
    """A scale that has seen nothing."""
    return Scale(jnp.zeros(agents), jnp.zeros(agents), jnp.zeros(()))


def follow(scale: Scale, data: Float[Array, "*batch agents"]) -> Scale:
    """The scale after one more batch."""
    axes = tuple(range(data.ndim - 1))
    mix = lambda old, new: (1.0 - FOLLOW) * old + FOLLOW * new  # noqa: E731
    return Scale(
        mix(scale.mean, jnp.mean(data, axes)),
        mix(scale.square, jnp.mean(data**2, axes)),
        mix(scale.seen, 1.0),
    )


def normalised(
    advantages: Float[Array, "*batch agents"], least: Float[Array, " agents"] | float = 0.0
) -> Float[Array, "*batch agents"]:
    """Mean 0 and deviation 1 for each agent; advantages that are all alike become 0.

    Where the deviation is below `least`, it is `least` that becomes 1: a batch in which nothing happened must not have
    its rounding and its critic's noise blown up to the size of a batch with rewards.
    """
    axes = tuple(range(advantages.ndim - 1))
    centred = advantages - jnp.mean(advantages, axes)
    return centred / jnp.maximum(jnp.sqrt(jnp.mean(centred**2, axes)) + 1e-8, least)


def discounted(
    rewards: Float[Array, "T E agents"], ends: Bool[Array, "T E"], before: Float[Array, "E agents"], discount: float
) -> tuple[Float[Array, "E agents"], Float[Array, "T E agents"]]:
    """Discounted sums of past rewards along each episode, and the last of them to go on from."""

    def on(total: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, end = now
        total = discount * total + reward
        return jnp.where(end[:, None], 0.0, total), total

    return jax.lax.scan(on, before, (rewards, ends))
