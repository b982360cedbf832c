"""The sample graph is the symmetrised k-NN graph of the M-distance, whichever search found it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from hpml.geometry.metric import Dense, Diagonal, Euclidean, LowRank, Shahshahani
from hpml.projection.discrete import neighbours
from hpml.projection.discrete.graph import default_neighbours, make_graph, neighbour_graph, weigh_samples


def brute_edges(distance, k):
    np.fill_diagonal(distance, np.inf)
    joined = np.zeros(distance.shape, bool)
    np.put_along_axis(joined, np.argsort(distance, axis=1)[:, :k], True, axis=1)
    i, j = np.nonzero(np.triu(joined | joined.T))
    return np.stack([i, j], 1)


def spd(rng, d):
    A = rng.normal(size=(d, d))
    return A @ A.T + 0.1 * np.eye(d)


@pytest.mark.parametrize(("n", "d"), [(40, 3), (700, 3), (700, 9)], ids=["brute", "tree", "faiss"])
@pytest.mark.parametrize("kind", [Euclidean, Diagonal, Dense, LowRank])
def test_edges_are_the_nearest_in_the_metric(n, d, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) + 50.0
    M = spd(rng, d)
    metric = {
        Euclidean: Euclidean(),
        Diagonal: Diagonal(np.diag(M)),
        Dense: Dense(M),
        LowRank: LowRank(np.ones(d), M[:, :2]),
    }[kind]
    white = np.asarray(metric.whiten(X))
    graph = neighbour_graph(X, metric, 5)
    expected = brute_edges(cdist(white, white), 5)
    np.testing.assert_array_equal(graph.edges, expected)
    lengths = np.linalg.norm(white[expected[:, 1]] - white[expected[:, 0]], axis=1)
    np.testing.assert_allclose(graph.weights, lengths**-2.0, rtol=1e-9)


def test_varying_metric_ranks_by_its_own_distance():
    rng = np.random.default_rng(1)
    X = rng.dirichlet(np.full(4, 5.0), size=60)[:, :3]
    metric = Shahshahani(4)
    n = len(X)
    left, right = np.repeat(X, n, 0), np.tile(X, (n, 1))
    distance = np.asarray(metric.distance(left, right)).reshape(n, n)
    assert {*map(tuple, neighbour_graph(X, metric, 6).edges)} == {*map(tuple, brute_edges(distance, 6))}


@pytest.mark.parametrize(("n", "d"), [(40, 3), (700, 3), (700, 9)], ids=["brute", "tree", "faiss"])
@pytest.mark.parametrize("scale", [2.0**450, 2.0**-450])
def test_no_units_change_the_edges(n, d, scale):
    # 1e135 and its inverse: float32, which faiss computes in, holds neither.
    X = np.random.default_rng(0).normal(size=(n, d))
    np.testing.assert_array_equal(neighbour_graph(scale * X, k=5).edges, neighbour_graph(X, k=5).edges)


def test_close_points_far_from_the_origin_keep_their_neighbours():
    # In float32 these points are all equal: the candidates must be centred and checked in float64.
    rng = np.random.default_rng(2)
    X = 1e6 + 1e-3 * rng.normal(size=(600, 8))
    expected = brute_edges(cdist(X - X.mean(0), X - X.mean(0)), 4)
    np.testing.assert_array_equal(neighbour_graph(X, k=4).edges, expected)


def test_weightings():
    X = np.random.default_rng(3).normal(size=(50, 2))
    unit, inverse, gaussian = (
        neighbour_graph(X, k=4, weighting=kind) for kind in ("unit", "inverse_square", "gaussian")
    )
    r = np.linalg.norm(X[unit.edges[:, 1]] - X[unit.edges[:, 0]], axis=1)
    np.testing.assert_array_equal(unit.weights, 1.0)
    np.testing.assert_allclose(inverse.weights, r**-2)
    np.testing.assert_allclose(gaussian.weights, np.exp(-0.5 * (r / np.median(r)) ** 2))
    with pytest.raises(ValueError, match="inverse_square"):
        neighbour_graph(X, k=4, weighting="cubic")


def test_sample_weights_enter_as_the_mean_of_the_ends():
    X = np.random.default_rng(4).normal(size=(30, 2))
    graph = neighbour_graph(X, k=3)
    s = np.random.default_rng(5).uniform(0.5, 1.5, 30)
    i, j = graph.edges.T
    np.testing.assert_allclose(weigh_samples(graph, s).weights, graph.weights * (s[i] + s[j]) / 2 / s.mean())
    np.testing.assert_array_equal(weigh_samples(graph, np.full(30, 1 / 30)).weights, graph.weights)


@pytest.mark.parametrize("k", [0, -1, 10, 11])
def test_impossible_neighbour_counts(k):
    with pytest.raises(ValueError, match="neighbours"):
        neighbour_graph(np.random.default_rng(0).normal(size=(10, 2)), k=k)


def test_repeated_points_make_finite_weights():
    X = np.repeat(np.random.default_rng(6).normal(size=(300, 2)), 2, axis=0)
    graph = neighbour_graph(X, k=3)
    assert np.isfinite(graph.weights).all()
    assert (graph.edges[:, 0] < graph.edges[:, 1]).all()


def test_a_hand_made_graph_is_checked():
    assert make_graph([[2, 0], [1, 2]], [1.0, 1.0], 3).edges.tolist() == [[0, 2], [1, 2]]
    for edges, weights in (([[0, 0]], [1.0]), ([[0, 3]], [1.0]), ([[0, 1]], [0.0]), ([[0, 1]], [1.0, 2.0])):
        with pytest.raises(ValueError, match="edge"):
            make_graph(edges, weights, 3)


def test_intrinsic_dimension_is_seen_in_any_space():
    rng = np.random.default_rng(7)
    sheet = rng.uniform(size=(2000, 2)) @ rng.normal(size=(2, 10))
    assert neighbour_graph(sheet, k=16).dimension == pytest.approx(2.0, abs=0.4)


@given(st.integers(2, 10**7), st.integers(1, 10**4))
def test_default_neighbours_is_always_possible(n, d):
    k = default_neighbours(n, d)
    assert 1 <= k <= n - 1
    assert n * k <= max(1 << 24, 16 * n)


@given(st.integers(0, 10**6), st.integers(3, 40), st.integers(1, 4))
@settings(max_examples=25, deadline=None)
def test_cycle_rank_counts_independent_cycles(seed, n, d):
    graph = neighbour_graph(np.random.default_rng(seed).normal(size=(n, d)), k=2)
    B = graph.incidence().toarray()
    assert graph.cycle_rank == len(graph.edges) - np.linalg.matrix_rank(B)


def test_brute_force_and_tree_agree(monkeypatch):
    rng = np.random.default_rng(8)
    Q, X = rng.normal(size=(50, 3)), rng.normal(size=(400, 3))
    brute = neighbours.nearest(Q, X, Euclidean(), 7)
    monkeypatch.setattr(neighbours, "BRUTE_COUNT", 0)
    tree = neighbours.nearest(Q, X, Euclidean(), 7)
    np.testing.assert_array_equal(brute.index[tree.rows], tree.index)
    np.testing.assert_allclose(brute.distance[tree.rows], tree.distance)
