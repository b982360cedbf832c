"""A training step follows the field that it reports, and rewards reach it in the units that the settings say."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marl.making import play, quick, spec

from hpml.marl.algorithms.ippo import IPPO
from hpml.marl.learner import Trainer
from hpml.marl.optimiser import agent_norms, clip_agents
from hpml.marl.settings import Settings

SETTINGS = Settings(hidden=8, rollout=8, environments=2, passes=1, reward_scale=0.5, normalise_rewards=True)
TRAINER = Trainer(spec(), IPPO(), SETTINGS)
T, E, AGENTS = SETTINGS.rollout, SETTINGS.environments, TRAINER.spec.agents


@pytest.fixture(scope="module")
def learner():
    return quick(TRAINER.init)(jax.random.key(0))


@pytest.fixture(scope="module")
def rollout(learner):
    return play(TRAINER, learner.actors)


@pytest.fixture(scope="module")
def updated(learner, rollout):
    return quick(TRAINER.update)(learner, rollout)


def test_the_first_step_is_adams_along_the_clipped_mean_of_the_halves(learner, updated):
    after, report = updated
    mean = [np.asarray(g, np.float64).mean(0) for g in jax.tree.leaves(report.field.halves)]
    norms = np.sqrt(sum((g.reshape(AGENTS, -1) ** 2).sum(-1) for g in mean))
    np.testing.assert_allclose(report.logs["gradient"], norms, rtol=1e-5)
    assert (norms > SETTINGS.max_gradient).any()
    factor = np.minimum(1.0, SETTINGS.max_gradient / norms)
    leaves = zip(jax.tree.leaves(learner.actors), jax.tree.leaves(after.actors), mean, strict=True)
    for before, now, slope in leaves:
        slope = slope * factor.reshape(AGENTS, *[1] * (slope.ndim - 1))
        step = -SETTINGS.actor_rate * slope / (np.abs(slope) + SETTINGS.epsilon)
        np.testing.assert_allclose(np.asarray(now) - np.asarray(before), step, rtol=2e-2, atol=2e-7)
    for point, before in zip(jax.tree.leaves(report.field.point), jax.tree.leaves(learner.actors), strict=True):
        np.testing.assert_array_equal(point, before)


def test_rewards_are_measured_by_the_deviation_of_their_discounted_sums(learner, rollout, updated):
    after, _ = updated
    total, sums = np.zeros((E, AGENTS)), []
    for t in range(T):
        total = SETTINGS.discount * total + SETTINGS.reward_scale * np.asarray(rollout.rewards[t])
        sums.append(total)
        total = np.where(np.asarray(rollout.starts[t + 1])[:, None], 0.0, total)
    np.testing.assert_allclose(after.running, total, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(after.sums.deviation, np.std(sums, (0, 1)), rtol=1e-4)


def test_the_unit_of_rewards_does_not_matter_where_they_are_normalised(learner, rollout, updated):
    larger = dataclasses.replace(rollout, rewards=rollout.rewards * 64.0)
    after, _ = quick(TRAINER.update)(learner, larger)
    expected, _ = updated
    for x, y in zip(
        jax.tree.leaves((after.actors, after.critic)), jax.tree.leaves((expected.actors, expected.critic)), strict=True
    ):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


def test_an_agents_gradient_is_scaled_down_on_its_own():
    slopes = {"a": jnp.array([[3.0, 0.0], [0.3, 0.0]]), "b": jnp.array([[4.0], [0.4]])}
    np.testing.assert_allclose(agent_norms(slopes), [5.0, 0.5])
    clip = clip_agents(1.0)
    out, _ = clip.update(slopes, clip.init(slopes))
    np.testing.assert_allclose(out["a"], [[0.6, 0.0], [0.3, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(out["b"], [[0.8], [0.4]], rtol=1e-6)
    told, _ = clip.update(slopes, clip.init(slopes), norms=jnp.array([10.0, 1.0]))
    np.testing.assert_allclose(told["b"], [[0.4], [0.4]], rtol=1e-6)
