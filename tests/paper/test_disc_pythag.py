"""`cor:disc_pythag`: the energies of the potential and the cyclic flow add up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml.projection.discrete.flow import split_flow
from hpml.projection.discrete.graph import neighbour_graph
from hpml.projection.discrete.poisson import solve_poisson


@pytest.mark.parametrize("solver", ["cholesky", "amg", "cg"])
@given(seed=st.integers(0, 10**6), n=st.integers(5, 200), d=st.integers(1, 8))
@settings(max_examples=10)
def test_energies_add_up(solver, seed, n, d):
    rng = np.random.default_rng(seed)
    graph = neighbour_graph(rng.normal(size=(n, d)), k=4)
    omega = rng.normal(size=len(graph.edges))
    flow = split_flow(graph, omega, solve_poisson(graph, omega, solver).potential)
    total, potential, cyclic = (graph.weights @ part**2 for part in (omega, flow.potential, flow.cyclic))
    assert abs(potential + cyclic - total) <= 1e-9 * total
