"""Lifting is the local least-squares fit of the paper, in both of its forms, and inserted points follow it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml.geometry.metric import Euclidean
from hpml.projection.discrete.graph import make_graph, neighbour_graph
from hpml.projection.discrete.insert import fit_gradient, insert_points, interpolation_weights
from hpml.projection.discrete.lift import fit_covector, lift_flow


@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize("d", [2, 12])
def test_lift_is_the_papers_formula(form, d):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, d))
    graph = neighbour_graph(X, k=4)
    phi = rng.normal(size=60)
    h = lift_flow(graph, X, graph.incidence() @ phi, 1e-2, form)
    for i in (0, 17, 59):
        near = graph.edges[(graph.edges == i).any(1)]
        w = graph.weights[(graph.edges == i).any(1)]
        j = near.sum(1) - i
        Xi, y = X[j] - X[i], phi[j] - phi[i]
        expected = np.linalg.solve(Xi.T @ (w[:, None] * Xi) + 1e-2 * np.eye(d), Xi.T @ (w * y))
        np.testing.assert_allclose(h[i], expected, atol=1e-9)


@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(1, 8), st.sampled_from([0.0, 1e-6, 1e-2]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_primal_is_dual(seed, k, d, ridge, flat):
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(3, k, d))
    if flat:
        steps[..., -1] = 0.0  # no neighbourhood sees the last coordinate
    values, weights = rng.normal(size=(3, k)), rng.uniform(0.5, 2.0, (3, k))
    primal, dual = (fit_covector(steps, values, weights, ridge, form) for form in ("primal", "dual"))
    scale = 1.0 + np.abs(primal).max()
    condition = max(
        np.linalg.cond(np.sqrt(w)[:, None] * s[:, : d - flat or d]) for s, w in zip(steps, weights, strict=True)
    )
    if condition < 1e3:
        np.testing.assert_allclose(primal, dual, atol=1e-8 * scale)
    assert np.isfinite(primal).all()
    assert np.isfinite(dual).all()


@pytest.mark.parametrize("form", ["primal", "dual"])
@pytest.mark.parametrize("scale", [2.0**450, 2.0**-450])
def test_no_units_change_the_covector(form, scale):
    """Steps of size 1e135 with values of their square: the covector has the size of the steps."""
    rng = np.random.default_rng(5)
    steps, values, weights = rng.normal(size=(4, 5, 3)), rng.normal(size=(4, 5)), rng.uniform(1, 2, (4, 5))
    scaled = fit_covector(scale * steps, scale**2 * values, weights, 0.0, form)
    np.testing.assert_allclose(scaled / scale, fit_covector(steps, values, weights, 0.0, form), rtol=1e-12)


def test_without_a_ridge_the_smallest_answer():
    rng = np.random.default_rng(1)
    steps, values, weights = rng.normal(size=(4, 3, 6)), rng.normal(size=(4, 3)), rng.uniform(1, 2, (4, 3))
    root = np.sqrt(weights)
    expected = np.stack([np.linalg.pinv(s * r[:, None]) @ (r * y) for s, r, y in zip(steps, root, values, strict=True)])
    for form in ("primal", "dual"):
        np.testing.assert_allclose(fit_covector(steps, values, weights, 0.0, form), expected, atol=1e-9)
    assert not fit_covector(np.zeros((2, 3, 2)), np.ones((2, 3)), np.ones((2, 3))).any()


def test_nodes_without_edges_have_no_covector():
    graph = make_graph([[0, 1]], [1.0], 3)
    h = lift_flow(graph, np.array([[0.0, 0.0], [1.0, 0.0], [5.0, 5.0]]), np.array([2.0]))
    np.testing.assert_allclose(h, [[2.0, 0.0], [2.0, 0.0], [0.0, 0.0]], atol=1e-12)


@pytest.mark.parametrize("d", [2, 9])
def test_the_lift_of_a_linear_potential_is_its_gradient(d):
    rng = np.random.default_rng(2)
    X, slope = rng.normal(size=(300, d)), rng.normal(size=d)
    graph = neighbour_graph(X, k=12)
    np.testing.assert_allclose(
        lift_flow(graph, X, graph.incidence() @ (X @ slope)), np.tile(slope, (300, 1)), atol=1e-8
    )


@pytest.mark.parametrize("d", [2, 9])
@pytest.mark.parametrize("weighting", ["unit", "inverse_square", "gaussian"])
def test_insertion_is_exact_on_affine_functions(d, weighting):
    rng = np.random.default_rng(3)
    X, Q, slope = rng.normal(size=(200, d)), rng.normal(size=(20, d)), rng.normal(size=d)
    new = insert_points(Q, X, Euclidean(), 14, weighting)
    values = (X @ slope + 3.0)[new.index]
    np.testing.assert_allclose((interpolation_weights(new, 0.0) * values).sum(1), Q @ slope + 3.0, atol=1e-8)
    np.testing.assert_allclose(fit_gradient(new, values, 0.0), np.tile(slope, (20, 1)), atol=1e-8)
    np.testing.assert_allclose(interpolation_weights(new, 1.0).sum(1), 1.0)


def test_insertion_with_few_neighbours_falls_back_to_the_mean():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(50, 10))
    new = insert_points(rng.normal(size=(5, 10)), X, Euclidean(), 3, "unit")
    weights = interpolation_weights(new, 1e9)
    np.testing.assert_allclose(weights, 1 / 3, atol=1e-6)
    assert np.isfinite(interpolation_weights(new, 0.0)).all()
