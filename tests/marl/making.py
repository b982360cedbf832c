"""Rollouts for tests: real actors play on observations drawn at random, with episodes that begin anywhere."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from hpml.marl.env import Observation, Spec
from hpml.marl.rollout import Rollout

# Compiling is most of the work in tests, so that less of it is optimised.
quick = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def spec(image=False, masked=False, agents=3, actions=4):
    """A small environment's outside; pictures have a broken last square."""
    return Spec("made", agents, actions, (6, 8, 3) if image else None, 4, vector=2, masked=masked)


def play(trainer, actors, seed=0, rewards=None):
    """A rollout that `actors` played. Memory is handed over as it was, also where an episode begins."""
    spec, settings = trainer.spec, trainer.settings
    T, E, n = settings.rollout, settings.environments, spec.agents
    draw = np.random.default_rng(seed)
    vector = draw.normal(size=(T + 1, E, n, spec.vector)).astype(np.float32)
    image = None if spec.image is None else draw.integers(0, 256, (T + 1, E, n, *spec.image)).astype(np.uint8)
    mask = None
    if spec.masked:
        mask = draw.random((T + 1, E, n, spec.actions)) < 0.6
        mask |= np.arange(spec.actions) == draw.integers(0, spec.actions, (T + 1, E, n, 1))
    starts = draw.random((T + 1, E)) < 0.25
    observation = Observation(vector, image, mask)
    first = None
    if settings.memory:
        first = jnp.asarray(draw.normal(size=(E, n, settings.memory)), jnp.float32)

    def turn(memory, now):
        seen, start, key = now
        played = trainer.act(actors, seen, memory, start, jax.random.split(key, E))
        return played.memory, (memory, played.actions, played.log_probs)

    steps = jax.tree.map(lambda x: x[:T], observation), starts[:T], jax.random.split(jax.random.key(seed), T)
    last, (memory, actions, log_probs) = quick(lambda: jax.lax.scan(turn, first, steps))()
    if memory is not None:
        memory = jnp.concatenate([memory, last[None]])
    if rewards is None:
        rewards = draw.normal(size=(T, E, n)).astype(np.float32)
    nothing = jnp.full((T, E, n), -1, jnp.int32)
    return Rollout(observation, jnp.asarray(starts), memory, actions, log_probs, jnp.asarray(rewards), nothing)
