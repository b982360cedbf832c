"""Compiled environments: playing and learning in one compiled loop.

A scan over updates holds a scan over steps of E environments; seeds are vmapped around it. All that goes on lies in the
learner and in `Worlds`, so that saving both between two calls is enough to go on bit for bit, and a seed draws from its
own key alone.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float, Int

from hpml.marl.collect.tally import Tally, tally
from hpml.marl.compiling import cpu_options
from hpml.marl.env import Env, Observation
from hpml.marl.learner import Learner, Report, Trainer
from hpml.marl.networks import Actor
from hpml.marl.rollout import Rollout


class Worlds(eqx.Module):
    """The environments of a seed, between two steps.

    - `starts`: where the observation is the first of its episode.
    - `memory`: what each actor knows, 0 where an episode starts; None without a memory.
    - `running`: each agent's return of the episode so far, in the environment's units.
    - `steps`: steps so far; every draw comes from it and the seed's `key`.
    """

    state: Any
    observation: Observation
    starts: Bool[Array, " E"]
    memory: Float[Array, "E agents units"] | None
    running: Float[Array, "E agents"]
    steps: Int[Array, ""]
    key: Any

    @property
    def looks(self) -> tuple[Observation, Array, Any]:
        """What the next actions depend on."""
        return self.observation, self.starts, self.memory


class Progress(eqx.Module):
    """What an update did, and what was played before it."""

    report: Report
    played: Tally


def begin(trainer: Trainer, env: Env, key: Array) -> Worlds:
    """A seed's environments at the first step of their first episodes."""
    if not env.compiled:
        raise ValueError(f"{env.spec.name} does not run in JAX: play it in worker processes.")
    E, agents = trainer.settings.environments, trainer.spec.agents
    key, first = jax.random.split(key)
    state, observation = jax.vmap(env.reset)(jax.random.split(first, E))
    starts, running = jnp.ones(E, bool), jnp.zeros((E, agents), jnp.float32)
    return Worlds(state, observation, starts, trainer.memory(E), running, jnp.zeros((), jnp.int32), key)


def collect(trainer: Trainer, env: Env, actors: Actor, worlds: Worlds) -> tuple[Worlds, Rollout]:
    """Play as many steps as an update learns from; an episode that ends makes way for the next one at once."""
    E = trainer.settings.environments

    def turn(now: Worlds, _: None) -> tuple[Worlds, Any]:
        keys = jax.random.split(jax.random.fold_in(now.key, now.steps), (3, E))
        played = trainer.act(actors, now.observation, now.memory, now.starts, keys[0])
        state, step = jax.vmap(env.step)(now.state, played.actions, keys[1])
        first = jax.vmap(env.reset)(keys[2])
        done = step.done
        fresh = lambda new, old: jnp.where(done.reshape(-1, *[1] * (old.ndim - 1)), new, old)  # noqa: E731
        state, observation = jax.tree.map(fresh, first, (state, step.observation))
        memory = None if played.memory is None else jnp.where(done[:, None, None], 0.0, played.memory)
        then = Worlds(state, observation, done, memory, now.running, now.steps + 1, now.key)
        return then, (now.looks, (played.actions, played.log_probs, step.rewards, step.convention))

    then, (before, played) = jax.lax.scan(turn, worlds, None, length=trainer.settings.rollout)
    seen = jax.tree.map(lambda x, y: jnp.concatenate([x, y[None]]), before, then.looks)
    actions, log_probs, rewards, convention = played
    observation, starts, memory = seen
    return then, Rollout(observation, starts, memory, actions, log_probs, rewards, convention)


def train(trainer: Trainer, env: Env, learner: Learner, worlds: Worlds) -> tuple[Learner, Worlds, Progress]:
    """One rollout and one update of one seed."""
    worlds, rollout = collect(trainer, env, learner.actors, worlds)
    played = tally(rollout, worlds.running)
    worlds = eqx.tree_at(lambda w: w.running, worlds, played.running)
    learner, report = trainer.update(learner, rollout)
    return learner, worlds, Progress(report, played)


def train_chunk(
    trainer: Trainer, env: Env, learner: Learner, worlds: Worlds, updates: int
) -> tuple[Learner, Worlds, Progress]:
    """Several updates of all seeds at once; arrays have the seeds first, those of `Progress` seeds, then updates.

    The learner and the worlds that are passed in are used up: keep the ones that come back.
    """
    return _loop()(trainer, env, learner, worlds, updates)


@functools.cache
def _loop() -> Any:
    return jax.jit(_updates, static_argnums=(0, 1, 4), donate_argnums=(2, 3), compiler_options=cpu_options())


def _updates(
    trainer: Trainer, env: Env, learner: Learner, worlds: Worlds, updates: int
) -> tuple[Learner, Worlds, Progress]:
    def one(learner: Learner, worlds: Worlds) -> tuple[tuple[Learner, Worlds], Progress]:
        def update(now: tuple[Learner, Worlds], _: None) -> tuple[tuple[Learner, Worlds], Progress]:
            learner, worlds, progress = train(trainer, env, *now)
            return (learner, worlds), progress

        return jax.lax.scan(update, (learner, worlds), None, length=updates)

    (learner, worlds), progress = jax.vmap(one)(learner, worlds)
    return learner, worlds, progress
