"""The Jacobian split against closed forms, under changes of coordinates, and its matrix-free estimate."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.diagnostics.jacobian import antisymmetric_energy, estimate_energy, split_jacobian
from hpml.games.families.linear import Linear, skew3d, swirl
from hpml.games.families.normal_form import bimatrix
from hpml.geometry.metric import Dense, Diagonal, Shahshahani, Varying

POINTS = np.random.default_rng(0).uniform(-1, 1, size=(6, 3))


def wavy(x):
    return jnp.stack([jnp.sin(x[1]) + x[2] ** 2, x[0] * x[2], jnp.exp(x[0]) - x[1]])


def wavy_jacobian(x):
    a, b, c = x
    return np.array([[0, np.cos(b), 2 * c], [c, 0, a], [np.exp(a), -1, 0]])


def test_the_split_is_the_hand_written_jacobian():
    split = split_jacobian(wavy, POINTS)
    J = np.stack([wavy_jacobian(x) for x in POINTS])
    np.testing.assert_allclose(split.jacobian, J, atol=1e-12)
    np.testing.assert_allclose(split.symmetric, (J + J.swapaxes(1, 2)) / 2, atol=1e-12)
    np.testing.assert_allclose(split.energy, ((J - J.swapaxes(1, 2)) ** 2).sum((1, 2)) / 4, atol=1e-12)


def test_linear_games_have_their_known_energy():
    np.testing.assert_allclose(antisymmetric_energy(swirl(3.0).field, POINTS[:, :2]), 2 * 3.0**2)
    np.testing.assert_allclose(antisymmetric_energy(skew3d(0.5).field, POINTS), 2 * 0.5**2)


@given(seed=st.integers(0, 2**32 - 1))
def test_the_energy_in_a_metric_is_the_energy_in_whitened_coordinates(seed):
    """y = W x turns the field F(x) into W F(W^-1 y) and the metric W^T W into the identity."""
    rng = np.random.default_rng(seed)
    J, root = rng.normal(size=(2, 3, 3))
    M = root @ root.T + 0.2 * np.eye(3)
    W = np.linalg.cholesky(M).T
    inside = W @ J @ np.linalg.inv(W)
    split = split_jacobian(Linear(J).field, POINTS[:1], Dense(M))
    assert split.energy[0] == pytest.approx(((inside - inside.T) ** 2).sum() / 4, rel=1e-9)
    np.testing.assert_allclose(split.antisymmetric[0], (M @ J - J.T @ M) / 2, atol=1e-12)


def test_metric_gradients_have_no_energy_in_their_own_metric_and_some_in_others():
    m = np.array([1.0, 4.0, 9.0])

    def field(x):  # grad(sin(x y) + z^2 x) / m
        a, b, c = x
        return jnp.stack([b * jnp.cos(a * b) + c**2, a * jnp.cos(a * b), 2 * a * c]) / m

    assert np.abs(antisymmetric_energy(field, POINTS, Diagonal(m))).max() < 1e-20
    assert antisymmetric_energy(field, POINTS).min() > 1e-3


def test_the_replicator_field_of_a_potential_game_has_none_in_the_shahshahani_metric():
    """M varies, so that the derivative of M counts too: the raised gradient of a common payoff is symmetric again."""
    A = np.random.default_rng(1).normal(size=(3, 3))
    game, metric = bimatrix(A, A, coordinates="dropped"), Shahshahani((3, 3))
    X = np.asarray(game.domain.retract(np.random.default_rng(2).uniform(0.1, 0.35, size=(5, 4))))

    def replicator(x):
        return metric.raise_index(game.field(x), x)

    assert np.abs(antisymmetric_energy(replicator, X, metric)).max() < 1e-18
    assert antisymmetric_energy(replicator, X).max() > 1e-3


def test_the_estimate_agrees_within_its_standard_error_in_many_dimensions():
    rng = np.random.default_rng(3)
    d = 300
    J = rng.normal(size=(d, d)) / np.sqrt(d)
    m = rng.uniform(0.5, 2.0, size=d)
    X = rng.normal(size=(2, d))

    def field(x):
        return jnp.asarray(J) @ x

    for metric in (None, Diagonal(m)):
        exact = antisymmetric_energy(field, X, metric)
        few, many = (estimate_energy(field, X, metric, probes=k) for k in (20, 320))
        assert (np.abs(many.value - exact) < 4 * many.error).all()
        assert (many.error < 0.02 * exact).all()
        np.testing.assert_allclose(few.error / many.error, 4.0, rtol=0.6)


def test_the_estimate_is_exact_for_a_gradient():
    estimate = estimate_energy(lambda x: x**3, POINTS, probes=4)
    np.testing.assert_array_equal(estimate.value, 0.0)


def test_bad_input_is_told():
    with pytest.raises(ValueError, match="cannot be differentiated"):
        split_jacobian(wavy, POINTS, Varying(lambda x: Diagonal(np.ones(3))))
    with pytest.raises(ValueError, match="two probes"):
        estimate_energy(wavy, POINTS, probes=1)
