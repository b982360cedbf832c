"""`lem:nonpot_props`: NonPot lies in [0, 1], is 0 for potential flows and grows with the circulation."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hpml.projection.discrete.flow import split_flow
from hpml.projection.discrete.graph import make_graph, neighbour_graph
from hpml.projection.discrete.poisson import solve_poisson


def nonpotentiality(graph, omega):
    return split_flow(graph, omega, solve_poisson(graph, omega).potential).nonpotentiality


@given(st.integers(0, 10**6), st.integers(3, 60), st.integers(-280, 280))
def test_between_zero_and_one_and_the_same_in_all_units(seed, n, power):
    """A flow of samples whose points and field have the size 1e140 has the size 1e280."""
    rng = np.random.default_rng(seed)
    graph = neighbour_graph(rng.normal(size=(n, 3)), k=2)
    omega = rng.normal(size=len(graph.edges))
    share = nonpotentiality(graph, omega)
    assert 0.0 <= share <= 1.0
    np.testing.assert_allclose(nonpotentiality(graph, 10.0**power * omega), share, rtol=1e-6, atol=1e-20)


def test_zero_for_potential_flows_and_for_no_flow():
    rng = np.random.default_rng(0)
    graph = neighbour_graph(rng.normal(size=(100, 2)), k=5)
    assert nonpotentiality(graph, graph.incidence() @ rng.normal(size=100)) < 1e-20
    assert nonpotentiality(graph, np.zeros(len(graph.edges))) == 0.0


def test_zero_on_a_tree_whatever_the_flow():
    path = make_graph([[i, i + 1] for i in range(20)], np.ones(20), 21)
    assert path.cycle_rank == 0
    assert nonpotentiality(path, np.random.default_rng(1).normal(size=20)) < 1e-20


def test_one_for_a_flow_around_a_ring():
    ring = make_graph([[i, (i + 1) % 12] for i in range(12)], np.ones(12), 12)
    around = np.where(ring.edges[:, 1] - ring.edges[:, 0] == 1, 1.0, -1.0)
    assert nonpotentiality(ring, around) == 1.0


def test_grows_with_the_circulation():
    rng = np.random.default_rng(2)
    graph = neighbour_graph(rng.normal(size=(200, 2)), k=6)
    flow = rng.normal(size=len(graph.edges))
    split = split_flow(graph, flow, solve_poisson(graph, flow).potential)
    potential = graph.incidence() @ rng.normal(size=200)
    shares = [nonpotentiality(graph, potential + c * split.cyclic) for c in (0.0, 0.1, 0.5, 1.0, 3.0, 10.0)]
    assert (np.diff(shares) > 0).all()
    # And by exactly how much: the two energies are orthogonal.
    energy = graph.weights @ potential**2, graph.weights @ split.cyclic**2
    np.testing.assert_allclose(shares[2], 0.25 * energy[1] / (energy[0] + 0.25 * energy[1]), rtol=1e-9)
