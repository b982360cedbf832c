"""`rem:hodge_app`: on the clique complex the cyclic flow splits further into curl and harmonic parts."""

import networkx as nx
import numpy as np
import pytest

from hpml.geometry.metric import Euclidean
from hpml.projection.discrete.flow import edge_flow, split_flow
from hpml.projection.discrete.graph import make_graph, neighbour_graph
from hpml.projection.discrete.hodge import curl_operator, triangles
from hpml.projection.discrete.poisson import ConvergenceWarning, solve_poisson


def annulus(n=240, holes=1, seed=0):
    rng = np.random.default_rng(seed)
    angle, radius = 2 * np.pi * (np.arange(n) + rng.uniform(0, 0.5, n)) / n, rng.uniform(0.8, 1.2, n)
    ring = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    return np.concatenate([ring + 10.0 * hole for hole in range(holes)])


def split(X, omega=None, k=8):
    graph = neighbour_graph(X, k=k)
    omega = np.random.default_rng(1).normal(size=len(graph.edges)) if omega is None else omega(graph)
    return graph, split_flow(graph, omega, solve_poisson(graph, omega).potential)


def test_triangles_are_networkx_triangles():
    graph, _ = split(np.random.default_rng(2).normal(size=(80, 3)))
    sides = triangles(graph.edges)
    i, j, k = graph.edges[sides[:, 0], 0], graph.edges[sides[:, 0], 1], graph.edges[sides[:, 1], 1]
    np.testing.assert_array_equal(graph.edges[sides[:, 1], 0], j)
    np.testing.assert_array_equal(graph.edges[sides[:, 2]], np.stack([i, k], 1))
    G = nx.Graph(graph.edges.tolist())
    assert len(sides) == sum(nx.triangles(G).values()) // 3


def test_wedges_in_pieces_give_the_same_triangles(monkeypatch):
    graph, _ = split(np.random.default_rng(3).normal(size=(80, 3)))
    whole = triangles(graph.edges)
    monkeypatch.setattr("hpml.projection.discrete.hodge.WEDGES", 10)
    np.testing.assert_array_equal(triangles(graph.edges), whole)


def test_the_curl_of_a_gradient_is_zero():
    graph, _ = split(annulus())
    assert abs(curl_operator(graph.edges) @ graph.incidence()).max() == 0.0


def test_curl_and_harmonic_are_orthogonal_and_add_up():
    graph, flow = split(annulus())
    parts = flow.split_cyclic()
    w, C = graph.weights, curl_operator(graph.edges)
    np.testing.assert_allclose(parts.curl + parts.harmonic, flow.cyclic, atol=1e-12)
    size = w @ flow.cyclic**2
    assert abs(parts.curl @ (w * parts.harmonic)) < 1e-9 * size
    assert abs(parts.curl @ (w * flow.potential)) < 1e-9 * size
    assert abs(parts.harmonic @ (w * flow.potential)) < 1e-9 * size
    np.testing.assert_allclose(C @ parts.harmonic, 0.0, atol=1e-8 * np.abs(flow.cyclic).max())
    np.testing.assert_allclose(flow.curl, parts.curl)
    np.testing.assert_allclose(flow.harmonic, parts.harmonic)


@pytest.mark.parametrize("holes", [1, 2])
def test_the_harmonic_flows_have_one_dimension_a_hole(holes):
    X = annulus(120, holes)
    graph, _ = split(X)
    assert graph.components == holes
    rank = np.linalg.matrix_rank(curl_operator(graph.edges).toarray())
    assert graph.cycle_rank - rank == holes
    # The harmonic parts of many flows span that many dimensions.
    flows = [split(X, lambda g, s=s: np.random.default_rng(s).normal(size=len(g.edges)))[1] for s in range(4)]
    singular = np.linalg.svd(np.stack([flow.harmonic for flow in flows]), compute_uv=False)
    assert (singular > 1e-6 * singular[0]).sum() == holes


def test_a_disc_has_no_harmonic_flow():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(150, 2))
    graph, flow = split(X[np.linalg.norm(X, axis=1) < 1.5], k=20)
    assert graph.cycle_rank == np.linalg.matrix_rank(curl_operator(graph.edges).toarray())
    assert np.abs(flow.harmonic).max() < 1e-7 * np.abs(flow.cyclic).max()


def test_a_flow_around_the_hole_without_curl_is_harmonic():
    X = annulus()
    around = np.stack([-X[:, 1], X[:, 0]], 1) / (X**2).sum(1, keepdims=True)  # closed, not exact
    graph, flow = split(X, lambda graph: edge_flow(graph, X, around, Euclidean()))
    curl, harmonic = (graph.weights @ part**2 for part in (flow.curl, flow.harmonic))
    assert curl < 1e-4 * harmonic
    assert harmonic > 0.5 * (graph.weights @ flow.omega**2)


def test_no_triangles_no_curl():
    ring = make_graph([[i, (i + 1) % 5] for i in range(5)], np.ones(5), 5)
    omega = np.arange(5.0)
    flow = split_flow(ring, omega, solve_poisson(ring, omega).potential)
    assert not flow.curl.any()
    np.testing.assert_array_equal(flow.harmonic, flow.cyclic)


def test_a_split_that_does_not_converge_is_warned_about(monkeypatch):
    _, flow = split(annulus())
    monkeypatch.setattr("hpml.projection.discrete.poisson.MAX_ITERATIONS", 3)
    with pytest.warns(ConvergenceWarning, match="curl"):
        flow.split_cyclic()
