"""Hosted environments played by policies on the learner's device: for a GPU, where the workers' cores are scarce.

Every step is one call for half of the environments of all seeds, while the workers step the other half. What is seen
goes to the device once, and stays there for the learner. The draws are those of the policies in the workers, so that
both ways of playing differ by rounding alone.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hpml.marl.collect.hosted import Between, draw_all
from hpml.marl.collect.pool import Pool
from hpml.marl.collect.wire import HALVES
from hpml.marl.env import Observation
from hpml.marl.learner import Trainer
from hpml.marl.networks import Actor
from hpml.marl.policy import draw_by_numbers


class Film(NamedTuple):
    """What the device has of a rollout, arrays (times, seeds, environments, agents, ...); `time` is that of each half.

    `memory` is None where the actors have none.
    """

    seen: Observation
    memory: Any
    actions: jax.Array
    log_probs: jax.Array
    time: jax.Array


class Central:
    """Plays the rollouts of a pool that has halves."""

    def __init__(self, trainer: Trainer, pool: Pool) -> None:
        self._pool, self._film = pool, _blank(trainer, pool)
        parts = tuple(pool.half(half) for half in range(HALVES))
        # The film is written where it lies: donated, and given back.
        self._show = jax.jit(partial(_show, parts), static_argnums=0, donate_argnums=1)
        self._act = jax.jit(partial(_act, trainer, parts), static_argnums=0, donate_argnums=1)

    def collect(self, actors: Actor, keys: jax.Array, between: Between) -> tuple[Between, tuple[Any, ...]]:
        """Play as many steps as the pool holds, all seeds at once; see `hosted.collect`."""
        pool, film = self._pool, self._film
        T, S, E, agents = pool.steps, len(pool.seeds), pool.environments, pool.spec.agents
        arrays = {name: array.reshape(len(array), S, E, *array.shape[2:]) for name, array in pool.arrays.items()}
        draws = draw_all(keys, between.steps, T, E, agents)
        if film.memory is not None:
            film = film._replace(memory=film.memory.at[0].set(between.memory))
        film = film._replace(time=jnp.zeros(HALVES, jnp.int32))

        def shown(t: int, half: int) -> tuple[Observation, np.ndarray]:
            part = pool.half(half)
            seen = {name: arrays[name][t, :, part] for name in Observation._fields if name in arrays}
            starts = between.starts if t == 0 else arrays["done"][t - 1]
            return Observation(**seen), starts[:, part]

        halves = [half for half in range(HALVES) if half < E]
        for t in range(T):
            for half in halves:
                if t > 0:
                    pool.stepped()
                film, actions = self._act(half, film, actors, *shown(t, half), draws)
                arrays["actions"][t, :, pool.half(half)] = actions
                pool.step(t, half)
        for half in halves:
            pool.stepped()
            film, _ = self._show(half, film, *shown(T, half))
        pool.record()
        self._film = film
        starts = np.concatenate([between.starts[None], arrays["done"]])
        memory = None if film.memory is None else np.asarray(film.memory[T])
        then = Between(starts[T], memory, between.running, between.steps + T)
        rest = arrays["rewards"], arrays["convention"]
        return then, (film.seen, starts, film.memory, film.actions, film.log_probs, *rest)


def _blank(trainer: Trainer, pool: Pool) -> Film:
    T, S, E, agents = pool.steps, len(pool.seeds), pool.environments, pool.spec.agents
    like = lambda name: jnp.zeros((T + 1, S, E, *pool.arrays[name].shape[2:]), pool.arrays[name].dtype)  # noqa: E731
    units = trainer.settings.memory
    return Film(
        seen=Observation(**{name: like(name) for name in Observation._fields if name in pool.arrays}),
        memory=jnp.zeros((T + 1, S, E, agents, units), jnp.float32) if units else None,
        actions=jnp.zeros((T, S, E, agents), jnp.int32),
        log_probs=jnp.zeros((T, S, E, agents), jnp.float32),
        time=jnp.zeros(HALVES, jnp.int32),
    )


def _show(parts: tuple[slice, ...], half: int, film: Film, seen: Observation, starts: jax.Array) -> tuple[Film, Any]:
    """The film with what a half sees next, and what its actors know: nothing where an episode starts."""
    t, part = film.time[half], parts[half]
    known = None
    if film.memory is not None:
        known = jnp.where(starts[..., None, None], 0.0, jnp.take(film.memory, t, axis=0)[:, part])
        film = film._replace(memory=_put(film.memory, known, t, part))
    shown = jax.tree.map(lambda frames, frame: _put(frames, frame, t, part), film.seen, seen)
    return film._replace(seen=shown, time=film.time.at[half].add(1)), known


def _act(
    trainer: Trainer,
    parts: tuple[slice, ...],
    half: int,
    film: Film,
    actors: Actor,
    seen: Observation,
    starts: jax.Array,
    draws: jax.Array,
) -> tuple[Film, jax.Array]:
    """The film with what a half sees next and does then, and its actions (seeds, environments, agents)."""
    t, part = film.time[half], parts[half]
    film, known = _show(parts, half, film, seen, starts)

    def one(actors: Actor, seen: Observation, known: Any, starts: jax.Array, numbers: jax.Array) -> Any:
        return trainer.act(actors, seen, known, starts, draw_by_numbers(numbers))

    played = jax.vmap(one)(actors, seen, known, starts, jnp.take(draws, t, axis=0)[:, part])
    film = film._replace(
        actions=_put(film.actions, played.actions, t, part),
        log_probs=_put(film.log_probs, played.log_probs, t, part),
        memory=None if film.memory is None else _put(film.memory, played.memory, t + 1, part),
    )
    return film, played.actions


def _put(frames: jax.Array, frame: jax.Array, t: jax.Array, part: slice) -> jax.Array:
    """Frames with that of a half at time t."""
    zero = jnp.zeros((), jnp.int32)
    place = (t, zero, zero + part.start, *[zero] * (frames.ndim - 3))
    return jax.lax.dynamic_update_slice(frames, frame[None].astype(frames.dtype), place)
