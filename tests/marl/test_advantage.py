"""Advantages against loops and a public library; running scales against their definitions."""

import jax.numpy as jnp
import numpy as np
import pytest

from hpml.marl.advantage import FOLLOW, advantages_of, discounted, follow, new_scale, normalised

T, E, AGENTS = 7, 2, 3
DISCOUNT = 0.9
DRAW = np.random.default_rng(0)
REWARDS = DRAW.normal(size=(T, E, AGENTS)).astype(np.float32)
VALUES = DRAW.normal(size=(T + 1, E, AGENTS)).astype(np.float32)
ENDS = np.broadcast_to((DRAW.random((T, E)) < 0.3)[..., None], REWARDS.shape)


def found(trace):
    return np.asarray(advantages_of(jnp.asarray(REWARDS), jnp.asarray(VALUES), jnp.asarray(ENDS), DISCOUNT, trace))


@pytest.mark.parametrize("trace", [0.0, 0.6, 1.0])
def test_advantages_are_sums_of_differences_up_to_the_episodes_end(trace):
    assert ENDS.any()
    assert not ENDS.all()
    expected = np.zeros_like(REWARDS)
    for t in range(T):
        for e in range(E):
            for i in range(AGENTS):
                factor = 1.0
                for k in range(t, T):
                    after = 0.0 if ENDS[k, e, i] else VALUES[k + 1, e, i]
                    expected[t, e, i] += factor * (REWARDS[k, e, i] + DISCOUNT * after - VALUES[k, e, i])
                    if ENDS[k, e, i]:
                        break
                    factor *= DISCOUNT * trace
    np.testing.assert_allclose(found(trace), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("trace", [0.0, 0.6, 1.0])
def test_advantages_agree_with_rlax(trace):
    rlax = pytest.importorskip("rlax")
    discounts = DISCOUNT * (1.0 - ENDS)
    for e in range(E):
        for i in range(AGENTS):
            expected = rlax.truncated_generalized_advantage_estimation(
                REWARDS[:, e, i], discounts[:, e, i].astype(np.float32), trace, VALUES[:, e, i]
            )
            np.testing.assert_allclose(found(trace)[:, e, i], expected, rtol=1e-5, atol=1e-5)


def test_with_a_full_trace_value_and_advantage_make_the_discounted_return():
    returns = found(1.0) + VALUES[:-1]
    later = VALUES[-1]
    for t in reversed(range(T)):
        later = REWARDS[t] + DISCOUNT * np.where(ENDS[t], 0.0, later)
        np.testing.assert_allclose(returns[t], later, rtol=1e-4, atol=1e-5)


def test_a_scale_is_the_weighted_mean_and_deviation_of_what_it_saw():
    scale = new_scale(AGENTS)
    np.testing.assert_array_equal(scale.centre, np.zeros(AGENTS))
    np.testing.assert_array_equal(scale.deviation, np.ones(AGENTS))
    batches = [DRAW.normal(loc=[1.0, -2.0, 0.0], scale=[1.0, 3.0, 0.1], size=(50, AGENTS)) for _ in range(3)]
    for number, batch in enumerate(batches):
        scale = follow(scale, jnp.asarray(batch, jnp.float32))
        weights = np.array([(1.0 - FOLLOW) ** (number - k) for k in range(number + 1)])
        weights = np.repeat(weights / weights.sum() / 50, 50)
        seen = np.concatenate(batches[: number + 1])
        mean = weights @ seen
        np.testing.assert_allclose(scale.centre, mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(scale.deviation, np.sqrt(weights @ (seen - mean) ** 2), rtol=1e-3)


def test_each_agents_advantages_are_normalised_on_their_own():
    data = jnp.asarray(REWARDS * np.array([1.0, 50.0, 0.0]) + np.array([0.0, -7.0, 4.0]), jnp.float32)
    out = np.asarray(normalised(data))
    np.testing.assert_allclose(out[..., :2].mean((0, 1)), 0.0, atol=1e-5)
    np.testing.assert_allclose(out[..., :2].std((0, 1)), 1.0, rtol=1e-5)
    np.testing.assert_array_equal(out[..., 2], 0.0)  # all alike: nothing to prefer
    np.testing.assert_array_equal(out[..., 0], np.asarray(normalised(data[..., :1]))[..., 0])


def test_discounted_sums_run_along_episodes_and_over_rollouts():
    ends = jnp.asarray(ENDS[..., 0])
    expected = np.zeros_like(REWARDS)
    total = np.zeros((E, AGENTS))
    for t in range(T):
        total = DISCOUNT * total + REWARDS[t]
        expected[t] = total
        total = np.where(ENDS[t], 0.0, total)
    last, sums = discounted(jnp.asarray(REWARDS), ends, jnp.zeros((E, AGENTS)), DISCOUNT)
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last, total, rtol=1e-5, atol=1e-6)
    middle, first = discounted(jnp.asarray(REWARDS[:3]), ends[:3], jnp.zeros((E, AGENTS)), DISCOUNT)
    _, second = discounted(jnp.asarray(REWARDS[3:]), ends[3:], middle, DISCOUNT)
    np.testing.assert_array_equal(np.concatenate([first, second]), sums)
