"""The chart of a history is isometric, and its way back is exact."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpml.geometry import history, span
from hpml.geometry.history import combine_rows, history_init, history_push
from hpml.geometry.leaves import leaf_metric
from hpml.geometry.metric import Diagonal
from hpml.geometry.span import empty_span, row_coefficients


def filled(points, field, capacity, keep="recent", metric=None, dtype=jnp.float64):
    history = history_init(jnp.asarray(points[0], dtype), capacity, keep)
    samples = (jnp.asarray(points, dtype), jnp.asarray(field, dtype))
    push = jax.jit(lambda h, samples: jax.lax.scan(lambda h, s: (history_push(h, *s, metric), None), h, samples)[0])
    return push(history, samples)


# Op by op each would compile a hundred times.
span_of, encode, path_return, products_with = map(
    eqx.filter_jit, (span.span_of, span.encode, span.path_return, history.products_with)
)


@pytest.mark.parametrize("keep", ["recent", "reservoir", "thinned"])
@pytest.mark.parametrize("count", [4, 30])
def test_coordinates_are_isometric(keep, count):
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        d, m = 40, rng.uniform(0.5, 2.0, 40)
        history = filled(50 + rng.normal(size=(count, d)), 1e-3 * rng.normal(size=(count, d)), 8, keep, Diagonal(m))
        chart, points, field = span_of(history)
        used = np.asarray(chart.rows)[np.asarray(chart.mask)]
        X, F = np.asarray(history.points)[used] * np.sqrt(m), np.asarray(history.field)[used] * np.sqrt(m)
        y, f = np.asarray(points)[np.asarray(chart.mask)], np.asarray(field)[np.asarray(chart.mask)]
        np.testing.assert_allclose(y @ y.T, (X - X.mean(0)) @ (X - X.mean(0)).T, atol=1e-9)
        np.testing.assert_allclose(f @ f.T, F @ F.T, atol=1e-14)
        np.testing.assert_allclose(f @ y.T, F @ (X - X.mean(0)).T, atol=1e-11)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_way_in_and_back(dtype):
    with jax.enable_x64(dtype == "float64"):
        tolerance = 1e-9 if dtype == "float64" else 2e-3
        rng = np.random.default_rng(1)
        d = 30
        history = filled(rng.normal(size=(9, d)), rng.normal(size=(9, d)), 6, dtype=dtype)
        chart, _, _ = span_of(history)
        x, f = jnp.asarray(rng.normal(size=(2, d)), dtype)
        y, g = encode(chart, history, products_with(history, x, f, leaf_metric(None, x)))
        used = np.asarray(chart.rows)
        X, F = np.asarray(history.points, np.float64)[used], np.asarray(history.field, np.float64)[used]
        basis = np.linalg.qr(np.concatenate([X[1:] - X[0], F]).T)[0]
        for vector, coordinates in ((x - X.mean(0), y), (f, g)):
            back = combine_rows(history, chart.rows, *row_coefficients(chart, coordinates), x)
            np.testing.assert_allclose(back, basis @ (basis.T @ np.asarray(vector)), atol=tolerance)
            want = np.linalg.norm(basis.T @ np.asarray(vector))
            np.testing.assert_allclose(np.linalg.norm(coordinates), want, rtol=tolerance)


def test_an_empty_chart_sees_nothing():
    history = history_init(jnp.zeros(3), 4)
    y, f = encode(
        empty_span(4), history, products_with(history, jnp.ones(3), jnp.ones(3), leaf_metric(None, jnp.ones(3)))
    )
    assert np.all(np.asarray(y) == 0)
    assert np.all(np.asarray(f) == 0)
    chart, points, field = span_of(history)
    assert np.all(np.asarray(points) == 0)
    assert np.all(np.asarray(field) == 0)
    assert not chart.mask.any()


def test_what_a_path_can_identify():
    rng = np.random.default_rng(2)
    t = np.linspace(0, 1, 32)[:, None]
    angle = 2 * np.pi * t
    cases = {
        "line": (t * rng.normal(size=20), 0.0, 0.02),
        "walk": (np.cumsum(rng.normal(size=(32, 2000)), 0), 0.0, 0.2),
        "orbit": (np.hstack([np.cos(angle), np.sin(angle)]), 0.9, 1.0),
        "cloud": (rng.normal(size=(32, 20)), 0.7, 1.0),
        "rest": (np.ones((32, 3)), 0.0, 0.0),
    }
    for name, (points, low, high) in cases.items():
        # Coordinates that rest change no distance, and one shape is compiled once.
        points = np.pad(points, ((0, 0), (0, max(0, 20 - points.shape[1]))))
        history = filled(points, np.ones_like(points), 32, dtype=jnp.float32)
        share = float(path_return(history, span_of(history)[0]))
        assert low <= share <= high, (name, share)
