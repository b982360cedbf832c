"""What a rule may ask of the field: exact or noisy values, products with the Jacobian, and an honest count."""

import jax
import numpy as np
import pytest

from hpml.dynamics.oracle import PRODUCT, Oracle
from hpml.games.families.linear import Linear, swirl
from hpml.games.families.normal_form import NormalForm
from hpml.games.game import evaluate
from hpml.geometry.domain import Space

J = np.random.default_rng(0).normal(size=(3, 3))
GAME = Linear(J, Space(3), blocks=(1, 2))
X, V = np.random.default_rng(1).normal(size=(2, 5, 3))


def test_products_with_the_jacobian():
    oracle = Oracle(GAME)
    np.testing.assert_allclose(oracle.push(X, V), V @ J.T, atol=1e-12)
    np.testing.assert_allclose(oracle.pull(X, V), V @ J, atol=1e-12)
    np.testing.assert_allclose(oracle.turn(X, V), V @ (J - J.T).T / 2, atol=1e-12)
    assert oracle.evaluations == 4 * PRODUCT


def test_products_agree_with_differences_where_the_field_bends():
    game = NormalForm(np.random.default_rng(0).normal(size=(2, 2, 3)), coordinates="logits")
    x, v = np.random.default_rng(1).normal(size=(2, 1, 5))
    steep = (evaluate(game, x + 1e-6 * v) - evaluate(game, x - 1e-6 * v)) / 2e-6
    np.testing.assert_allclose(Oracle(game).push(x, v), steep, atol=1e-8)


def test_one_agent_at_a_time_counts_as_one_evaluation_together():
    oracle = Oracle(GAME)
    first, second = oracle.own(X, 0), oracle.own(X, 1)
    assert oracle.evaluations == 1
    np.testing.assert_allclose(first + second, X @ J.T, atol=1e-12)
    assert (first[:, 1:] == 0).all()
    assert (second[:, :1] == 0).all()


def test_samples_count_each_and_clouds_by_start():
    oracle = Oracle(GAME)
    oracle.sample(X)
    assert oracle.evaluations == 5
    cloud = oracle.around(np.stack([X[:4], V[:4]]))
    assert oracle.evaluations == 9
    np.testing.assert_allclose(cloud[1], V[:4] @ J.T, atol=1e-12)


def test_noise_has_the_chosen_size_no_bias_and_no_memory():
    sigma, x = 0.4, np.tile(np.array([[0.3, -0.2]]), (4000, 1))
    oracle = Oracle(swirl(), sigma, seed=3)
    draws = np.stack([oracle(x), oracle(x)]) - evaluate(swirl(), x)
    assert np.abs(draws.mean((0, 1))).max() < 4 * sigma / np.sqrt(8000)
    np.testing.assert_allclose(draws.std((0, 1)), sigma, rtol=0.05)
    mixed = np.corrcoef(draws.transpose(0, 2, 1).reshape(4, -1)) - np.eye(4)
    assert np.abs(mixed).max() < 0.07  # between coordinates, and between one call and the next
    np.testing.assert_array_equal(oracle.push(x[:2], x[:2]), Oracle(swirl()).push(x[:2], x[:2]))


def test_keys_differ_and_follow_the_seed():
    def data(key):
        return np.asarray(jax.random.key_data(key)).tolist()

    first, second = Oracle(swirl(), seed=1), Oracle(swirl(), seed=1)
    keys = [data(first.key()), data(first.key())]
    assert keys[0] != keys[1]
    assert keys == [data(second.key()), data(second.key())]
    assert data(Oracle(swirl(), seed=2).key()) != keys[0]


@pytest.mark.parametrize("noise", [-0.1, np.nan, np.inf])
def test_bad_noise_is_refused(noise):
    with pytest.raises(ValueError, match="noise"):
        Oracle(swirl(), noise)
