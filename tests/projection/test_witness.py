"""The antisymmetric witness: no rotation in a gradient under any covariance, the right plane in a rotation."""

import numpy as np
import pytest

from hpml.geometry.metric import Dense
from hpml.projection.witness import antisymmetric_witness


def gaussian(n, sd, seed=0):
    return np.random.default_rng(seed).normal(size=(n, len(sd))) * np.asarray(sd)


def test_a_linear_gradient_has_none_under_any_covariance():
    X = gaussian(200, [5.0, 1.0, 0.2])
    H = np.array([[-1.0, 0.8, 0.3], [0.8, 2.0, -0.5], [0.3, -0.5, 0.1]])
    F = X @ H + 1.0
    assert antisymmetric_witness(X, F).size < 1e-12
    # The products without whitening would see rotation.
    B = (F - F.mean(0)).T @ (X - X.mean(0))
    assert np.linalg.norm(B - B.T) / 2 / np.linalg.norm(B) > 0.3


def test_a_non_linear_gradient_has_little():
    X = gaussian(100_000, [3.0, 1.0])
    F = -X - np.stack([np.cos(X[:, 0] + X[:, 1]), np.cos(X[:, 0] + X[:, 1]) + 0.6 * np.sin(2 * X[:, 1])], 1)
    assert antisymmetric_witness(X, F).size < 0.01


def test_a_metric_gradient_has_none():
    M = np.array([[2.0, 0.9], [0.9, 1.0]])
    X = gaussian(200, [2.0, 1.0])
    F = X @ np.array([[1.0, 0.5], [0.5, -1.0]]) @ np.linalg.inv(M)
    assert antisymmetric_witness(X, F, Dense(M)).size < 1e-12
    assert antisymmetric_witness(X, F).size > 0.05


def test_a_rotation_is_all_and_its_plane_is_found():
    X = gaussian(5000, [1.0, 1.0, 1.0, 1.0])
    S = np.zeros((4, 4))
    S[1, 0], S[0, 1] = 2.0, -2.0  # e0 is carried to e1
    S[3, 2], S[2, 3] = 0.5, -0.5
    witness = antisymmetric_witness(X, X @ S.T)
    assert witness.size > 0.99
    assert witness.planes.shape == (2, 2, 4)
    assert witness.strengths[0] == pytest.approx(2.0, rel=0.1)
    assert witness.strengths[1] == pytest.approx(0.5, rel=0.1)
    u, v = witness.planes[0]
    assert np.linalg.norm(u[2:]) + np.linalg.norm(v[2:]) < 0.1
    assert u[0] * v[1] - u[1] * v[0] == pytest.approx(1.0, rel=0.1)  # the way round is kept


def test_planes_are_ellipses_of_the_points():
    X = gaussian(20_000, [3.0, 1.0])
    witness = antisymmetric_witness(X, X @ np.array([[0.0, 1.0], [-1.0, 0.0]]))
    u, v = witness.planes[0]
    assert abs(u[0] * v[1] - u[1] * v[0]) == pytest.approx(3.0, rel=0.05)


def test_it_grows_with_the_rotation():
    X = gaussian(2000, [2.0, 1.0])
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    sizes = [antisymmetric_witness(X, -X + rho * X @ turn.T).size for rho in (0.0, 0.3, 1.0, 4.0)]
    assert sizes == sorted(sizes)
    assert sizes[0] < 1e-12
    assert 0.0 <= sizes[-1] <= 1.0


def test_more_coordinates_than_points_and_still_fields_are_taken():
    X = gaussian(10, np.ones(200))
    assert 0.0 <= antisymmetric_witness(X, -X).size < 1e-12
    still = antisymmetric_witness(X, np.zeros_like(X))
    assert still.size == 0.0
    assert still.planes.shape == (0, 2, 200)
