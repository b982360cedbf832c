"""A chart changes coordinates and nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml.geometry.chart import chart_of
from hpml.geometry.metric import Diagonal, Euclidean, LowRank, Shahshahani
from hpml.geometry.samples import gather_samples


def metric_of(name, d, rng):
    if name == "euclidean":
        return Euclidean()
    if name == "diagonal":
        return Diagonal(rng.uniform(0.1, 10, d))
    return LowRank(rng.uniform(0.1, 10, d), rng.normal(size=(d, 3)))


@pytest.mark.parametrize("name", ["euclidean", "diagonal", "low rank"])
@pytest.mark.parametrize("estimates", [1, 2])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), n=st.integers(2, 12), scale=st.sampled_from([1e-4, 1.0, 1e4]))
def test_chart_is_isometric(name, estimates, seed, n, scale):
    rng = np.random.default_rng(seed)
    d = 3 * n + 5
    metric = metric_of(name, d, rng)
    points = 100.0 + rng.normal(size=(n, d))
    field = scale * rng.normal(size=(estimates, n, d)).squeeze()
    samples = gather_samples(points, field, metric=metric)
    chart, inner = chart_of(samples, metric)
    assert chart.rank <= (1 + estimates) * n
    assert inner.ambient == d
    X, F = samples.points, samples.field
    for left in range(n):
        np.testing.assert_allclose(
            np.linalg.norm(inner.points - inner.points[left], axis=1), metric.norm(X - X[left]), rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(
            inner.field @ inner.field[left], metric.inner(F, F[left]), rtol=1e-9, atol=1e-9 * metric.inner(F, F).max()
        )
        np.testing.assert_allclose(
            (inner.points - inner.points[left]) @ inner.field[left],
            metric.inner(X - X[left], F[left]),
            atol=1e-9 * float(metric.norm(F).max() * metric.norm(X - X[left]).max()),
        )
    np.testing.assert_allclose(chart.decode(inner.field), F, atol=1e-10 * scale)
    np.testing.assert_allclose(chart.decode(inner.points) + chart.centre, X, atol=1e-10)
    if estimates == 2:
        np.testing.assert_allclose(chart.decode(inner.halves[1]), samples.halves[1], atol=1e-10 * scale)


def test_a_direction_much_smaller_than_the_others_survives():
    rng = np.random.default_rng(0)
    path = np.linspace(0, 1, 6)[:, None] * rng.normal(size=40)
    points = path + 1e-9 * rng.normal(size=(6, 40))
    samples = gather_samples(points, rng.normal(size=(6, 40)))
    chart, inner = chart_of(samples, Euclidean())
    off = points - points.mean(0)
    np.testing.assert_allclose(chart.decode(inner.points), off, atol=1e-14)


def test_a_zero_field_and_a_varying_metric():
    rng = np.random.default_rng(1)
    samples = gather_samples(rng.normal(size=(3, 20)), np.zeros((3, 20)))
    chart, inner = chart_of(samples, Euclidean())
    assert chart.rank == 2
    assert np.all(inner.field == 0)
    with pytest.raises(ValueError, match="constant metric"):
        chart_of(samples, Shahshahani(21))
