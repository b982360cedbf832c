"""`lem:disc_orth`: the discrete residual is orthogonal to every discrete gradient flow."""

import numpy as np
import pytest

from hpml.projection.discrete.flow import split_flow
from hpml.projection.discrete.graph import neighbour_graph
from hpml.projection.discrete.poisson import solve_poisson


@pytest.mark.parametrize("solver", ["cholesky", "amg", "cg"])
@pytest.mark.parametrize("weighting", ["unit", "inverse_square", "gaussian"])
@pytest.mark.parametrize("d", [2, 5])
def test_the_cyclic_flow_is_orthogonal_to_gradients(solver, weighting, d):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, d))
    graph = neighbour_graph(X, k=6, weighting=weighting)
    omega = rng.normal(size=len(graph.edges))
    flow = split_flow(graph, omega, solve_poisson(graph, omega, solver).potential)
    B, w = graph.incidence(), graph.weights
    size = np.sqrt(w @ omega**2)
    # Rough, smooth and the potential's own: a smooth psi has a small gradient, which shows an unfinished solve.
    for psi in (rng.normal(size=800), X[:, 0], np.cos(X[:, 1]), flow.node_potential):
        gradient = B @ psi
        assert abs(gradient @ (w * flow.cyclic)) <= 1e-9 * np.sqrt(w @ gradient**2) * size
    assert np.linalg.norm(B.T @ (w * flow.cyclic)) <= 1e-9 * np.linalg.norm(B.T @ (w * omega))
