"""`prop:poisson`: the least-squares potential solves div_mu(M^-1 grad Phi) = div_mu F with zero-flux residual.

Two solutions that share no code: finite volumes for the strong equation with the natural boundary condition, and the
least-squares problem of `def:proj` over polynomials. `hpml.project` is a third, from samples alone.
"""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import hpml

M_DIAGONAL = np.array([2.0, 0.5])


def density(X):
    return 1.0 + 0.5 * np.sin(2 * X[..., 0]) * np.cos(X[..., 1])


def field(X):
    """A field with a rotation that crosses the boundary of [-1, 1]^2."""
    x, y = X[..., 0], X[..., 1]
    return np.stack([-x + 1.5 * y + 0.3 * np.sin(2 * y), -1.5 * x - 0.5 * y * x], -1)


def finite_volumes(N, natural=True):
    """Phi at the cell centres: each cell's flux of density (M^-1 grad Phi - F) adds up to zero, none leaves the box."""
    h = 2.0 / N
    centres = -1 + h * (np.arange(N) + 0.5)
    faces = -1 + h * np.arange(1, N)
    index = np.arange(N * N).reshape(N, N)
    rows, columns, values, flux = [], [], [], np.zeros(N * N)
    for axis in (0, 1):
        grids = np.meshgrid(faces, centres, indexing="ij") if axis == 0 else np.meshgrid(centres, faces, indexing="ij")
        X = np.stack(grids, -1)
        left = (index[:-1] if axis == 0 else index[:, :-1]).ravel()
        right = (index[1:] if axis == 0 else index[:, 1:]).ravel()
        rho = density(X).ravel()
        stiff = rho / M_DIAGONAL[axis] / h
        for cell, sign in ((left, 1.0), (right, -1.0)):
            rows += [cell, cell]
            columns += [right, left]
            values += [sign * stiff, -sign * stiff]
            np.add.at(flux, cell, sign * rho * field(X)[..., axis].ravel())
        if not natural:
            for side, cells, sign in ((-1.0, index.take(0, axis), -1.0), (1.0, index.take(-1, axis), 1.0)):
                ends = [np.full(N, side), centres]
                X = np.stack(ends if axis == 0 else ends[::-1], -1)
                np.add.at(flux, cells, sign * density(X) * field(X)[..., axis])
    L = scipy.sparse.csr_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(N * N, N * N)
    )
    phi = np.zeros(N * N)
    phi[1:] = scipy.sparse.linalg.spsolve(L[1:, 1:].tocsc(), flux[1:])
    X = np.stack(np.meshgrid(centres, centres, indexing="ij"), -1).reshape(-1, 2)
    return X, phi - np.average(phi, weights=density(X))


class Galerkin:
    """The minimiser of `def:proj` over products of Legendre polynomials up to a degree."""

    def __init__(self, degree):
        self.degree = degree
        x, w = np.polynomial.legendre.leggauss(2 * degree + 8)
        X = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
        mu = np.outer(w, w).ravel() * density(X)
        G = self.basis(X)[1] / np.sqrt(M_DIAGONAL)[None, :, None]  # |M^-1 grad Phi|_M = |M^-1/2 grad Phi|
        target = field(X) * np.sqrt(M_DIAGONAL)
        root = np.sqrt(mu)[:, None]
        A = (root[..., None] * G).reshape(-1, G.shape[-1])
        self.coefficients = np.linalg.lstsq(A, (root * target).ravel(), rcond=None)[0]
        self.mean = mu @ (self.basis(X)[0] @ self.coefficients) / mu.sum()

    def basis(self, X):
        """Values (n, k) and gradients (n, 2, k), the constant left out."""
        eye = np.eye(self.degree + 1)
        P = [np.polynomial.legendre.legval(X[:, axis], eye).T for axis in (0, 1)]
        D = [
            np.polynomial.legendre.legval(X[:, axis], np.polynomial.legendre.legder(eye)).T.reshape(len(X), -1)
            for axis in (0, 1)
        ]
        value = np.einsum("ni,nj->nij", P[0], P[1]).reshape(len(X), -1)[:, 1:]
        dx = np.einsum("ni,nj->nij", D[0], P[1]).reshape(len(X), -1)[:, 1:]
        dy = np.einsum("ni,nj->nij", P[0], D[1]).reshape(len(X), -1)[:, 1:]
        return value, np.stack([dx, dy], 1)

    def potential(self, X):
        return self.basis(X)[0] @ self.coefficients - self.mean

    def direction(self, X):
        return self.basis(X)[1] @ self.coefficients / M_DIAGONAL


@pytest.fixture(scope="module")
def solution():
    return Galerkin(16)


def test_the_grid_solution_tends_to_the_least_squares_potential(solution):
    errors = []
    for N in (16, 32, 64):
        X, phi = finite_volumes(N)
        exact = solution.potential(X)
        errors.append(np.sqrt(np.mean((phi - exact) ** 2) / np.mean(exact**2)))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert errors[-1] < 2e-3
    assert (orders > 1.8).all()


def test_the_residual_has_no_flux_through_the_boundary(solution):
    t = np.linspace(-0.95, 0.95, 41)
    for axis in (0, 1):
        for side in (-1.0, 1.0):
            X = np.stack([np.full_like(t, side), t], 1)[:, :: 1 if axis == 0 else -1]
            flux = density(X) * (solution.direction(X) - field(X))[:, axis]
            through = density(X) * field(X)[:, axis]
            assert np.sqrt(np.mean(flux**2)) < 0.01 * np.sqrt(np.mean(through**2))


def test_a_potential_without_the_natural_condition_is_another_one(solution):
    """No flux of grad Phi, instead of none of the residual, solves another problem where F crosses the boundary."""
    X, phi = finite_volumes(32, natural=False)
    exact = solution.potential(X)
    assert np.sqrt(np.mean((phi - exact) ** 2) / np.mean(exact**2)) > 0.2


def distance(found, exact, mu):
    return np.sqrt(mu @ (found - exact) ** 2 / (mu @ exact**2))


# Seen at 256 samples: 0.05 and 0.10. Projected without the metric the potential is off by 0.54, without the density by
# 0.33.
@pytest.mark.parametrize(
    ("projector", "tolerance"), [(hpml.KernelProjector(), 0.08), (hpml.GraphProjector(), 0.15)], ids=["kernel", "graph"]
)
def test_the_projection_of_samples_is_the_grid_solution(projector, tolerance):
    """Cell centres weighted by the density stand for mu; the potentials have the same gauge, so none is fitted here."""
    X, phi = finite_volumes(16)
    mu = density(X)
    found = hpml.project(X, field(X), projector, hpml.Diagonal(M_DIAGONAL), weights=mu)
    assert distance(found.potential, phi, mu) < tolerance
    assert distance(found.potential, finite_volumes(16, natural=False)[1], mu) > 0.3
    elsewhere = hpml.project(X, field(X), projector, weights=mu)
    assert distance(elsewhere.potential, phi, mu) > 0.3
