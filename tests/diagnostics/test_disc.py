"""Disc-game planes rebuild the matrix that they come from, and turn the way it does (`def:rot_energy`)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.diagnostics.disc import disc_embedding, disc_planes, witness_planes
from hpml.projection.witness import antisymmetric_witness


@given(st.integers(0, 1000), st.integers(1, 8))
def test_planes_rebuild_the_antisymmetric_part(seed, d):
    J = np.random.default_rng(seed).normal(size=(d, d))
    A = (J - J.T) / 2
    planes = disc_planes(J)
    u, v = planes.axes[:, 0], planes.axes[:, 1]
    rebuilt = np.einsum("p,pi,pj->ij", planes.strengths, v, u) - np.einsum("p,pi,pj->ij", planes.strengths, u, v)
    np.testing.assert_allclose(rebuilt, A, atol=1e-10)
    pairs = planes.axes.reshape(-1, d)
    np.testing.assert_allclose(pairs @ pairs.T, np.eye(len(pairs)), atol=1e-10)
    np.testing.assert_allclose(np.repeat(planes.strengths, 2), np.linalg.svd(A)[1][: 2 * planes.count], atol=1e-10)
    assert planes.antisymmetric == pytest.approx((A**2).sum() / (J**2).sum())
    if d > 1:
        assert planes.shares.sum() == pytest.approx(1.0)


@given(st.integers(0, 1000), st.integers(2, 7))
def test_the_embedding_plays_the_payoffs(seed, n):
    P = np.random.default_rng(seed).normal(size=(n, n))
    P = P - P.T
    y = disc_embedding(P)
    played = np.einsum("ip,jp->ij", y[..., 0], y[..., 1]) - np.einsum("ip,jp->ij", y[..., 1], y[..., 0])
    np.testing.assert_allclose(played, P, atol=1e-10)


def test_rock_paper_scissors_is_one_disc_with_strategies_a_third_of_a_turn_apart():
    y = disc_embedding([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    assert y.shape == (3, 1, 2)
    angles = np.unwrap(np.arctan2(y[:, 0, 1], y[:, 0, 0]))
    # Scissors lies a third of a turn ahead of rock, which beats it; paper is behind.
    np.testing.assert_allclose(np.diff(angles), -2 * np.pi / 3, atol=1e-10)
    assert np.ptp(np.linalg.norm(y[:, 0], axis=1)) < 1e-12


def test_samples_show_the_plane_that_turns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 4)) * [1.0, 2.0, 1.0, 1.0] + 5.0
    J = np.zeros((4, 4))
    J[1, 0], J[0, 1] = 1.0, -1.0
    planes = witness_planes(antisymmetric_witness(X, (X - 5.0) @ J.T), X.mean(0))
    assert planes.shares[0] > 0.98
    inside = planes.embed(X)[:, 0]
    assert inside.std(0) == pytest.approx([1.0, 1.0], abs=0.05)  # standard deviations of the points
    assert np.abs(planes.axes[0][:, 2:]).max() < 0.05


def test_bad_input_is_said():
    with pytest.raises(ValueError, match="square"):
        disc_planes(np.ones((2, 3)))
    with pytest.raises(ValueError, match="antisymmetric"):
        disc_embedding(np.ones((2, 2)))
    with pytest.raises(ValueError, match="2 columns"):
        disc_planes(np.array([[0.0, 1], [-1, 0]])).embed(np.ones((3, 3)))
