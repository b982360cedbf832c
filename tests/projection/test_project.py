"""`hpml.project` in many dimensions: what happens in the samples' span is what happens anywhere else."""

import jax
import numpy as np
import pytest

import hpml

PLANE, SPACE = 2, 100
TURN = np.array([[0.0, -1.0], [1.0, 0.0]])


def embedded(n, seed=0):
    """Samples of a field in a plane, and the isometry into many dimensions."""
    rng = np.random.default_rng(seed)
    lift = np.linalg.qr(rng.normal(size=(SPACE, PLANE)))[0].T
    points = rng.normal(size=(n, PLANE)) * (1.0, 3.0)
    return points, -points + 2.0 * points @ TURN.T, lift


def test_two_points_are_a_gradient():
    """Along the one line between them every field rises or falls."""
    for seed in (3, 9):
        points = np.random.default_rng(seed).normal(size=(2, 2))
        p = hpml.project(points, -points)
        np.testing.assert_allclose(p.direction, -points, rtol=1e-3)
        assert p.nonpotentiality < 1e-3


def test_a_whole_number_is_a_key():
    points, field, _ = embedded(30)
    projector = hpml.NeuralProjector(steps=20)
    by_number = hpml.project(points, field, projector, key=3).direction
    np.testing.assert_array_equal(by_number, hpml.project(points, field, projector, key=jax.random.key(3)).direction)
    assert hpml.nonpotentiality(points, field, hpml.GraphProjector(), key=3).estimate > 0


def wide(key, count):
    return np.asarray(3.0 * jax.random.normal(key, (count, PLANE)))


@pytest.mark.parametrize("projector", [hpml.GraphProjector(), hpml.GraphProjector.paper()])
@pytest.mark.parametrize("measure", [None, wide])
def test_a_plane_in_many_dimensions_is_a_plane(projector, measure):
    points, field, lift = embedded(40)
    beside = None if measure is None else lambda key, count: measure(key, count) @ lift
    low = hpml.project(points, field, projector, measure=measure)
    high = hpml.project(points @ lift, field @ lift, projector, measure=beside)
    assert high.chart.rank == PLANE
    np.testing.assert_allclose(high.direction, low.direction @ lift, atol=1e-8)
    np.testing.assert_allclose(high.potential, low.potential, atol=1e-8)
    assert high.nonpotentiality == pytest.approx(low.nonpotentiality, abs=1e-9)


def test_a_measure_counts_in_many_dimensions_too():
    """Under it the field's energy is not that of the samples; what it does beside their span does not matter."""
    points, field, lift = embedded(40)
    field = field * (1.0 + (points[:, :1] > 0))
    noise = lambda key, count: np.asarray(jax.random.normal(jax.random.fold_in(key, 1), (count, SPACE)))  # noqa: E731
    across = np.eye(SPACE) - lift.T @ lift
    left = lambda key, count: -np.abs(wide(key, count)) @ lift  # noqa: E731
    found = [
        hpml.project(points @ lift, field @ lift, hpml.GraphProjector(), measure=measure).nonpotentiality
        for measure in (None, left, lambda key, count: left(key, count) + noise(key, count) @ across)
    ]
    assert abs(found[0] - found[1]) > 1e-3
    assert found[1] == pytest.approx(found[2], abs=1e-9)


def test_uncertainty_through_a_chart():
    points, field, lift = embedded(30)
    p = hpml.project(points @ lift, field @ lift)
    asked = 0.5 * points[:3]
    there = p.predict(asked @ lift)
    np.testing.assert_allclose(there.direction, p.at(asked @ lift))
    np.testing.assert_allclose(there.potential, p.potential_at(asked @ lift))
    inside = p.fit.predict(p.chart.encode_points(asked @ lift))
    for name in ("direction_std", "residual_std"):  # an isometry keeps the whole variance
        whole, part = (np.square(getattr(found, name)).sum(1) for found in (there, inside))
        np.testing.assert_allclose(whole, part)
    assert there.direction_std.shape == (3, SPACE)


@pytest.mark.parametrize(("n", "d"), [(20, 41), (20, 400), (80, 1000)])
def test_deviations_hold_beside_the_span_of_few_samples(n, d):
    """The true field -x of new points lies within two deviations for most coordinates."""
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(n, d)), rng.normal(size=(30, d))
    p = hpml.project(X, -X)
    there = p.predict(new)
    for found, std, truth in (
        (there.direction, there.direction_std, -new),
        (there.residual, there.residual_std, 0.0),
    ):
        assert np.mean(np.abs(found - truth) < 2.0 * std) > 0.9
        assert np.all(std < 2.0)


def test_unit_variances_of_a_chart_are_the_diagonal_of_the_inverse_metric():
    rng = np.random.default_rng(0)
    X, F = rng.normal(size=(2, 3, 12))
    U = rng.normal(size=(12, 2))
    for metric, M in (
        (hpml.Euclidean(), np.eye(12)),
        (hpml.Diagonal(np.arange(1.0, 13.0)), np.diag(np.arange(1.0, 13.0))),
        (hpml.LowRank(np.ones(12), U), np.eye(12) + U @ U.T),
    ):
        chart = hpml.project(X, F, metric=metric).chart
        np.testing.assert_allclose(chart.unit_variances(rows=5), np.diag(np.linalg.inv(M)), rtol=1e-9)
        np.testing.assert_allclose(chart.beside(X), 0.0, atol=1e-9)
