"""`prop:circulation_residual`: circulation around closed curves is the residual's, and bounded by it.

The bound holds with |gamma'|_M, the norm of the paper's proof; with |gamma'|_{M^-1}, as stated there, M = 4I breaks it.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.geometry.metric import Dense
from hpml.projection.affine import affine_projection

TIMES = np.arange(256) / 256  # the trapezoid rule is exact for the trigonometric polynomials below


def random_curve(rng, dimension, order=4):
    """A closed trigonometric curve and its velocity at TIMES."""
    k = 2 * np.pi * np.arange(1, order + 1)
    a, b = rng.normal(size=(2, order, dimension)) / np.arange(1, order + 1)[:, None]
    angle = np.outer(TIMES, k)
    return np.cos(angle) @ a + np.sin(angle) @ b, (-np.sin(angle) * k) @ a + (np.cos(angle) * k) @ b


def circulation(field, velocity, M):
    return np.mean(np.einsum("td,de,te->t", velocity, M, field))


def root_mean_square(vectors, M):
    return np.sqrt(np.mean(np.einsum("td,de,te->t", vectors, M, vectors)))


@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(2, 5))
def test_the_residual_carries_the_circulation_and_bounds_it(seed, dimension):
    rng = np.random.default_rng(seed)
    J, root, factor = rng.normal(size=(3, dimension, dimension))
    M, C = factor @ factor.T + 0.1 * np.eye(dimension), root @ root.T + 0.1 * np.eye(dimension)
    p = affine_projection(J, rng.normal(size=dimension), C, Dense(M))
    curve, velocity = random_curve(rng, dimension)
    G, R = p.direction(curve), p.residual(curve)
    F = p.offset + curve @ J.T
    scale = root_mean_square(F, M) * root_mean_square(velocity, M)
    assert circulation(G, velocity, M) == pytest.approx(0.0, abs=1e-12 * scale)
    assert circulation(F, velocity, M) == pytest.approx(circulation(R, velocity, M), abs=1e-12 * scale)
    bound = root_mean_square(R, M) * root_mean_square(velocity, M)
    assert abs(circulation(F, velocity, M)) <= bound * (1 + 1e-12)


def test_a_non_quadratic_potential_has_no_circulation_either():
    rng = np.random.default_rng(0)
    M = np.array([[2.0, 0.5], [0.5, 1.0]])
    curve, velocity = random_curve(rng, 2, order=2)
    gradient = np.stack([np.cos(curve[:, 0]) * curve[:, 1], np.sin(curve[:, 0]) + curve[:, 1] ** 3], 1)
    G = gradient @ np.linalg.inv(M)
    assert abs(circulation(G, velocity, M)) < 1e-10
    # Without the metric's own gradient the circulation does not vanish.
    assert abs(circulation(gradient, velocity, M)) > 1e-2


def test_the_norm_as_stated_has_a_counterexample():
    """M = 4I and the unit circle: the circulation is 8 pi, the stated bound 2 pi, the proof's bound 8 pi."""
    M, turn = 4.0 * np.eye(2), np.array([[0.0, -1.0], [1.0, 0.0]])
    angle = 2 * np.pi * TIMES
    curve = np.stack([np.cos(angle), np.sin(angle)], 1)
    velocity = 2 * np.pi * curve @ turn.T
    p = affine_projection(turn, metric=Dense(M))
    R = p.residual(curve)
    np.testing.assert_allclose(R, curve @ turn.T, atol=1e-12)
    loop = circulation(curve @ turn.T, velocity, M)
    assert loop == pytest.approx(8 * np.pi)
    assert loop > root_mean_square(R, M) * root_mean_square(velocity, np.linalg.inv(M))
    assert loop == pytest.approx(root_mean_square(R, M) * root_mean_square(velocity, M))
