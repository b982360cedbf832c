"""The three Poisson solvers find the least-squares potential of scipy's lstsq."""

import warnings

import jax
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml.projection.discrete import poisson
from hpml.projection.discrete.flow import split_flow
from hpml.projection.discrete.graph import SampleGraph, make_graph, neighbour_graph
from hpml.projection.discrete.multigrid import aggregation_cycle
from hpml.projection.discrete.poisson import ConvergenceWarning, choose_solver, laplacian, solve_poisson

SOLVERS = ("cholesky", "amg", "cg")


def problem(n=300, d=3, k=6, weighting="inverse_square", seed=0):
    rng = np.random.default_rng(seed)
    graph = neighbour_graph(rng.normal(size=(n, d)), k=k, weighting=weighting)
    return graph, rng.normal(size=len(graph.edges))


def least_squares(graph, omega):
    root = np.sqrt(graph.weights)
    phi = scipy.linalg.lstsq(root[:, None] * graph.incidence().toarray(), root * omega, cond=1e-11)[0]
    return phi - (np.bincount(graph.labels, phi) / np.bincount(graph.labels))[graph.labels]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("weighting", ["unit", "inverse_square", "gaussian"])
def test_agrees_with_lstsq(solver, weighting):
    graph, omega = problem(weighting=weighting)
    solution = solve_poisson(graph, omega, solver)
    expected = least_squares(graph, omega)
    assert solution.solver == solver
    assert solution.residual < 1e-10
    np.testing.assert_allclose(solution.potential, expected, atol=1e-8 * np.abs(expected).max())
    cyclic = omega - graph.incidence() @ expected
    np.testing.assert_allclose(split_flow(graph, omega, solution.potential).cyclic, cyclic, atol=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_each_component_has_mean_zero(solver):
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.normal(size=(c, 2)) + 100.0 * c for c in (40, 7, 90)])
    graph = neighbour_graph(X, k=5)
    assert graph.components == 3
    omega = rng.normal(size=len(graph.edges))
    phi = solve_poisson(graph, omega, solver).potential
    np.testing.assert_allclose(np.bincount(graph.labels, phi), 0.0, atol=1e-9)
    np.testing.assert_allclose(phi, least_squares(graph, omega), atol=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_isolated_node_has_potential_zero(solver):
    graph = make_graph([[0, 1], [1, 2], [0, 2]], [1.0, 2.0, 3.0], 4)
    phi = solve_poisson(graph, np.array([1.0, 1.0, -1.0]), solver).potential
    np.testing.assert_allclose(phi, least_squares(graph, np.array([1.0, 1.0, -1.0])), atol=1e-12)
    assert phi[3] == 0.0


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_no_scale_breaks_the_solve(solver, scale):
    graph, omega = problem(60)
    small = solve_poisson(graph, omega, solver).potential
    np.testing.assert_allclose(
        solve_poisson(graph, scale * omega, solver).potential / scale, small, rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_zero_flow_and_a_pure_cycle_have_no_potential(solver):
    ring = make_graph([[i, (i + 1) % 9] for i in range(9)], np.ones(9), 9)
    around = np.array([1.0 if j == i + 1 else -1.0 for i, j in ring.edges])
    assert not solve_poisson(ring, np.zeros(9), solver).potential.any()
    np.testing.assert_allclose(solve_poisson(ring, around, solver).potential, 0.0, atol=1e-12)


def test_the_order_of_the_rows_does_not_matter():
    graph, omega = problem(800)
    shuffled = SampleGraph(graph.edges, graph.weights, graph.labels, np.random.default_rng(0).permutation(800))
    for solver in ("amg", "cg"):
        a, b = (solve_poisson(g, omega, solver).potential for g in (graph, shuffled))
        np.testing.assert_allclose(a, b, atol=1e-9)


def test_edge_by_edge_iterations_agree_with_the_rows():
    # What runs on a GPU, run here on the CPU.
    graph, omega = problem(500)
    b = poisson.divergence(graph, graph.weights * omega)
    phi, steps, residual = poisson._cg_edges(graph, b)
    assert residual < 1e-10
    assert 0 < steps < 1000
    np.testing.assert_allclose(poisson.centre(phi, graph), solve_poisson(graph, omega, "cg").potential, atol=1e-8)


def test_the_solver_follows_size_and_dimension(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    labels = np.zeros(10**6, int)

    def graph(n, dimension):
        return SampleGraph(np.array([[0, 1]]), np.ones(1), labels[:n], None, dimension)

    assert choose_solver(graph(500, 3.0)) == "cholesky"
    assert choose_solver(graph(10**6, 3.0)) == "amg"
    assert choose_solver(graph(10**6, 8.0)) == "cg"
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert choose_solver(graph(900, 3.0)) == "cholesky"
    assert choose_solver(graph(10**6, 3.0)) == "cg"
    with pytest.raises(ValueError, match="cholesky"):
        solve_poisson(graph(10, 1.0), np.ones(1), "lu")


def test_laplacian_is_its_definition():
    graph, _ = problem(80)
    B = graph.incidence().toarray()
    np.testing.assert_allclose(laplacian(graph).toarray(), B.T @ np.diag(graph.weights) @ B, atol=1e-9)


def disc(n, seed=0):
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(n, 2))
    return direction / np.linalg.norm(direction, axis=1, keepdims=True) * np.sqrt(rng.uniform(size=(n, 1)))


def swirl(graph, X):
    """The flow of F = -z + 2 J z along the edges."""
    i, j = graph.edges.T
    z, step = 0.5 * (X[i] + X[j]), X[j] - X[i]
    return ((2.0 * np.stack([-z[:, 1], z[:, 0]], axis=1) - z) * step).sum(1)


def paper_graph():
    X = disc(20_000)
    graph = neighbour_graph(X, k=4, weighting="unit")
    assert graph.components > 1
    return graph, swirl(graph, X)


def graph_with_pairs():
    graph, omega = paper_graph()
    n = graph.count
    pairs = n + np.arange(400).reshape(-1, 2)
    edges, weights = np.concatenate([graph.edges, pairs]), np.ones(len(graph.edges) + 200)
    return make_graph(edges, weights, n + 401), np.concatenate([omega, np.ones(200)])


def weights_of_six_decades():
    X = disc(20_000)
    X = X * np.abs(X)  # crowded on the axes
    graph = neighbour_graph(X, k=8, weighting="inverse_square")
    assert graph.weights.max() > 1e6 * graph.weights.min()
    return graph, swirl(graph, X)


def many_components():
    X = disc(40_000)
    graph = neighbour_graph(X, k=2, weighting="inverse_square")
    assert graph.components > 500
    return graph, swirl(graph, X)


@pytest.mark.parametrize("make", [paper_graph, graph_with_pairs, weights_of_six_decades, many_components])
def test_multigrid_agrees_with_plain_iterations(make):
    graph, omega = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        amg, cg = (solve_poisson(graph, omega, solver) for solver in ("amg", "cg"))
    for solution in (amg, cg):
        L = laplacian(graph)
        b = poisson.divergence(graph, graph.weights * omega)
        r, root = L @ solution.potential - b, np.sqrt(np.maximum(L.diagonal(), 1e-300))
        assert np.linalg.norm(r / root) <= 2e-11 * np.linalg.norm(b / root)
    assert amg.iterations < 100 < cg.iterations  # neither was taken over by the other
    np.testing.assert_allclose(amg.potential, cg.potential, atol=1e-7 * np.abs(cg.potential).max())
    shares = [split_flow(graph, omega, s.potential).nonpotentiality for s in (amg, cg)]
    np.testing.assert_allclose(*shares, rtol=1e-9)


@pytest.mark.parametrize("make", [paper_graph, graph_with_pairs, weights_of_six_decades, many_components])
def test_the_multigrid_cycle_is_symmetric_and_positive(make):
    graph, _ = make()
    L = laplacian(graph)
    cycle = aggregation_cycle(L)
    a, b = (L @ x for x in np.random.default_rng(0).normal(size=(2, graph.count)))
    za, zb = cycle(a), cycle(b)
    assert a @ za > 0
    assert b @ zb > 0
    assert abs(a @ zb - b @ za) < 1e-5 * np.sqrt((a @ za) * (b @ zb))
    assert np.sqrt(za @ (L @ za)) < 2.0 * np.sqrt(a @ za)  # B L is below 2, so nothing is blown up


@pytest.mark.parametrize("factor", [-1.0, 0.0, np.nan])
def test_plain_iterations_take_over_where_multigrid_fails(monkeypatch, factor):
    graph, omega = problem(800)
    expected = solve_poisson(graph, omega, "cg").potential
    monkeypatch.setattr(poisson, "aggregation_cycle", lambda L, precision=None: lambda r: factor * r)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(solve_poisson(graph, omega, "amg").potential, expected, atol=1e-9)


def test_multigrid_takes_over_where_plain_iterations_stall():
    # A path: the residual stays flat until the iterations have walked its length.
    n = 3_000
    path = make_graph(np.stack([np.arange(n - 1), np.arange(1, n)], axis=1), np.ones(n - 1), n)
    omega = np.random.default_rng(0).normal(size=n - 1)
    phi = np.concatenate([[0.0], np.cumsum(omega)])
    np.testing.assert_allclose(solve_poisson(path, omega, "cg").potential, phi - phi.mean(), atol=1e-6)


@pytest.mark.parametrize("solver", ["amg", "cg"])
def test_a_solve_that_falls_short_says_so(monkeypatch, solver):
    graph, omega = problem(800)
    monkeypatch.setattr(poisson, "MAX_ITERATIONS", 2)
    with pytest.warns(ConvergenceWarning, match="residual"):
        assert solve_poisson(graph, omega, solver).residual > 1e-6


@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(1, 5), st.sampled_from(SOLVERS))
@settings(max_examples=40, deadline=None)
def test_any_random_graph(seed, n, k, solver):
    rng = np.random.default_rng(seed)
    pairs = rng.integers(0, n, (k * n, 2))
    pairs = np.unique(np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1), axis=0)
    if not len(pairs):
        return
    graph = make_graph(pairs, 10.0 ** rng.uniform(-2, 2, len(pairs)), n)
    omega = rng.normal(size=len(pairs))
    phi = solve_poisson(graph, omega, solver).potential
    np.testing.assert_allclose(phi, least_squares(graph, omega), atol=1e-7)
