"""Hosted environments: playing through a pool of worker processes, and learning, all seeds at once.

The policies play in the workers; here are the draws that they play by, which depend on seed, step and environment
alone, and the way from what was played to the learner.
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
from hpml.marl.rollout import Rollout
from hpml.marl.sprites import index


class Between(NamedTuple):
    """What the environments' policies carry from one rollout to the next, seeds first.

    - `starts` (S, E): where the observation is the first of its episode. `memory`: what the actors know, or None.
    - `running` (S, E, agents): returns of the episodes so far. `steps`: steps so far; every draw comes from it.
    """

    starts: np.ndarray
    memory: Any
    running: np.ndarray
    steps: int


def parameters(actors: Actor) -> dict[str, Any]:
    """The parameters of the policies by their names in the tree, as the workers know them."""
    leaves = jax.tree_util.tree_leaves_with_path(actors)
    return {jax.tree_util.keystr(path).lstrip("."): leaf for path, leaf in leaves}


@partial(jax.jit, static_argnums=(2, 3, 4))
def draw_all(keys: jax.Array, step: Any, steps: int, environments: int, agents: int) -> jax.Array:
    """Numbers to play by, (steps, seeds, environments, agents), uniform on [0, 1)."""

    def one(key: jax.Array, number: Any) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(jax.random.fold_in(key, step), number), (steps, agents))

    every = jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, np.arange(environments, dtype=np.uint32))
    return jax.numpy.moveaxis(every, 2, 0)


def roll(pool: Pool, actors: Actor, keys: jax.Array, step: int) -> None:
    """Begin a rollout of every slot with the policies as they are; `keys` has one for each seed."""
    shape = pool.steps, pool.environments, pool.spec.agents
    policy, draws = jax.device_get((parameters(actors), draw_all(keys, step, *shape)))
    pool.begin(policy, draws.reshape(pool.steps, pool.slots, pool.spec.agents))


def begin(pool: Pool, actors: Actor, keys: jax.Array, between: Between) -> None:
    """Let the workers play as many steps as the pool holds, all seeds at once."""
    if between.memory is not None:
        pool.arrays["memory"][0] = between.memory.reshape(pool.arrays["memory"].shape[1:])
    roll(pool, actors, keys, between.steps)


def finish(pool: Pool, between: Between) -> tuple[Between, tuple[Any, ...]]:
    """Wait for what was begun from `between`.

    Gives what the next rollout goes on from, and the parts of a `Rollout`: arrays (times, seeds, environments, ...).
    """
    pool.finish()
    T, S, E = pool.steps, len(pool.seeds), pool.environments
    part = lambda name: pool.arrays[name].reshape(len(pool.arrays[name]), S, E, *pool.arrays[name].shape[2:])  # noqa: E731
    starts = np.concatenate([between.starts[None], part("done")])
    memory = None if between.memory is None else part("memory")
    seen = Observation(**{name: part(name) for name in Observation._fields if name in pool.arrays})
    last = None if memory is None else memory[T].copy()
    then = Between(starts[T], last, between.running, between.steps + T)
    return then, (seen, starts, memory, *(part(name) for name in ("actions", "log_probs", "rewards", "convention")))


def play(
    pool: Pool, actors: Actor, keys: jax.Array, longest: int, watch: Callable[[np.ndarray], None] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An episode in every slot: returns (S, episodes, agents), lengths, conventions (T, S, episodes, agents).

    Nothing is learnt. `longest` is how many steps are played at most; `watch` is shown the pictures of the first slot,
    (agents, height, width, channels), before each of its steps.
    """
    S, episodes, agents = len(pool.seeds), pool.environments, pool.spec.agents
    over, returns = np.zeros(pool.slots, bool), np.zeros((pool.slots, agents), np.float32)
    lengths, shown = np.zeros(pool.slots, np.int64), []
    for step in range(0, longest, pool.steps):
        roll(pool, actors, keys, step)
        pool.finish()
        for t in range(min(pool.steps, longest - step)):
            if watch is not None and not over[0]:
                watch(pool.arrays["image"][t, 0])
            returns += np.where(over[:, None], 0.0, pool.arrays["rewards"][t])
            shown.append(np.where(over[:, None], -1, pool.arrays["convention"][t]).reshape(S, episodes, agents))
            lengths += ~over
            over |= pool.arrays["done"][t]
        if over.all():
            break
        pool.carry()
    return returns.reshape(S, episodes, agents), lengths.reshape(S, episodes), np.stack(shown)


def look_up(seen: Observation, side: int) -> tuple[Observation, Any]:
    """Pictures as places in a book of squares, and the book, where that saves arithmetic: a GPU has enough of it."""
    if seen.image is None or jax.default_backend() != "cpu":
        return seen, None
    found = index(seen.image, side)
    return (seen, None) if found is None else (seen._replace(image=found[0]), found[1])


def learn_all(
    trainer: Trainer, learner: Learner, parts: tuple[Any, ...], running: Any, book: Any
) -> tuple[Learner, Report, Tally]:
    """An update of every seed, and what was played; `parts` are those of a `Rollout`, seeds second.

    The report's field has an axis of updates, one long, as that of several updates would have.
    """

    def one(learner: Learner, parts: tuple[Any, ...], running: Any) -> tuple[Learner, Report, Tally]:
        rollout = Rollout(*parts)
        learner, report = trainer.update(learner, rollout, book)
        field = jax.tree.map(lambda x: x[None], report.field)
        return learner, Report(report.logs, field, report.finite), tally(rollout, running)

    return jax.vmap(one, in_axes=(0, 1, 0))(learner, parts, running)
