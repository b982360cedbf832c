"""`lem:orth`: the residual is L2(M, mu)-orthogonal to every metric gradient."""

import numpy as np
import pytest

from hpml.geometry.metric import Dense, Euclidean
from hpml.projection.affine import affine_projection
from hpml.projection.project import project
from hpml.projection.projectors.kernel import KernelProjector
from hpml.projection.projectors.neural import NeuralProjector

POWERS = [(i, j) for i in range(5) for j in range(5 - i) if i + j > 0]


def disc_rule(radial=24, angular=48):
    """Points and weights of the uniform law on the unit disc."""
    r, w = np.polynomial.legendre.leggauss(radial)
    r, w = 0.5 * (r + 1), 0.5 * w
    t = 2 * np.pi * np.arange(angular) / angular
    X = np.stack([np.outer(r, np.cos(t)).ravel(), np.outer(r, np.sin(t)).ravel()], 1)
    return X, np.repeat(2 * r * w / angular, angular)


def gauss_rule(covariance, count=12):
    """Points and weights of a centred Gaussian in the plane."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    w = w / w.sum()
    grid = np.stack([g.ravel() for g in np.meshgrid(x, x, indexing="ij")], 1)
    return grid @ np.linalg.cholesky(covariance).T, np.outer(w, w).ravel()


def monomial_gradients(X):
    """Gradients (k, n, 2) of x^i y^j, and of cos(2x - y), which no polynomial holds."""
    x, y = X.T
    out = [np.stack([i * x ** max(i - 1, 0) * y**j, j * x**i * y ** max(j - 1, 0)], 1) for i, j in POWERS]
    wave = -np.sin(2 * x - y)
    return np.stack([*out, np.stack([2 * wave, -wave], 1)])


def gradient_part(X):
    return -X - 0.6 * np.sin(2 * X)


def swirl(X, rho=2.0):
    return rho * 2 / (1 + (X**2).sum(1, keepdims=True)) * X @ np.array([[0.0, 1.0], [-1.0, 0.0]])


def products(R, X, w):
    """E<R, grad_M Phi>_M = E[R . grad Phi] for every test potential, as cosines in L2."""
    G = monomial_gradients(X)
    scale = np.sqrt(w @ (R**2).sum(1)) * np.sqrt(np.einsum("n,knd->k", w, G**2))
    return np.einsum("n,nd,knd->k", w, R, G) / scale


def test_a_radial_swirl_on_the_disc_is_orthogonal_to_gradients():
    X, w = disc_rule()
    assert np.abs(products(swirl(X), X, w)).max() < 1e-12
    assert np.abs(products(swirl(X) + 0.1 * gradient_part(X), X, w)).max() > 0.01


@pytest.mark.parametrize("metric", [Euclidean(), Dense([[2.0, 0.7], [0.7, 1.0]])])
def test_the_affine_residual_is_orthogonal_under_any_gaussian(metric):
    C = np.array([[4.0, 1.0], [1.0, 0.5]])
    J = np.array([[-1.0, 2.0], [0.5, 0.3]])
    X, w = gauss_rule(C)
    exact = affine_projection(J, [0.3, -1.0], C, metric)
    polynomials = slice(0, len(POWERS))  # the wave is beyond the rule's degree
    assert np.abs(products(exact.residual(X), X, w)[polynomials]).max() < 1e-12
    # The symmetric part of J is not the projection here: the covariance is anisotropic.
    assert np.abs(products(X @ (J - 0.5 * (J + J.T)).T, X, w)[polynomials]).max() > 0.05


@pytest.mark.parametrize("projector", [KernelProjector(), NeuralProjector()], ids=["kernel", "neural"])
def test_the_projectors_residual_is_nearly_orthogonal(projector):
    X, w = disc_rule()
    rng = np.random.default_rng(0)
    angle, radius = rng.uniform(0, 2 * np.pi, 300), np.sqrt(rng.uniform(size=300))
    S = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    p = project(S, gradient_part(S) + swirl(S), projector)
    residual = gradient_part(X) + swirl(X) - p.at(X)
    raw = np.abs(products(gradient_part(X) + swirl(X), X, w)).max()
    assert np.abs(products(residual, X, w)).max() < 0.1 < raw
