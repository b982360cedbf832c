"""What was played, and how the learner cuts it: two independent halves of chunks.

A `Rollout` is time-major, as it was collected. The learner wants (half, agents, chunks, steps, ...): halves are
different environments (or the two halves of the time where there is only one), so that two estimates of every gradient
are independent; agents come before samples, so that each agent's network is one batched matrix product.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int, UInt8

from hpml.marl.env import Observation, Spec
from hpml.marl.networks import Drawn, map_samples, to_patches
from hpml.marl.settings import Settings


class Rollout(eqx.Module):
    """T steps of E environments.

    - `observation`: (T + 1, E, agents, ...); the last is the one that the next rollout begins with.
    - `starts`: where the observation is the first of an episode; `starts[t + 1]` also says that step t ended one.
    - `memory`: what each actor knew before it saw the observation; None without a memory.
    - `rewards`: in the environment's units.
    - `convention`: -1 where no interaction ended.
    """

    observation: Observation
    starts: Bool[Array, "times E"]
    memory: Float[Array, "times E agents units"] | None
    actions: Int[Array, "T E agents"]
    log_probs: Float[Array, "T E agents"]
    rewards: Float[Array, "T E agents"]
    convention: Int[Array, "T E agents"]


class Seen(eqx.Module):
    """The inputs of the networks."""

    vector: Array
    patches: Any
    mask: Any


class Batch(eqx.Module):
    """Samples as the losses read them: (half, agents, chunks, steps, ...).

    `memory` is what the actors knew before each step; the critic sees it, the actors only that of a chunk's first step.
    """

    seen: Seen
    starts: Array
    memory: Any
    actions: Array
    log_probs: Array
    advantages: Array
    targets: Array


def see(observation: Observation, spec: Spec, settings: Settings) -> Seen:
    """Pictures as squares, and numbers with the agent's name where the actors are shared."""
    vector = observation.vector
    if settings.share:
        names = jnp.eye(spec.agents, dtype=vector.dtype)
        vector = jnp.concatenate([vector, jnp.broadcast_to(names, (*vector.shape[:-1], spec.agents))], -1)
    image = observation.image
    if image is not None and image.dtype == jnp.uint8:  # else places in a book already
        image = to_patches(image, spec.patch)
    return Seen(vector, image, observation.mask)


def with_book(batch: Batch, book: UInt8[Array, "squares pixels"] | None) -> Batch:
    """The batch whose pictures are places in `book`."""
    return batch if book is None else eqx.tree_at(lambda b: b.seen.patches, batch, Drawn(batch.seen.patches, book))


def cut(tree: Any, settings: Settings) -> Any:
    """From (T, E, agents, ...) to (half, agents, chunks, steps, ...)."""
    steps = settings.steps_back

    def one(x: Array) -> Array:
        T, E, agents, *rest = x.shape
        if E == 1:
            x = x.reshape(2, T // (2 * steps), steps, 1, agents, *rest)
        else:
            x = jnp.moveaxis(x.reshape(T // steps, steps, 2, E // 2, agents, *rest), 2, 0)
        # half, time, steps, environment, agents -> half, agents, time, environment, steps
        x = jnp.moveaxis(x, (4, 2), (1, 4))
        return x.reshape(2, agents, T * E // (2 * steps), steps, *rest)  # no -1: an empty vector has no size to share

    return jax.tree.map(one, tree)


def minibatches(settings: Settings, agents: int) -> int:
    """How many minibatches a pass has: as many as the size asks for, and as divide the chunks of a half."""
    chunks = _chunks(settings)
    wanted = max(1, -(-settings.rollout * settings.environments * agents // settings.minibatch))
    return next(count for count in range(min(wanted, chunks), 0, -1) if chunks % count == 0)


def schedule(settings: Settings, agents: int, reuse: bool) -> tuple[int, int]:
    """Passes over the batch, and minibatches of each.

    Without `reuse` there are as few passes as the chunks can be cut for, and as many optimiser steps as with it.
    """
    count = minibatches(settings, agents)
    if reuse:
        return settings.passes, count
    steps, chunks = settings.passes * count, _chunks(settings)
    most = next(k for k in range(min(steps, chunks), 0, -1) if steps % k == 0 and chunks % k == 0)
    return steps // most, most


def _chunks(settings: Settings) -> int:
    """How many chunks an agent has in a half."""
    return settings.rollout * settings.environments // (2 * settings.steps_back)


def take(batch: Batch, chosen: Int[Array, "half chunks"]) -> Batch:
    """Some chunks of each half."""
    return map_samples(lambda x: jax.vmap(lambda half, index: jnp.take(half, index, axis=1))(x, chosen), batch)


def mend(x: Array, settings: Settings) -> Array:
    """The way back from `cut`: (half, agents, chunks, steps, ...) to (T, E, agents, ...)."""
    steps, E = settings.steps_back, settings.environments
    _, agents, _, _, *rest = x.shape
    x = x.reshape(2, agents, -1, max(E // 2, 1), steps, *rest)
    x = jnp.moveaxis(x, (1, 4), (4, 2))  # half, time, steps, environment, agents
    if E > 1:
        x = jnp.moveaxis(x, 0, 2)
    return x.reshape(-1, E, agents, *rest)
