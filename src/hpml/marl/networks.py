"""Actors and critics: sprites, one dense layer over the picture, one more, and a head.

The engine draws its pictures from squares of 8 x 8 pixels, so the first layer reads a square at a time: one matrix
product. Every agent has parameters of its own along a first axis, and what is written here is for one agent; `jax.vmap`
runs all of them.

The central critic differs from independent ones by one sum: each agent's first layer is added up over the agents before
the non-linearity, so that every value head sees everybody. Both have the same number of parameters.
"""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, UInt8

from hpml.marl.env import Spec, patch_shape
from hpml.marl.settings import Settings
from hpml.native.pictures import available, picture_sums


class Dense(eqx.Module):
    """x -> W x + b.

    The inputs are the last axis of W: so do gradients come out of a matrix product, which the learner would turn over.
    """

    weight: Float[Array, "*agents outputs inputs"]
    bias: Float[Array, "*agents outputs"]

    def __call__(self, x: Array) -> Array:
        """From (..., inputs) to (..., outputs), as one matrix product: with more axes XLA copies on the CPU."""
        flat = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
        flat = jax.lax.dot_general(flat, self.weight, (((1,), (1,)), ((), ()))) + self.bias
        return flat.reshape(*x.shape[:-1], flat.shape[-1])


def dense(key: Array, inputs: int, outputs: int, gain: float) -> Dense:
    """A layer with normal weights of variance gain^2 / inputs.

    Not orthogonal ones: several QR factorisations in one compiled program wait for each other for ever on two cores.
    """
    # Drawn flat, the same numbers: XLA takes half as long to compile it.
    weight = jax.random.normal(key, (inputs * outputs,), jnp.float32).reshape(outputs, inputs)
    return Dense(weight * (gain / max(inputs, 1) ** 0.5), jnp.zeros(outputs, jnp.float32))


class Drawn(eqx.Module):
    """Pictures as places in a book of different squares (`sprites.py`): the same squares, each read once.

    One book is everybody's: it has no axis of agents or samples.
    """

    places: Int[Array, "*batch cells"]
    book: UInt8[Array, "squares pixels"]


def is_drawn(node: Any) -> bool:
    """Where a tree of samples has more than arrays."""
    return isinstance(node, Drawn)


def axes(samples: Any) -> Any:
    """The `in_axes` of a vmap over the first axis of samples."""
    drawn = lambda x: eqx.tree_at(lambda d: (d.places, d.book), x, (0, None))  # noqa: E731
    return jax.tree.map(lambda x: drawn(x) if is_drawn(x) else 0, samples, is_leaf=is_drawn)


def map_samples(change: Callable[[Array], Array], samples: Any) -> Any:
    """`change` of every array of samples; books stay as they are."""
    each = lambda x: Drawn(change(x.places), x.book) if is_drawn(x) else change(x)  # noqa: E731
    return jax.tree.map(each, samples, is_leaf=is_drawn)


class Sight(eqx.Module):
    """What an agent sees, as the input of its first hidden layer."""

    vector: Dense
    sprites: Dense | None
    picture: Dense | None

    def __call__(self, vector: Array, patches: Any) -> Array:
        """From vectors (..., numbers) and squares to (..., hidden).

        Squares are bytes (..., cells, pixels), or `Drawn`.
        """
        total = self.vector(vector)
        if self.sprites is not None and self.picture is not None:
            read = lambda squares: jax.nn.relu(self.sprites(squares.astype(jnp.float32) / 127.5 - 1.0))  # noqa: E731
            if isinstance(patches, Drawn) and available():
                squares = read(patches.book)
                return total + picture_sums(self.picture.weight, squares, patches.places) + self.picture.bias
            drawn = read(patches.book)[patches.places] if isinstance(patches, Drawn) else read(patches)
            total = total + self.picture(drawn.reshape(*drawn.shape[:-2], -1))
        return total


def sight(key: Array, spec: Spec, settings: Settings, extra: int = 0) -> Sight:
    """A first layer for an environment, with `extra` numbers beside the ones that it gives."""
    keys = jax.random.split(key, 3)
    gain = 2**0.5
    vector = dense(keys[0], spec.vector + extra, settings.hidden, gain)
    if spec.image is None:
        return Sight(vector, None, None)
    cells, pixels = patch_shape(spec)
    sprites = dense(keys[1], pixels, settings.sprites, gain)
    return Sight(vector, sprites, dense(keys[2], cells * settings.sprites, settings.hidden, gain))


def to_patches(image: Array, side: int) -> Array:
    """Pictures (..., height, width, channels) as squares (..., cells, pixels); a last broken square is filled up."""
    *lead, height, width, channels = image.shape
    rows, columns = -(-height // side), -(-width // side)
    spare = [(0, 0)] * len(lead) + [(0, rows * side - height), (0, columns * side - width), (0, 0)]
    if any(more for _, more in spare):
        image = jnp.pad(image, spare)
    squares = image.reshape(*lead, rows, side, columns, side, channels)
    return jnp.moveaxis(squares, -3, -4).reshape(*lead, rows * columns, side * side * channels)


class Actor(eqx.Module):
    """One agent's policy: what it sees, an optional memory, and a logit for each action."""

    sight: Sight
    hidden: Dense
    memory: eqx.nn.GRUCell | None
    head: Dense

    def __call__(self, vector: Array, patches: Any, memory: Any, starts: Array) -> tuple[Array, Any]:
        """Logits of chunks (samples, steps, actions), and the memory after the last step.

        `memory` (samples, units) is what was known before the first step, `starts` (samples, steps) where an episode
        begins and nothing is known.
        """
        x = jax.nn.relu(self.hidden(jax.nn.relu(self.sight(vector, patches))))
        if self.memory is not None:
            remember = jax.vmap(self.memory)

            def step(known: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
                seen, start = now
                known = remember(seen, jnp.where(start[:, None], 0.0, known))
                return known, known

            memory, x = jax.lax.scan(step, memory, (jnp.moveaxis(x, 1, 0), jnp.moveaxis(starts, 1, 0)))
            x = jnp.moveaxis(x, 0, 1)
        return self.head(x), memory


def init_actor(key: Array, spec: Spec, settings: Settings) -> Actor:
    """One agent's first policy, almost uniform over the actions."""
    keys = jax.random.split(key, 4)
    units = settings.memory or settings.hidden
    return Actor(
        sight(keys[0], spec, settings, spec.agents if settings.share else 0),
        dense(keys[1], settings.hidden, settings.hidden, 2**0.5),
        eqx.nn.GRUCell(settings.hidden, settings.memory, key=keys[2]) if settings.memory else None,
        dense(keys[3], units, spec.actions, 0.01),
    )


def init_actors(key: Array, spec: Spec, settings: Settings) -> Actor:
    """All agents' policies along a first axis, or the one that they share."""
    if settings.share:
        return init_actor(key, spec, settings)
    return jax.vmap(lambda k: init_actor(k, spec, settings))(jax.random.split(key, spec.agents))


class Critic(eqx.Module):
    """Values for every agent, from everybody's observations (`central`) or each from its own.

    `actions`, where there is one, adds what the other agents do; heads then give a value for each own action.
    """

    sight: Sight
    actions: Float[Array, "agents actions hidden"] | None
    hidden: Dense
    head: Dense
    central: bool = eqx.field(static=True)

    def __call__(self, vector: Array, patches: Any, actions: Any = None) -> Array:
        """Values (agents, samples, outputs) from arrays whose first two axes are agents and samples."""
        x = jax.vmap(lambda see, v, p: see(v, p), in_axes=(0, 0, axes(patches)))(self.sight, vector, patches)
        agents = x.shape[0]
        if self.central:
            x = jnp.broadcast_to(jnp.sum(x, 0, keepdims=True) / agents**0.5, x.shape)
        if self.actions is not None:
            # A product, not a look-up: the gradient of a look-up adds rows one by one.
            named = jax.nn.one_hot(actions, self.actions.shape[1], dtype=x.dtype)
            played = jax.vmap(lambda table, a: a @ table)(self.actions, named)
            x = x + (jnp.sum(played, 0, keepdims=True) - played) / agents**0.5
        x = jax.vmap(lambda layer, y: layer(y))(self.hidden, jax.nn.relu(x))
        return jax.vmap(lambda layer, y: layer(y))(self.head, jax.nn.relu(x))


def init_critic(key: Array, spec: Spec, settings: Settings, central: bool, counterfactual: bool = False) -> Critic:
    """A critic that sees what the actors see and what they remember."""

    def one(key: Array) -> tuple[Sight, Any, Dense, Dense]:
        keys = jax.random.split(key, 4)
        # One row is read at a time, so that its entries are as large as what the first layer gives.
        table = jax.random.normal(keys[1], (spec.actions, settings.hidden), jnp.float32)
        return (
            sight(keys[0], spec, settings, settings.memory + (spec.agents if settings.share else 0)),
            table if counterfactual else None,
            dense(keys[2], settings.hidden, settings.hidden, 2**0.5),
            dense(keys[3], settings.hidden, spec.actions if counterfactual else 1, 1.0),
        )

    return Critic(*jax.vmap(one)(jax.random.split(key, spec.agents)), central=central)


def count_parameters(tree: Any) -> int:
    """How many numbers a network has."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))
