"""Hosted environments: playing through a pool of worker processes, and learning, all seeds at once.

One group of environments steps while the policies think about the other. Draws depend on seed, step and environment
alone, so that neither the groups nor the workers change anything.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from hpml.marl.collect.pool import Pool
from hpml.marl.collect.tally import Tally, tally
from hpml.marl.env import Observation
from hpml.marl.learner import Learner, Report, Trainer
from hpml.marl.networks import Actor
from hpml.marl.policy import Played
from hpml.marl.rollout import Rollout
from hpml.marl.sprites import index

Act = Callable[..., Played]  # `act_all`, compiled, its first two arguments given


class Between(NamedTuple):
    """What the environments' policies carry from one rollout to the next, seeds first.

    - `starts` (S, E): where the observation is the first of its episode. `memory`: what the actors know, or None.
    - `running` (S, E, agents): returns of the episodes so far. `steps`: steps so far; every draw comes from it.
    """

    starts: np.ndarray
    memory: Any
    running: np.ndarray
    steps: int


def collect(act: Act, pool: Pool, actors: Actor, keys: jax.Array, between: Between) -> tuple[Between, tuple[Any, ...]]:
    """Play as many steps as the pool holds, all seeds at once.

    Gives what the next rollout goes on from, and the parts of a `Rollout`: arrays (times, seeds, environments, ...).
    `keys` has one for each seed.
    """
    T, S, E, agents = pool.steps, len(pool.seeds), pool.environments, pool.spec.agents
    leaves, bits = jax.tree.leaves(actors), jax.random.key_data(keys)
    starts = np.empty((T + 1, S, E), bool)
    starts[0] = between.starts
    log_probs = np.empty((T, S, E, agents), np.float32)
    memory = None if between.memory is None else np.empty((T + 1, *between.memory.shape), np.float32)
    if memory is not None:
        memory[0] = between.memory
    groups = range(len(pool.groups))

    def arrive(group: int, t: int) -> None:
        """What a group's step t led to; where an episode ended nothing is known any more."""
        pool.wait(group)
        chosen = slice(group, None, len(groups))
        starts[t + 1, :, chosen] = pool.arrays["done"][t].reshape(S, E)[:, chosen]
        if memory is not None:
            memory[t + 1, :, chosen][starts[t + 1, :, chosen]] = 0.0

    for t in range(T):
        for group in groups:
            if t:
                arrive(group, t - 1)
            chosen = slice(group, None, len(groups))
            known = None if memory is None else memory[t, :, chosen]
            seen = _by_seed(pool.observation(t, group), S)
            numbers = np.arange(E, dtype=np.uint32)[chosen]
            played = act(leaves, seen, known, starts[t, :, chosen], bits, between.steps + t, numbers)
            pool.send(group, t, np.asarray(played.actions))
            log_probs[t, :, chosen] = played.log_probs
            if memory is not None:
                memory[t + 1, :, chosen] = played.memory
    for group in groups:
        arrive(group, T - 1)
    then = Between(starts[T], None if memory is None else memory[T], between.running, between.steps + T)
    part = lambda name: pool.arrays[name].reshape(len(pool.arrays[name]), S, E, *pool.arrays[name].shape[2:])  # noqa: E731
    seen = Observation(**{name: part(name) for name in Observation._fields if name in pool.arrays})
    return then, (seen, starts, memory, part("actions"), log_probs, part("rewards"), part("convention"))


def play(
    act: Act,
    pool: Pool,
    actors: Actor,
    keys: jax.Array,
    memory: Any,
    longest: int,
    watch: Callable[[np.ndarray], None] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An episode in every slot: returns (S, episodes, agents), lengths, conventions (T, S, episodes, agents).

    Nothing is learnt. `memory` is what the actors know at first, (S, episodes, agents, units) or None, `longest` how
    many steps are played at most; `watch` is shown the pictures of the first slot, (agents, height, width, channels),
    before each step.
    """
    S, episodes, agents = len(pool.seeds), pool.environments, pool.spec.agents
    leaves, bits = jax.tree.leaves(actors), jax.random.key_data(keys)
    over, returns = np.zeros((S, episodes), bool), np.zeros((S, episodes, agents), np.float32)
    lengths, shown = np.zeros((S, episodes), np.int64), []
    numbers = np.arange(episodes, dtype=np.uint32)
    for t in range(longest):
        if watch is not None:
            watch(pool.observation(0).image[0])
        starts = np.full((S, episodes), t == 0)
        played = act(leaves, _by_seed(pool.observation(0), S), memory, starts, bits, t, numbers)
        actions, _, memory = jax.device_get(played)
        flat = actions.reshape(S * episodes, agents)
        for group, slots in enumerate(pool.groups):
            pool.send(group, 0, flat[slots])
        for group in range(len(pool.groups)):
            pool.wait(group)
        rewards, done, convention = (pool.arrays[name][0] for name in ("rewards", "done", "convention"))
        returns += np.where(over[..., None], 0.0, rewards.reshape(S, episodes, agents))
        shown.append(np.where(over[..., None], -1, convention.reshape(S, episodes, agents)))
        lengths += ~over
        over |= done.reshape(S, episodes)
        if over.all():
            break
        pool.carry()
    return returns, lengths, np.stack(shown)


def look_up(seen: Observation, side: int) -> tuple[Observation, Any]:
    """Pictures as places in a book of squares, and the book, where that saves arithmetic: a GPU has enough of it."""
    if seen.image is None or jax.default_backend() != "cpu":
        return seen, None
    found = index(seen.image, side)
    return (seen, None) if found is None else (seen._replace(image=found[0]), found[1])


def _by_seed(observation: Observation, seeds: int) -> Observation:
    """Arrays (seeds, environments, ...), in one piece: JAX takes others in number by number."""
    return jax.tree.map(lambda x: np.ascontiguousarray(x.reshape(seeds, len(x) // seeds, *x.shape[1:])), observation)


def act_all(
    trainer: Trainer,
    structure: Any,
    actors: list[Any],
    seen: Observation,
    memory: Any,
    starts: Any,
    keys: Any,
    step: Any,
    numbers: Any,
) -> Played:
    """Every seed's actions in its environments `numbers` at one step; a draw depends on seed, step and environment.

    `actors` are the leaves of a tree of this `structure`, and `keys` the bits of keys: with the tree and the keys
    themselves each call starts some 300 microseconds later.
    """

    def one(actors: Any, seen: Observation, memory: Any, starts: Any, key: Any) -> Played:
        now = jax.random.fold_in(jax.random.wrap_key_data(key), step)
        return trainer.act(actors, seen, memory, starts, jax.vmap(partial(jax.random.fold_in, now))(numbers))

    return jax.vmap(one)(jax.tree.unflatten(structure, actors), seen, memory, starts, keys)


def learn_all(
    trainer: Trainer, learner: Learner, parts: tuple[Any, ...], running: Any, book: Any
) -> tuple[Learner, Report, Tally]:
    """An update of every seed, and what was played; `parts` are those of a `Rollout`, seeds second."""

    def one(learner: Learner, parts: tuple[Any, ...], running: Any) -> tuple[Learner, Report, Tally]:
        rollout = Rollout(*parts)
        learner, report = trainer.update(learner, rollout, book)
        return learner, report, tally(rollout, running)

    return jax.vmap(one, in_axes=(0, 1, 0))(learner, parts, running)
