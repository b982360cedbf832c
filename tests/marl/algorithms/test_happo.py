"""With one pass over one minibatch, a training step of HAPPO is the original: agents move one after another."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marl.making import play, quick, spec

from hpml.marl.advantage import normalised
from hpml.marl.algorithm import evaluate
from hpml.marl.algorithms.happo import HAPPO
from hpml.marl.algorithms.mappo import MAPPO
from hpml.marl.learner import Trainer
from hpml.marl.rollout import cut
from hpml.marl.settings import Settings

AGENTS = 3
# A rate so large that it matters who moved before.
SETTINGS = Settings(hidden=8, rollout=8, environments=2, passes=1, actor_rate=0.1)
TRAINER = Trainer(spec(), HAPPO(), SETTINGS)
BEFORE = [set(some) for size in range(AGENTS) for some in itertools.combinations(range(AGENTS), size)]


@pytest.fixture(scope="module")
def learner():
    return quick(TRAINER.init)(jax.random.key(0))


@pytest.fixture(scope="module")
def rollout(learner):
    return play(TRAINER, learner.actors)


@quick
def alone(learner, rollout, after):
    """Agent i's mean gradient where those in `BEFORE[k]` have moved to `after`: leaves (k, agents, ...)."""
    batch, last = TRAINER._batch(rollout)
    judged = HAPPO().assess(
        learner.critic, learner.values, learner.actors, batch, last, rollout, SETTINGS, jax.random.key(0)
    )
    batch = dataclasses.replace(batch, advantages=cut(normalised(judged.advantages), SETTINGS))
    moved, _ = jax.vmap(lambda half: evaluate(after, half, SETTINGS))(batch)
    ratios = jnp.exp(moved - batch.log_probs)

    def slope(present):
        weight = jnp.prod(jnp.where(present[:, None, None], ratios, 1.0), 1, keepdims=True)
        one = jax.grad(lambda actors, half, w: HAPPO().loss(actors, half, SETTINGS, w)[0])
        return jax.tree.map(lambda g: g.mean(0), jax.vmap(one, in_axes=(None, 0, 0))(learner.actors, batch, weight))

    return jax.vmap(slope)(jnp.array([[i in some for i in range(AGENTS)] for some in BEFORE]))


@pytest.fixture(scope="module")
def update():
    return quick(TRAINER.update)


def order_of(update, learner, rollout):
    """Who moved before whom, as the gradients of an update tell; every gradient must fit exactly one answer."""
    after, report = update(learner, rollout)
    expected = alone(learner, rollout, after.actors).head.weight
    found = np.asarray(report.field.halves.head.weight).mean(0)
    order = [None] * AGENTS
    for i in range(AGENTS):
        fits = [
            some
            for some, slope in zip(BEFORE, np.asarray(expected), strict=True)
            if i not in some and np.allclose(slope[i], found[i], rtol=1e-3, atol=1e-6)
        ]
        assert len(fits) == 1
        order[len(fits[0])] = i
    return tuple(order)


def test_gradients_see_the_agents_before_where_the_update_took_them(update, learner, rollout):
    assert sorted(order_of(update, learner, rollout)) == list(range(AGENTS))


def test_the_order_is_drawn_anew_for_every_update(update, learner, rollout):
    later = [dataclasses.replace(learner, updates=jnp.asarray(k, jnp.int32)) for k in range(6)]
    assert len({order_of(update, each, rollout) for each in later}) > 1


def test_the_first_agent_moves_as_in_mappo(update, learner, rollout):
    first = order_of(update, learner, rollout)[0]
    moved, _ = update(learner, rollout)
    simultaneous, _ = quick(Trainer(spec(), MAPPO(), SETTINGS).update)(learner, rollout)
    for ours, theirs in zip(jax.tree.leaves(moved.actors), jax.tree.leaves(simultaneous.actors), strict=True):
        np.testing.assert_allclose(ours[first], theirs[first], rtol=1e-4, atol=1e-5)
    weights = moved.actors.head.weight, simultaneous.actors.head.weight
    assert np.abs(np.asarray(weights[0] - weights[1])).max() > 1e-3
