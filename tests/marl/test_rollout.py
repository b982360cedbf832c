"""Batches hold every sample once, in two halves that share no environment; played again they give what was played."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marl.making import play, quick, spec

from hpml.marl.algorithm import evaluate
from hpml.marl.algorithms.ippo import IPPO
from hpml.marl.learner import Trainer
from hpml.marl.rollout import Batch, Seen, cut, mend, minibatches, schedule, take
from hpml.marl.settings import Settings

TINY = {"hidden": 8, "sprites": 4, "rollout": 8, "chunk": 4, "memory": 0}
LAYOUTS = [Settings(**{**TINY, "memory": m}, environments=e) for m in (0, 3) for e in (1, 4)]
AGENTS = 3


def numbered(settings):
    """Each sample is its own number."""
    shape = (settings.rollout, settings.environments, AGENTS)
    return np.arange(np.prod(shape)).reshape(shape)


def both_ways(x, settings):
    """The learner's layout, and the way back from it."""
    return quick(lambda x: (cut(x, settings), mend(cut(x, settings), settings)))(x)


@pytest.mark.parametrize("settings", LAYOUTS)
def test_a_cut_rollout_is_mended(settings):
    x = np.stack([numbered(settings), -numbered(settings)], -1)
    np.testing.assert_array_equal(both_ways(x, settings)[1], x)


@pytest.mark.parametrize("settings", LAYOUTS)
def test_chunks_are_steps_in_a_row_of_one_agent_and_halves_have_their_own_environments(settings):
    x, _ = both_ways(numbered(settings), settings)
    T, E, steps = settings.rollout, settings.environments, settings.steps_back
    assert x.shape == (2, AGENTS, T * E // (2 * steps), steps)
    time, environment, agent = np.unravel_index(np.asarray(x), (T, E, AGENTS))
    assert (agent == np.arange(AGENTS)[:, None, None]).all()
    assert (environment == environment[..., :1]).all()
    assert (np.diff(time, axis=-1) == 1).all()
    assert (time[..., 0] % steps == 0).all()
    if E > 1:
        assert not set(environment[0].ravel()) & set(environment[1].ravel())
    else:
        assert time[0].max() < time[1].min()


def test_minibatches_are_as_many_as_asked_for_that_divide_the_chunks():
    settings = Settings(environments=2, rollout=128, minibatch=4096)
    assert minibatches(settings, 2) == 1  # 512 samples: the batch whole
    assert minibatches(settings, 16) == 1
    assert minibatches(settings, 17) == 2
    assert minibatches(Settings(environments=2, rollout=12, minibatch=14), 3) == 6  # 72 samples: 6 asked for, 12 chunks
    assert minibatches(Settings(environments=2, rollout=8, minibatch=16), 3) == 2  # 48 samples: 3 asked for, 8 chunks
    assert minibatches(Settings(environments=2, rollout=8, minibatch=1, memory=2, chunk=8), 3) == 1


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rollout": 128}, (1, 4)),  # 128 chunks of a half: the four passes are four minibatches
        ({"rollout": 12, "minibatch": 14}, (2, 12)),  # 6 minibatches in 4 passes: 24 steps from 12 chunks
        ({"rollout": 7}, (4, 1)),  # 7 chunks cannot be cut
        ({"rollout": 16, "memory": 2, "chunk": 8}, (2, 2)),
    ],
)
def test_without_reuse_there_are_as_few_passes_as_can_be_and_as_many_steps(changes, expected):
    settings = Settings(environments=2, **changes)
    assert schedule(settings, 3, reuse=False) == expected
    passes, count = schedule(settings, 3, reuse=True)
    assert passes == settings.passes
    assert passes * count == np.prod(expected)


def test_taking_chunks_keeps_halves_and_agents():
    settings = LAYOUTS[1]
    x, _ = both_ways(numbered(settings), settings)
    batch = Batch(Seen(x, None, None), x, None, x, x, x, x)
    order = np.stack([np.random.default_rng(h).permutation(x.shape[2]) for h in range(2)])
    some = quick(take)
    parts = [some(batch, jnp.asarray(order[:, k : k + 4])) for k in range(0, x.shape[2], 4)]
    for part, k in zip(parts, range(0, x.shape[2], 4), strict=True):
        for h in range(2):
            np.testing.assert_array_equal(part.actions[h], np.asarray(x)[h][:, order[h, k : k + 4]])
            np.testing.assert_array_equal(part.seen.vector[h], part.actions[h])


@pytest.mark.parametrize(
    ("memory", "share", "environments", "image"),
    [(0, False, 2, True), (3, False, 4, False), (3, True, 1, True), (0, True, 2, False)],
)
def test_unchanged_actors_give_the_probabilities_that_were_played(memory, share, environments, image):
    settings = Settings(**{**TINY, "memory": memory}, share=share, environments=environments)
    trainer = Trainer(spec(image=image, masked=True), IPPO(), settings)
    actors = quick(trainer.init)(jax.random.key(0)).actors
    # Policies that lean somewhere, so that a wrong memory shows.
    head = np.random.default_rng(1).normal(size=actors.head.weight.shape)
    actors = eqx.tree_at(lambda a: a.head.weight, actors, jnp.asarray(head, jnp.float32))
    rollout = play(trainer, actors)
    assert np.asarray(rollout.starts[1:-1]).any()
    batch, _ = quick(trainer._batch)(rollout)
    again = quick(lambda batch: mend(jax.vmap(lambda half: evaluate(actors, half, settings)[0])(batch), settings))
    np.testing.assert_allclose(again(batch), rollout.log_probs, rtol=1e-4, atol=1e-5)
    assert np.asarray(rollout.log_probs).std() > 0.3
    allowed = np.take_along_axis(rollout.observation.mask[:-1], np.asarray(rollout.actions)[..., None], -1)
    assert allowed.all()


def test_an_empty_vector_is_cut_like_any_other():
    for environments, memory in ((1, 0), (2, 0), (4, 8)):
        settings = Settings(environments=environments, rollout=32, memory=memory)
        chunks = 32 * environments // (2 * settings.steps_back)
        empty = cut(jnp.zeros((32, environments, 3, 0)), settings)
        assert empty.shape == (2, 3, chunks, settings.steps_back, 0)
