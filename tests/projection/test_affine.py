"""The affine oracle against solutions that share no code with it: moment matrices, quadrature, Monte Carlo."""

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from hpml.geometry.metric import Dense, Diagonal, Euclidean, LowRank, Shahshahani
from hpml.projection.affine import affine_projection


def problem(seed, dimension):
    rng = np.random.default_rng(seed)
    J, root, factor = rng.normal(size=(3, dimension, dimension))
    C, M = root @ root.T + 0.1 * np.eye(dimension), factor @ factor.T + 0.1 * np.eye(dimension)
    return rng, J, C, M


def moment_least_squares(J, C, M):
    """The symmetric H that minimises tr(M (J - M^-1 H) C (J - M^-1 H)^T), by a dense least squares over its entries."""
    d = len(J)
    root_M, root_C = scipy.linalg.sqrtm(M).real, scipy.linalg.sqrtm(C).real
    entries = [(i, j) for i in range(d) for j in range(i + 1)]
    columns = []
    for i, j in entries:
        E = np.zeros((d, d))
        E[i, j] = E[j, i] = 1.0
        columns.append((root_M @ np.linalg.solve(M, E) @ root_C).ravel())
    x = np.linalg.lstsq(np.stack(columns, 1), (root_M @ J @ root_C).ravel(), rcond=None)[0]
    H = np.zeros((d, d))
    for (i, j), value in zip(entries, x, strict=True):
        H[i, j] = H[j, i] = value
    return H


@given(seed=st.integers(0, 2**32 - 1), dimension=st.integers(1, 6))
def test_it_is_the_least_squares_solution_and_solves_the_lyapunov_equation(seed, dimension):
    _, J, C, M = problem(seed, dimension)
    p = affine_projection(J, covariance=C, metric=Dense(M))
    H = p.hessian
    np.testing.assert_allclose(H, H.T)
    scale = np.abs(H).max() + np.abs(J).max()
    np.testing.assert_allclose(H, moment_least_squares(J, C, M), atol=1e-8 * scale * np.linalg.cond(C))
    inverse = np.linalg.inv(M)
    left = inverse @ H @ C + C @ H @ inverse
    np.testing.assert_allclose(left, J @ C + C @ J.T, atol=1e-8 * np.abs(C).max() * np.abs(J).max() * np.linalg.cond(M))
    np.testing.assert_allclose(p.jacobian, inverse @ H, atol=1e-8 * np.linalg.cond(M) * scale)


def test_it_agrees_with_scipys_lyapunov_solver():
    _, J, C, _ = problem(3, 5)
    H = scipy.linalg.solve_continuous_lyapunov(C, J @ C + C @ J.T)
    np.testing.assert_allclose(affine_projection(J, covariance=C).hessian, H, atol=1e-10)


def test_uniform_ellipsoids_have_the_same_answer_over_higher_polynomials():
    """Least squares over all potentials of degree 4 on a uniform ellipse, by quadrature, finds the affine answer."""
    J, a, mean = np.array([[-1.0, 2.0], [0.5, 0.3]]), np.array([0.3, -1.0]), np.array([0.2, -0.4])
    stretch = np.array([[2.0, 0.5], [0.0, 0.7]])
    r, w = np.polynomial.legendre.leggauss(12)
    r, w = 0.5 * (r + 1), 0.5 * w
    t = 2 * np.pi * np.arange(24) / 24
    steps = np.stack([np.outer(r, np.cos(t)).ravel(), np.outer(r, np.sin(t)).ravel()], 1) @ stretch.T
    mu = np.repeat(2 * r * w / 24, 24)
    x, y = steps.T
    powers = [(i, j) for i in range(5) for j in range(5 - i) if i + j > 0]
    G = [np.stack([i * x ** max(i - 1, 0) * y**j, j * x**i * y ** max(j - 1, 0)], 1) for i, j in powers]
    root = np.sqrt(mu)[:, None]
    A = np.stack([(root * g).ravel() for g in G], 1)
    F = a + steps @ J.T
    best = (A @ np.linalg.lstsq(A, (root * F).ravel(), rcond=None)[0]).reshape(-1, 2) / root
    p = affine_projection(J, a, stretch @ stretch.T / 4, mean=mean)  # a unit disc has covariance I / 4
    np.testing.assert_allclose(p.direction(mean + steps), best, atol=1e-10)
    np.testing.assert_allclose(p.direction(mean + steps) + p.residual(mean + steps), F, atol=1e-12)
    share = mu @ ((F - best) ** 2).sum(1) / (mu @ (F**2).sum(1))
    assert p.nonpotentiality == pytest.approx(share, abs=1e-10)
    assert mu @ p.potential(mean + steps) == pytest.approx(0.0, abs=1e-12)


def test_monte_carlo_agrees():
    rng, J, C, M = problem(1, 3)
    p = affine_projection(J, 1.0, C, Dense(M))
    X = rng.multivariate_normal(np.zeros(3), C, size=200_000)
    R = p.residual(X)
    F = 1.0 + X @ J.T
    share = np.einsum("nd,de,ne->", R, M, R) / np.einsum("nd,de,ne->", F, M, F)
    assert p.nonpotentiality == pytest.approx(share, rel=0.02)
    W = rng.normal(size=(3, 3))
    test_gradient = X @ (W + W.T) + np.cos(X @ W[0])[:, None] * W[0]
    product = np.mean((R * test_gradient).sum(1))
    assert abs(product) < 0.02 * np.sqrt(np.mean((R**2).sum(1)) * np.mean((test_gradient**2).sum(1)))


@pytest.mark.parametrize("metric", [Euclidean(), Diagonal([2.0, 0.5, 1.0]), LowRank([1.0, 2.0, 3.0], [1.0, 0.0, 2.0])])
def test_the_direction_is_the_metric_gradient_of_the_potential(metric):
    rng, J, C, _ = problem(2, 3)
    p = affine_projection(J, rng.normal(size=3), C, metric, mean=rng.normal(size=3))
    X, step = rng.normal(size=(4, 3)), 1e-5
    gradient = np.stack([(p.potential(X + step * e) - p.potential(X - step * e)) / (2 * step) for e in np.eye(3)], 1)
    np.testing.assert_allclose(np.asarray(metric.raise_index(gradient)), p.direction(X), atol=1e-7)


def test_directions_without_variance_are_left_alone():
    p = affine_projection([[0.0, -1.0], [1.0, 0.0]], covariance=np.diag([1.0, 0.0]))
    np.testing.assert_allclose(
        p.direction(np.array([[1.0, 0.0]])), [[0.0, 1.0]], atol=1e-12
    )  # along a line all is a gradient
    assert p.nonpotentiality == pytest.approx(0.0, abs=1e-12)
    assert affine_projection(np.zeros((2, 2))).nonpotentiality == 0.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"J": np.ones((2, 3))}, "square"),
        ({"J": np.eye(2), "offset": np.ones(3)}, "offset"),
        ({"J": np.eye(2), "covariance": np.array([[1.0, 0.5], [0.0, 1.0]])}, "symmetric"),
        ({"J": np.eye(2), "covariance": np.diag([1.0, -1.0])}, "negative"),
        ({"J": np.full((2, 2), np.nan)}, "not finite"),
        ({"J": np.eye(2), "metric": Shahshahani(3)}, "constant"),
        ({"J": np.eye(2), "metric": Diagonal([1.0, 1.0, 1.0])}, "dimension"),
    ],
)
def test_bad_input_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        affine_projection(**arguments)
