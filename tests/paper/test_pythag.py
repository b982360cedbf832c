"""`cor:pythag`: E|F|^2 = E|G|^2 + E|R|^2 in L2(M, mu)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.geometry.metric import Dense
from hpml.projection.affine import affine_projection
from hpml.projection.project import project
from hpml.projection.projectors.neural import NeuralProjector

TURN = np.array([[0.0, 1.0], [-1.0, 0.0]])


def energy(field, w, M):
    return w @ np.einsum("nd,de,ne->n", field, M, field)


@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 5))
def test_the_affine_split_adds_up(seed, dimension):
    rng = np.random.default_rng(seed)
    J, root, factor = rng.normal(size=(3, dimension, dimension))
    C, M = root @ root.T + 0.1 * np.eye(dimension), factor @ factor.T + 0.1 * np.eye(dimension)
    a = rng.normal(size=dimension)
    p = affine_projection(J, a, C, Dense(M))
    # E|a + J x|_M^2 = |a|_M^2 + tr(M J C J^T) for centred x.
    total = a @ M @ a + np.trace(M @ J @ C @ J.T)
    potential = a @ M @ a + np.trace(M @ p.jacobian @ C @ p.jacobian.T)
    circulation = np.trace(M @ p.circulation @ C @ p.circulation.T)
    assert potential + circulation == pytest.approx(total, rel=1e-9)
    assert p.nonpotentiality == pytest.approx(circulation / total, abs=1e-12)


def test_any_other_gradient_leaves_more():
    """The projection is the least-squares one: moving the Hessian any way adds to the residual's energy."""
    rng = np.random.default_rng(1)
    J, C = rng.normal(size=(3, 3)), np.diag([4.0, 1.0, 0.25])
    p = affine_projection(J, 0.0, C)
    best = np.trace(p.circulation @ C @ p.circulation.T)
    for _ in range(20):
        H = rng.normal(size=(3, 3)) * 0.1
        other = p.circulation + 0.5 * (H + H.T)
        assert np.trace(other @ C @ other.T) > best


def test_the_exact_split_on_the_disc_adds_up():
    r, w = np.polynomial.legendre.leggauss(24)
    r, w = 0.5 * (r + 1), 0.5 * w
    t = 2 * np.pi * np.arange(48) / 48
    X = np.stack([np.outer(r, np.cos(t)).ravel(), np.outer(r, np.sin(t)).ravel()], 1)
    w = np.repeat(2 * r * w / 48, 48)
    G = -X - 0.6 * np.sin(2 * X) * np.array([1.0, 0.0])
    R = 3.0 / (1 + (X**2).sum(1, keepdims=True)) * X @ TURN
    I = np.eye(2)
    assert energy(G + R, w, I) == pytest.approx(energy(G, w, I) + energy(R, w, I), rel=1e-12)
    skewed = np.array([[1.0, 0.5], [0.5, 1.0]])  # in another metric this split is not the projection
    assert energy(G + R, w, skewed) != pytest.approx(energy(G, w, skewed) + energy(R, w, skewed), rel=1e-3)


def test_the_neural_split_nearly_adds_up():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    F = -X + 2.0 * X @ TURN
    p = project(X, F, NeuralProjector())
    w = np.full(300, 1 / 300)
    parts = energy(p.direction, w, np.eye(2)) + energy(p.residual, w, np.eye(2))
    assert parts == pytest.approx(energy(F, w, np.eye(2)), rel=0.05)
