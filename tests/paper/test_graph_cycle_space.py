"""`rem:graph_cycle_space`: the cyclic flow is the cycle-space component of the flow."""

import networkx as nx
import numpy as np
import scipy.linalg

from hpml.projection.discrete.flow import split_flow
from hpml.projection.discrete.graph import neighbour_graph
from hpml.projection.discrete.poisson import solve_poisson


def cycles(graph):
    """One column a cycle of networkx's basis, +1 or -1 on its edges."""
    number = {(int(i), int(j)): e for e, (i, j) in enumerate(graph.edges)}
    basis = nx.cycle_basis(nx.Graph(list(number)))
    out = np.zeros((len(number), len(basis)))
    for c, nodes in enumerate(basis):
        for a, b in zip(nodes, nodes[1:] + nodes[:1], strict=True):
            out[number[min(a, b), max(a, b)], c] = 1.0 if a < b else -1.0
    return out


def split(seed=0, weighting="inverse_square"):
    rng = np.random.default_rng(seed)
    graph = neighbour_graph(rng.normal(size=(60, 3)), k=4, weighting=weighting)
    omega = rng.normal(size=len(graph.edges))
    return graph, split_flow(graph, omega, solve_poisson(graph, omega).potential)


def test_the_cyclic_flow_is_in_the_kernel_of_the_divergence():
    graph, flow = split()
    np.testing.assert_allclose(graph.incidence().T @ (graph.weights * flow.cyclic), 0.0, atol=1e-10)


def test_the_cycle_space_has_the_cycle_rank():
    graph, flow = split()
    C = cycles(graph)
    assert flow.cycle_rank == C.shape[1] == np.linalg.matrix_rank(C)
    np.testing.assert_allclose(graph.incidence().T @ C, 0.0)


def test_the_cyclic_flow_is_its_expansion_in_a_cycle_basis():
    # The flux W u of a cyclic flow u has no divergence, so it is a sum of cycles, and the fit to omega is the same u.
    graph, flow = split()
    C = cycles(graph)
    flux = graph.weights * flow.cyclic
    coefficients = scipy.linalg.lstsq(C, flux)[0]
    np.testing.assert_allclose(C @ coefficients, flux, atol=1e-9 * np.abs(flux).max())
    root = np.sqrt(graph.weights)
    fit = C @ scipy.linalg.lstsq(C / root[:, None], root * flow.omega)[0] / graph.weights
    np.testing.assert_allclose(fit, flow.cyclic, atol=1e-9)


def test_circulation_is_all_in_the_cyclic_flow():
    graph, flow = split(weighting="unit")
    C = cycles(graph)
    np.testing.assert_allclose(C.T @ flow.potential, 0.0, atol=1e-10)
    np.testing.assert_allclose(C.T @ flow.cyclic, C.T @ flow.omega, atol=1e-10)
