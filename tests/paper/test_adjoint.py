"""`lem:adjoint`: grad and -div_mu are adjoint in L2(mu) where no boundary term is left."""

import numpy as np
import pytest

import hpml
from hpml.projection.discrete.graph import neighbour_graph
from hpml.projection.discrete.poisson import divergence as graph_divergence
from hpml.projection.discrete.poisson import laplacian

N = 48
T = 2 * np.pi * np.arange(N) / N
X, Y = np.meshgrid(T, T, indexing="ij")
RHO = np.exp(0.4 * np.sin(X) + 0.3 * np.cos(X - Y))
PSI = np.sin(X + 2 * Y) + np.cos(Y)
U = np.stack([np.cos(Y) + np.sin(2 * X), np.sin(X) * np.cos(Y)])


def spectral(values, axis):
    k = np.fft.fftfreq(N, 1.0 / N)
    k[N // 2] = 0.0  # the highest wave has no derivative of its own on an even grid
    shape = (-1, 1) if axis == 0 else (1, -1)
    return np.fft.ifft(1j * k.reshape(shape) * np.fft.fft(values, axis=axis), axis=axis).real


def central(values, axis):
    return (np.roll(values, -1, axis) - np.roll(values, 1, axis)) / (2 * T[1])


def divergence(V, derivative):
    """div_mu V = div(rho V) / rho."""
    return sum(derivative(RHO * V[axis], axis) for axis in (0, 1)) / RHO


@pytest.mark.parametrize("derivative", [spectral, central])
def test_summation_by_parts_is_exact_on_the_torus(derivative):
    left = np.mean(sum(U[axis] * derivative(PSI, axis) for axis in (0, 1)) * RHO)
    right = -np.mean(PSI * divergence(U, derivative) * RHO)
    assert abs(left) > 1e-3
    assert left == pytest.approx(right, rel=1e-12)
    rng = np.random.default_rng(0)  # any grid functions, smooth or not
    psi, V = rng.normal(size=(N, N)), rng.normal(size=(2, N, N))
    left = np.mean(sum(V[axis] * derivative(psi, axis) for axis in (0, 1)) * RHO)
    assert left == pytest.approx(-np.mean(psi * divergence(V, derivative) * RHO), rel=1e-9)


@pytest.mark.parametrize(("derivative", "tolerance"), [(spectral, 1e-10), (central, 0.05)])
def test_the_grid_divergence_is_the_weighted_divergence(derivative, tolerance):
    """div_mu U = div U + U . grad log rho, by hand; an adjoint of a wrong operator would not do."""
    by_hand = 2 * np.cos(2 * X) - np.sin(X) * np.sin(Y)
    by_hand += U[0] * (0.4 * np.cos(X) - 0.3 * np.sin(X - Y)) + U[1] * 0.3 * np.sin(X - Y)
    assert np.abs(divergence(U, derivative) - by_hand).max() < tolerance


@pytest.mark.parametrize("tangent", [True, False])
def test_on_a_box_the_boundary_term_is_what_is_left(tangent):
    """On [0, 1]^2 with the uniform law; with U . n = 0 on the boundary nothing is left."""
    x, w = np.polynomial.legendre.leggauss(20)
    x, w = 0.5 * (x + 1), 0.5 * w
    A, B = np.meshgrid(x, x, indexing="ij")
    W = np.outer(w, w)

    def field(a, b):
        return a * (1 - a) * np.exp(b) if tangent else np.exp(b) * (1 + a)

    def field_slope(a, b):
        return (1 - 2 * a) * np.exp(b) if tangent else np.exp(b)

    def psi(a, b):
        return np.cos(a) * b**2 + a

    inside = np.sum(W * (field(A, B) * (-np.sin(A) * B**2 + 1) + psi(A, B) * field_slope(A, B)))
    boundary = w @ (field(1.0, x) * psi(1.0, x) - field(0.0, x) * psi(0.0, x))
    assert inside == pytest.approx(boundary, abs=1e-12)
    assert (abs(boundary) < 1e-12) == tangent


def test_on_a_graph_the_weighted_divergence_is_the_adjoint_of_the_gradient():
    """<B psi, u>_W = <psi, B^T W u> for any node values and edge flow, and the Laplacian is the one after the other."""
    rng = np.random.default_rng(1)
    graph = neighbour_graph(rng.normal(size=(120, 3)), k=6)
    psi, u, w = rng.normal(size=120), rng.normal(size=len(graph.edges)), graph.weights
    i, j = graph.edges.T
    by_hand = np.sum(w * u * (psi[j] - psi[i]))
    assert abs(by_hand) > 1e-3
    assert (w * u) @ (graph.incidence() @ psi) == pytest.approx(by_hand, rel=1e-12)
    assert psi @ graph_divergence(graph, w * u) == pytest.approx(by_hand, rel=1e-12)
    np.testing.assert_allclose(laplacian(graph) @ psi, graph_divergence(graph, w * (psi[j] - psi[i])), atol=1e-9)


def test_the_projected_potential_and_field_are_adjoint_to_the_divergence():
    """E <P F, U>_M = -E Phi div_mu U for what `hpml.project` returns and any U that is tangent to the box's boundary.

    The uniform law on [0, 1]^2, by quadrature at points that the projection has not seen.
    """
    metric = hpml.Dense(np.array([[2.0, 0.6], [0.6, 0.5]]))
    X = np.random.default_rng(2).uniform(size=(80, 2))
    F = np.stack([np.sin(3 * X[:, 1]) - X[:, 0], 2.0 * X[:, 0] * X[:, 1]], 1)
    found = hpml.project(X, F, hpml.KernelProjector(), metric)
    x, w = np.polynomial.legendre.leggauss(20)
    x, w = 0.5 * (x + 1), 0.5 * w
    Q = np.stack(np.meshgrid(x, x, indexing="ij"), -1).reshape(-1, 2)
    a, b = Q.T
    W = np.outer(w, w).ravel()
    for U, slope in (
        (np.stack([a * (1 - a) * np.exp(b), 0 * a], 1), (1 - 2 * a) * np.exp(b)),
        (np.stack([0 * a, b * (1 - b) * np.cos(2 * a)], 1), (1 - 2 * b) * np.cos(2 * a)),
    ):
        left, right = W @ np.asarray(metric.inner(found.at(Q), U)), -W @ (found.potential_at(Q) * slope)
        assert abs(left) > 1e-3
        assert left == pytest.approx(right, rel=1e-6)
