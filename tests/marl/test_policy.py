"""Policies over some allowed actions are softmaxes over those alone."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from hpml.marl.policy import allowed, chosen, entropy_of

DRAW = np.random.default_rng(0)
LOGITS = DRAW.normal(size=(6, 5)).astype(np.float32)
MASK = (DRAW.random((6, 5)) < 0.5) | (np.arange(5) == 2)
ACTIONS = jnp.array([2, 2, 2, 2, 2, 2])


def test_forbidden_actions_have_no_probability_and_the_others_share_it():
    policy = np.exp(np.asarray(allowed(jnp.asarray(LOGITS), jnp.asarray(MASK))))
    np.testing.assert_array_equal(policy[~MASK], 0.0)
    for row, logits, mask in zip(policy, LOGITS, MASK, strict=True):
        weights = np.exp(logits[mask])
        np.testing.assert_allclose(row[mask], weights / weights.sum(), rtol=1e-5)


def test_entropy_is_that_of_the_allowed_actions():
    for mask in (MASK, None):
        log_policy = allowed(jnp.asarray(LOGITS), None if mask is None else jnp.asarray(mask))
        expected = stats.entropy(np.exp(np.asarray(log_policy, np.float64)), axis=-1)
        np.testing.assert_allclose(entropy_of(log_policy), expected, rtol=1e-5, atol=1e-6)


def test_gradients_are_finite_and_leave_forbidden_logits_alone():
    def total(logits):
        log_policy = allowed(logits, jnp.asarray(MASK))
        return jnp.sum(entropy_of(log_policy) + chosen(log_policy, ACTIONS))

    slope = np.asarray(jax.grad(total)(jnp.asarray(LOGITS)))
    assert np.isfinite(slope).all()
    np.testing.assert_array_equal(slope[~MASK], 0.0)
    assert (slope[MASK.sum(-1) > 1][:, 2] != 0).all()


def test_the_chosen_entry_is_the_actions_own():
    log_policy = allowed(jnp.asarray(LOGITS), None)
    actions = DRAW.integers(0, 5, 6)
    np.testing.assert_array_equal(chosen(log_policy, jnp.asarray(actions)), np.asarray(log_policy)[range(6), actions])
