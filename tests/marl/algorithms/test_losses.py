"""Gradients of every algorithm against loops over samples, where a policy is the softmax of its biases.

All weights are 0, so that an agent's logits are the biases b of its head whatever it sees. With p = softmax(b), the
slope of log p(a) along b_k is 1[a = k] - p_k, and that of the entropy H is -p_k (log p_k + H).
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marl.making import quick

from hpml.experiment.build import algorithm
from hpml.marl.algorithm import clipped_objective
from hpml.marl.env import Spec
from hpml.marl.networks import init_actors
from hpml.marl.rollout import Batch, Seen
from hpml.marl.settings import Settings

AGENTS, ACTIONS, CHUNKS, RATE = 3, 3, 4, 0.7
SPEC = Spec("hand", AGENTS, ACTIONS, vector=1)
SETTINGS = Settings(hidden=4, rollout=4, environments=2, entropy=0.03, clip=0.2)
DRAW = np.random.default_rng(1)
BIASES = DRAW.normal(size=(AGENTS, ACTIONS))
SHAPE = (2, AGENTS, CHUNKS, 1)
TAKEN = DRAW.integers(0, ACTIONS, SHAPE).astype(np.int32)
ADVANTAGES = DRAW.normal(size=SHAPE)
KEY = jax.random.key(1)


def softmax(biases):
    weights = [math.exp(b) for b in biases]
    return [w / sum(weights) for w in weights]


# Old probabilities are around the new ones: some ratios are beyond the clip, on both sides.
RATIOS = DRAW.uniform(0.6, 1.5, SHAPE)
OLD = np.array(
    [
        [[[math.log(softmax(BIASES[i])[a] / RATIOS[h, i, c, 0]) for a in TAKEN[h, i, c]] for c in range(CHUNKS)]
         for i in range(AGENTS)]
        for h in range(2)
    ]
)  # fmt: skip


@pytest.fixture(scope="module")
def actors():
    blank = jax.tree.map(jnp.zeros_like, jax.eval_shape(lambda key: init_actors(key, SPEC, SETTINGS), KEY))
    return eqx.tree_at(lambda a: a.head.bias, blank, jnp.asarray(BIASES, jnp.float32))


@pytest.fixture(scope="module")
def batch():
    single = lambda x: jnp.asarray(x, jnp.float32)  # noqa: E731
    seen = Seen(jnp.ones((*SHAPE, 1)), None, None)
    starts = jnp.zeros(SHAPE, bool)
    return Batch(seen, starts, None, jnp.asarray(TAKEN), single(OLD), single(ADVANTAGES), jnp.zeros(SHAPE))


def by_hand(i, biases, clipped, weights=None):
    """Slopes of agent i's loss along its biases, from each half."""
    p = softmax(biases)
    entropy = -sum(q * math.log(q) for q in p)
    slopes = np.zeros((2, ACTIONS))
    for h in range(2):
        for c in range(CHUNKS):
            a, advantage = TAKEN[h, i, c, 0], ADVANTAGES[h, i, c, 0]
            ratio = p[a] / math.exp(OLD[h, i, c, 0])
            weight = 1.0 if weights is None else weights[h, c]
            beyond = (advantage > 0 and ratio > 1 + SETTINGS.clip) or (advantage < 0 and ratio < 1 - SETTINGS.clip)
            for k in range(ACTIONS):
                if not (clipped and beyond):
                    slopes[h, k] -= weight * advantage * ratio * ((a == k) - p[k]) / CHUNKS
                slopes[h, k] -= SETTINGS.entropy * -p[k] * (math.log(p[k]) + entropy) / CHUNKS
    return slopes


def found(name, actors, batch):
    """Slopes along the biases, (half, agents, actions), and what is logged; `move` is a plain gradient step."""
    move = lambda i, slope: jax.tree.map(lambda x, g: x[i] - RATE * g, actors, slope)  # noqa: E731
    run = quick(lambda actors, batch: algorithm(name).gradients(actors, batch, SETTINGS, move, KEY))
    slopes, logs = run(actors, batch)
    return np.asarray(slopes.head.bias), logs


@pytest.mark.parametrize(("name", "clipped"), [("ia2c", False), ("coma", False), ("ippo", True), ("mappo", True)])
def test_simultaneous_gradients_are_those_of_the_loops(name, clipped, actors, batch):
    slopes, logs = found(name, actors, batch)
    expected = np.stack([by_hand(i, BIASES[i], clipped) for i in range(AGENTS)], 1)
    np.testing.assert_allclose(slopes, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(logs["divergence"], (RATIOS - 1 - np.log(RATIOS)).mean((2, 3)), rtol=1e-4)
    np.testing.assert_allclose(logs["clipped"], (np.abs(RATIOS - 1) > SETTINGS.clip).mean((2, 3)), rtol=1e-6)
    entropies = [-sum(q * math.log(q) for q in softmax(b)) for b in BIASES]
    np.testing.assert_allclose(logs["entropy"], [entropies] * 2, rtol=1e-5)


def test_happo_weighs_with_the_ratios_of_those_who_moved_before(actors, batch):
    order = [int(i) for i in jax.random.permutation(KEY, AGENTS)]
    assert order != np.argsort(order).tolist()  # else the way back could be mistaken for the way there
    weights = np.ones((2, CHUNKS))
    expected = np.zeros((2, AGENTS, ACTIONS))
    for i in order:
        expected[:, i] = by_hand(i, BIASES[i], True, weights)
        moved = softmax(BIASES[i] - RATE * expected[:, i].mean(0))
        for h in range(2):
            for c in range(CHUNKS):
                weights[h, c] *= moved[TAKEN[h, i, c, 0]] / math.exp(OLD[h, i, c, 0])
    slopes, _ = found("happo", actors, batch)
    np.testing.assert_allclose(slopes, expected, rtol=1e-4, atol=1e-6)
    assert np.abs(weights - 1).max() > 0.5


def test_the_clipped_gain_is_rlaxs():
    rlax = pytest.importorskip("rlax")
    ratio, advantages = jnp.asarray(RATIOS.ravel(), jnp.float32), jnp.asarray(ADVANTAGES.ravel(), jnp.float32)
    gain = lambda r: jnp.mean(clipped_objective(jnp.log(r), advantages, 0.2))  # noqa: E731
    theirs = lambda r: -rlax.clipped_surrogate_pg_loss(r, advantages, 0.2)  # noqa: E731
    np.testing.assert_allclose(gain(ratio), theirs(ratio), rtol=1e-5)
    np.testing.assert_allclose(quick(jax.grad(gain))(ratio), quick(jax.grad(theirs))(ratio), rtol=1e-4, atol=1e-7)
