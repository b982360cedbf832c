"""`rem:jac_bridge`: of a linear field under isotropic sampling the projection keeps the symmetric part."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.projection.affine import affine_projection
from hpml.projection.project import project
from hpml.projection.projectors.neural import NeuralProjector


@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 6), size=st.floats(1e-2, 1e2))
def test_isotropic_sampling_keeps_the_symmetric_part(seed, dimension, size):
    B = np.random.default_rng(seed).normal(size=(dimension, dimension))
    p = affine_projection(B, covariance=size * np.eye(dimension))
    np.testing.assert_allclose(p.jacobian, 0.5 * (B + B.T), atol=1e-12)
    share = np.sum((B - B.T) ** 2) / 4 / np.sum(B**2)
    assert p.nonpotentiality == pytest.approx(share, abs=1e-12)


def test_anisotropic_sampling_does_not():
    B = np.array([[-1.0, 2.0], [-2.0, -1.0]])
    p = affine_projection(B, covariance=np.diag([9.0, 1.0]))
    assert np.abs(p.jacobian - 0.5 * (B + B.T)).max() > 0.5


def polynomial_projection(field, radius, degree=4):
    """The Jacobian at zero of the projection on the disc of a radius, over polynomial potentials of a degree."""
    r, w = np.polynomial.legendre.leggauss(16)
    r, w = 0.5 * (r + 1), 0.5 * w
    t = 2 * np.pi * np.arange(32) / 32
    x, y = (np.outer(r, part(t)).ravel() for part in (np.cos, np.sin))
    root = np.sqrt(np.repeat(2 * r * w / 32, 32))
    powers = [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i) if i + j > 0]
    columns = [
        np.concatenate([root * i * x ** max(i - 1, 0) * y**j, root * j * x**i * y ** max(j - 1, 0)]) for i, j in powers
    ]
    F = field(radius * np.stack([x, y], 1)) / radius
    c = dict(zip(powers, np.linalg.lstsq(np.stack(columns, 1), (root[:, None] * F).T.ravel())[0], strict=True))
    return np.array([[2 * c[2, 0], c[1, 1]], [c[1, 1], 2 * c[0, 2]]])


def test_the_projection_on_a_small_disc_tends_to_the_symmetric_part():
    def field(X):
        a, b = X.T
        return np.stack([np.sin(a) + 2 * b * np.cos(a), np.exp(b) * a - np.sin(2 * b)], 1)

    J = np.array([[1.0, 2.0], [1.0, -2.0]])
    errors = [np.abs(polynomial_projection(field, radius) - 0.5 * (J + J.T)).max() for radius in (0.4, 0.2, 0.1)]
    assert errors[-1] < 5e-3
    assert (
        np.log2(np.array(errors[:-1]) / errors[1:]) > 1.8
    ).all()  # the cubic part of the field leaks at second order


def test_the_neural_projector_finds_the_symmetric_part():
    rng = np.random.default_rng(0)
    X, B = rng.normal(size=(400, 3)), rng.normal(size=(3, 3))
    p = project(X, X @ B.T, NeuralProjector())
    symmetric = X @ (0.5 * (B + B.T))
    assert np.linalg.norm(p.direction - symmetric) < 0.15 * np.linalg.norm(symmetric)
