"""Moves that stay feasible: the closest point, multiplicative weights in closed form, or nothing at all."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpml
from hpml.dynamics.retraction import retraction
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import run
from hpml.games.families.normal_form import NormalForm

DOMAINS = [hpml.Simplices((3, 2), "orthonormal"), hpml.Simplices((3, 2)), hpml.Box(-1, [1.0, 2.0, 1.0])]


def draw(domain, seed=0, count=5):
    return np.asarray(domain.sample(jax.random.key(seed), count), np.float64)


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
@pytest.mark.parametrize("coordinates", ["orthonormal", "dropped"])
def test_softmax_is_the_multiplicative_weights_update(coordinates, seed):
    """p_a exp(eta q_a) / sum_b p_b exp(eta q_b) with q the worth of the actions, in any coordinates."""
    rng = np.random.default_rng(seed)
    game, eta = NormalForm(rng.normal(size=(2, 3, 4)), coordinates=coordinates), 0.7
    x = draw(game.domain, seed, 2)
    path = run(game, Simultaneous(eta), x, steps=1, retraction="softmax").points[1]
    for before, after in zip(x, path, strict=True):
        p, q = (np.asarray(part, np.float64) for part in game.strategies(before))
        row, column = p * np.exp(eta * game.payoffs[0] @ q), q * np.exp(eta * p @ game.payoffs[1])
        for found, weights in zip(game.strategies(after), (row, column), strict=True):
            np.testing.assert_allclose(found, weights / weights.sum(), atol=1e-6)


def test_softmax_keeps_actions_without_probability_away():
    domain = hpml.Simplices((3,), "orthonormal")
    corner = np.asarray(domain.reduce([np.array([[0.5, 0.5, 0.0]])]), np.float64)
    moved = retraction(domain, "softmax")(corner, np.asarray(domain.reduce_covectors([np.array([[1.0, 0.0, 9.0]])])))
    p = np.asarray(domain.complete(moved)[0])[0]
    np.testing.assert_allclose(p, [np.e / (1 + np.e), 1 / (1 + np.e), 0.0], atol=1e-6)


@pytest.mark.parametrize("domain", DOMAINS)
def test_euclidean_leaves_feasible_points_and_finds_no_point_closer(domain):
    move, x = retraction(domain, "euclidean"), draw(domain)
    np.testing.assert_allclose(move(x, np.zeros_like(x)), x, atol=1e-6)
    target = x + np.random.default_rng(0).normal(size=x.shape)
    found = move(x, target - x)
    np.testing.assert_allclose(move(found, np.zeros_like(x)), found, atol=1e-12)
    if getattr(domain, "coordinates", "") != "dropped":  # there the distance is that of the complete vectors
        others = draw(domain, 1, 400)
        far = np.linalg.norm(target[:, None] - others[None], axis=2).min(1)
        assert (np.linalg.norm(target - found, axis=1) <= far + 1e-6).all()


def test_identity_moves_anywhere():
    x = np.ones((2, 3))
    np.testing.assert_array_equal(retraction(DOMAINS[0], "identity")(x, 5 * x), 6 * x)


def test_bad_names_and_domains_are_refused():
    with pytest.raises(ValueError, match="retraction must be"):
        retraction(DOMAINS[0], "nearest")
    with pytest.raises(ValueError, match="mixed strategies"):
        retraction(DOMAINS[2], "softmax")
