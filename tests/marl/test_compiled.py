"""The compiled loop plays what it says, goes on bit for bit, and keeps seeds apart."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpml.marl.algorithms.ippo import IPPO
from hpml.marl.collect.compiled import begin, collect, train_chunk
from hpml.marl.conventions import count_switches
from hpml.marl.env import Observation
from hpml.marl.envs.matrix import make
from hpml.marl.exact import observations, policy_tables
from hpml.marl.learner import Trainer
from hpml.marl.policy import allowed
from hpml.marl.rollout import see
from hpml.marl.settings import Settings

HORIZON, T, E = 5, 8, 4
ENV = make("uneven", payoffs=np.random.default_rng(0).normal(size=(2, 2, 3)), horizon=HORIZON)
SETTINGS = Settings(environments=E, rollout=T, hidden=8, passes=2, minibatch=32, actor_rate=1e-2)
TRAINER = Trainer(ENV.spec, IPPO(), SETTINGS)
RECURRENT = dataclasses.replace(SETTINGS, memory=4, chunk=4)


INIT = jax.jit(lambda key: (TRAINER.init(key), begin(TRAINER, ENV, key)))


def start(*seeds):
    return jax.tree.map(lambda *x: jnp.stack(x), *(INIT(jax.random.key(seed)) for seed in seeds))


@pytest.fixture(scope="module")
def played():
    """Two rollouts of one seed with a memory, one after the other."""
    trainer = Trainer(ENV.spec, IPPO(), RECURRENT)
    learner, worlds = jax.jit(trainer.init)(jax.random.key(3)), begin(trainer, ENV, jax.random.key(4))
    play = jax.jit(lambda worlds: collect(trainer, ENV, learner.actors, worlds))
    middle, first = play(worlds)
    last, second = play(middle)
    return learner, first, second, last


@pytest.fixture(scope="module")
def trained():
    """Two updates of two seeds."""
    return train_chunk(TRAINER, ENV, *start(1, 2), 2)


@pytest.fixture(scope="module")
def halfway():
    """One update of two seeds."""
    return train_chunk(TRAINER, ENV, *start(1, 2), 1)


def numbers(tree):
    keys = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    return [np.asarray(jax.random.key_data(x) if keys(x) else x) for x in jax.tree.leaves(tree)]


def test_the_actions_played_again_give_the_same_rollout(played):
    _, first, second, _ = played
    actions, rewards = (np.concatenate([getattr(r, name) for r in (first, second)]) for name in ("actions", "rewards"))
    np.testing.assert_allclose(
        rewards, np.moveaxis(ENV.game.payoffs[:, actions[..., 0], actions[..., 1]], 0, -1), rtol=1e-6
    )
    starts = np.concatenate([first.starts[:T], second.starts])
    np.testing.assert_array_equal(starts, (np.arange(2 * T + 1) % HORIZON == 0)[:, None] & np.ones(E, bool))
    seen = np.concatenate([first.observation.vector[:T], second.observation.vector])
    shown = np.eye(3)[actions]
    own = np.concatenate([shown, shown[:, :, ::-1]], -1)  # its own action first
    np.testing.assert_array_equal(seen[1:], np.where(starts[1:, :, None, None], 0.0, own))
    np.testing.assert_array_equal(first.convention, first.actions)


def test_a_rollout_goes_on_where_the_last_one_stopped(played):
    _, first, second, last = played
    for name in ("starts", "memory"):
        np.testing.assert_array_equal(getattr(first, name)[-1], getattr(second, name)[0])
        np.testing.assert_array_equal(getattr(second, name)[-1], getattr(last, name))
    np.testing.assert_array_equal(first.observation.vector[-1], second.observation.vector[0])


@pytest.mark.parametrize("agent", [0, 1])
def test_log_probabilities_and_memory_are_the_actors_own(played, agent):
    learner, first, _, _ = played
    seen = see(first.observation, ENV.spec, RECURRENT)
    actor = jax.tree.map(lambda x: x[agent], learner.actors)
    part = lambda x: jnp.moveaxis(x[:T, :, agent], 0, 1)  # noqa: E731
    starts = jnp.moveaxis(first.starts[:T], 0, 1)
    logits, known = actor(part(seen.vector), None, first.memory[0, :, agent], starts)
    log_policy = allowed(logits, part(seen.mask))
    want = jnp.take_along_axis(log_policy, part(first.actions)[..., None], -1)[..., 0]
    np.testing.assert_allclose(part(first.log_probs), want, atol=1e-5)
    np.testing.assert_allclose(first.memory[T, :, agent], known, atol=1e-5)
    assert first.actions[..., agent].max() == agent + 1  # the mask leaves the first agent two of three actions
    assert not np.any(np.asarray(first.memory)[np.asarray(first.starts)])


def test_two_calls_are_one_bit_for_bit(trained, halfway):
    saved = jax.tree.map(jnp.copy, halfway[:2])  # as a checkpoint would
    again = train_chunk(TRAINER, ENV, *saved, 1)
    for one, other in zip(numbers(trained[:2]), numbers(again[:2]), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(numbers(trained[2]), numbers(again[2]), strict=True):
        np.testing.assert_array_equal(one[:, 1:], other)


def test_a_seed_alone_is_the_seed_in_a_batch(halfway):
    alone = train_chunk(TRAINER, ENV, *start(2), 1)
    for one, other in zip(numbers(halfway), numbers(alone), strict=True):
        np.testing.assert_allclose(one[1:], other, rtol=1e-4, atol=1e-5)


def test_what_is_reported_is_what_was_played(trained, halfway):
    learner, worlds, progress = trained
    assert not np.array_equal(learner.actors.head.weight[0], learner.actors.head.weight[1])
    assert progress.report.finite.all()
    np.testing.assert_array_equal(worlds.steps, 2 * T)
    np.testing.assert_array_equal(progress.played.episodes, [[E, 2 * E]] * 2)  # after 5; 10, 15 steps
    play = jax.jit(jax.vmap(lambda actors, worlds: collect(TRAINER, ENV, actors, worlds)))
    first, second = start(1, 2), jax.tree.map(jnp.copy, halfway[:2])
    rollouts = [play(learner.actors, worlds)[1] for learner, worlds in (first, second)]
    rewards = np.concatenate([r.rewards for r in rollouts], 1)
    sums = rewards[:, : 3 * HORIZON].reshape(2, 3, HORIZON, E, 2).sum(2)
    want = np.stack([sums[:, 0].mean(1), sums[:, 1:].mean((1, 2))], 1)
    np.testing.assert_allclose(progress.played.returns, want, rtol=1e-5, atol=1e-6)
    counted = [count_switches(rollouts[0].convention[s], rollouts[0].starts[s, 1:]).switches for s in range(2)]
    np.testing.assert_array_equal(progress.played.switches.switches[:, 0], counted)


def test_hosted_environments_are_refused():
    class Hosted(type(ENV)):
        compiled = False

    with pytest.raises(ValueError, match="worker processes"):
        begin(TRAINER, Hosted(ENV.game), jax.random.key(0))


def test_the_table_of_actors_is_how_they_play():
    actors = jax.tree.map(lambda x: 3.0 * x, INIT(jax.random.key(1))[0].actors)  # far from even
    tables = policy_tables(TRAINER, actors, ENV)
    rows = observations(ENV)
    many = Observation(vector=jnp.repeat(jnp.asarray(rows.vector), 4000, 0), mask=jnp.repeat(rows.mask, 4000, 0))
    keys = jax.random.split(jax.random.key(0), len(many.vector))
    played = np.asarray(jax.jit(TRAINER.act)(actors, many, None, jnp.zeros(len(many.vector), bool), keys).actions)
    for agent, table in enumerate(tables):
        shares = (played[:, agent].reshape(-1, 4000)[..., None] == np.arange(table.shape[1])).mean(1)
        np.testing.assert_allclose(shares, table, atol=4.5 * 0.5 / 4000**0.5)
    with pytest.raises(ValueError, match="remember more"):
        policy_tables(Trainer(ENV.spec, IPPO(), RECURRENT), actors, ENV)
