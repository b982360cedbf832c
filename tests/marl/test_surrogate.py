"""The joint-ratio surrogate has the true field and the true cross-agent Jacobian, in expectation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from hpml.geometry.leaves import Leaves
from hpml.marl.algorithm import policies
from hpml.marl.algorithms.ia2c import IA2C
from hpml.marl.algorithms.mappo import MAPPO
from hpml.marl.env import Spec
from hpml.marl.networks import init_actors
from hpml.marl.policy import chosen
from hpml.marl.rollout import Batch, Seen
from hpml.marl.settings import Settings
from hpml.marl.surrogate import joint_field
from hpml.plugin.adjust import rotate_field

AGENTS, ACTIONS = 3, 2
SPEC = Spec("tiny", AGENTS, ACTIONS, vector=1)
SETTINGS = Settings(environments=2, rollout=4, hidden=4, entropy=0.3)
RECURRENT = Settings(environments=2, rollout=4, hidden=4, entropy=0.3, memory=3, chunk=1)
PAYOFFS = jnp.asarray(np.random.default_rng(0).normal(size=(AGENTS,) + (ACTIONS,) * AGENTS), jnp.float32)
JOINT = np.stack(np.unravel_index(np.arange(ACTIONS**AGENTS), (ACTIONS,) * AGENTS))  # (agents, joint)


def all_joint_actions(actors, settings):
    """Every joint action once, its advantage times its probability: a mean over them is an expected value."""
    count = JOINT.shape[1]
    shape = (2, AGENTS, count, 1)
    zeros = jnp.zeros(shape)
    memory = jnp.full((*shape, settings.memory), 0.5) if settings.memory else None
    seen = Seen(jnp.ones((*shape, 1)), None, None)
    actions = jnp.broadcast_to(jnp.asarray(JOINT, jnp.int32)[None, :, :, None], shape)
    batch = Batch(seen, jnp.zeros(shape, bool), memory, actions, zeros, zeros, zeros)
    log_policy = policies(actors, jax.tree.map(lambda x: x[0], batch), settings)
    log_probs = chosen(log_policy, actions[0])
    weight = count * jnp.exp(jnp.sum(log_probs, 0))
    advantages = PAYOFFS.reshape(AGENTS, -1)[:, :, None] * weight
    twice = lambda x: jnp.stack([x, x])  # noqa: E731
    return Batch(seen, batch.starts, memory, actions, twice(log_probs), twice(advantages), zeros)


def expected_field(actors, batch, settings):
    """Gradients of every agent's expected loss in its own parameters, from its definition, as a flat function."""
    x, restore = ravel_pytree(actors)
    half = jax.tree.map(lambda leaf: leaf[0, :, :1], batch)

    def losses(mixed):
        log_policy = policies(mixed, half, settings)[:, 0, 0]
        joint = jnp.einsum("a,b,c->abc", *jnp.exp(log_policy))
        entropy = -jnp.sum(jnp.exp(log_policy) * log_policy, -1)
        return -jnp.sum(PAYOFFS * joint, (1, 2, 3)) - settings.entropy * entropy

    def field(x):
        actors = restore(x)
        own = jax.jacrev(losses)(actors)
        return ravel_pytree(jax.tree.map(lambda g: jnp.stack([g[i, i] for i in range(AGENTS)]), own))[0]

    return x, jax.jit(field)


@pytest.mark.parametrize("settings", [SETTINGS, RECURRENT], ids=["plain", "recurrent"])
@pytest.mark.parametrize("algorithm", [IA2C(), MAPPO()], ids=["ia2c", "mappo"])
def test_field_and_rotation_are_the_true_ones_in_expectation(algorithm, settings):
    actors = init_actors(jax.random.key(1), SPEC, settings)
    actors = jax.tree.map(lambda p: p + 0.3 * jax.random.normal(jax.random.key(p.size), p.shape), actors)
    batch = all_joint_actions(actors, settings)
    x, exact = expected_field(actors, batch, settings)
    field = joint_field(algorithm, batch, settings)
    F = -np.asarray(exact(x))
    got = jax.jit(field)(actors)
    np.testing.assert_allclose(-ravel_pytree(got)[0], F, atol=1e-6)

    J = np.stack([np.asarray(exact(x + 1e-2 * e) - exact(x - 1e-2 * e)) / -2e-2 for e in np.eye(x.size)], 1)
    rotated, stretched = jax.jit(lambda a, g: rotate_field(field, a, g, Leaves(None, None)))(actors, got)
    want = 0.5 * (J - J.T) @ F
    assert np.linalg.norm(want) > 0.01
    np.testing.assert_allclose(ravel_pytree(rotated)[0], want, atol=2e-3 * np.abs(J @ F).max())
    np.testing.assert_allclose(ravel_pytree(stretched)[0], 0.5 * (J + J.T) @ F, atol=2e-3 * np.abs(J @ F).max())


def test_the_field_elsewhere_is_weighted_by_what_the_others_would_do():
    actors = init_actors(jax.random.key(1), SPEC, SETTINGS)
    batch = all_joint_actions(actors, SETTINGS)
    x, exact = expected_field(actors, batch, SETTINGS)
    far = x + 0.5 * jax.random.normal(jax.random.key(2), x.shape)
    got = ravel_pytree(joint_field(IA2C(), batch, SETTINGS)(ravel_pytree(actors)[1](far)))[0]
    np.testing.assert_allclose(got, exact(far), atol=1e-5)
    assert np.abs(np.asarray(exact(far) - exact(x))).max() > 0.1
