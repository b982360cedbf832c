"""Samples: replicates are averaged, their noise is estimated without bias, weights count, rows lead back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml import Ball, Dense
from hpml.geometry.samples import draw_measure, gather_samples

SEEDS = st.integers(0, 2**32 - 1)


@given(seed=SEEDS)
def test_repeated_points_are_averaged_with_their_weights(seed):
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(5, 2))
    rows = rng.integers(0, 5, 12)
    rows[:5] = np.arange(5)
    F, w = rng.normal(size=(12, 2)), rng.uniform(0.5, 2.0, 12)
    samples = gather_samples(base[rows], F, w)
    assert samples.count == 5
    np.testing.assert_array_equal(samples.points[samples.rows], base[rows])
    np.testing.assert_allclose(samples.weights.sum(), 1.0)
    for i in range(5):
        mine, row = rows == i, samples.rows[i]
        np.testing.assert_allclose(samples.field[row], np.average(F[mine], axis=0, weights=w[mine]))
        np.testing.assert_allclose(samples.weights[row], w[mine].sum() / w.sum())
        assert samples.replicates[row] == mine.sum()


def test_points_keep_the_order_of_their_first_appearance():
    X = np.array([[3.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    samples = gather_samples(X[[0, 1, 0, 2, 1]], X[[0, 1, 0, 2, 1]])
    np.testing.assert_array_equal(samples.points, X)
    np.testing.assert_array_equal(samples.rows, [0, 1, 0, 2, 1])
    samples = gather_samples(X, X)
    np.testing.assert_array_equal(samples.rows, [0, 1, 2])
    assert samples.noise is None
    assert samples.halves is None


def test_a_weight_of_zero_leaves_a_sample_out():
    X = np.arange(8.0).reshape(4, 2)
    samples = gather_samples(X, X, [1.0, 0.0, 1.0, 2.0])
    assert samples.count == 3
    np.testing.assert_array_equal(samples.rows, [0, -1, 1, 2])
    np.testing.assert_allclose(samples.weights, [0.25, 0.25, 0.5])


@pytest.mark.parametrize("way", ["two estimates", "repeated points", "both", "weighted repeats"])
def test_the_noise_estimate_is_unbiased(way):
    # Truth: the energy in the M-norm of (averaged field - true field), mean over many simulated data sets.
    metric = Dense([[2.0, 0.5], [0.5, 1.0]])
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    X = np.concatenate([X, X[:15], X[:5]]) if way != "two estimates" else X
    w = rng.uniform(0.2, 3.0, len(X)) if way == "weighted repeats" else None
    said, truth = [], []
    for _ in range(300):
        shape = (2, *X.shape) if way in ("two estimates", "both") else X.shape
        F = X + 0.7 * rng.normal(size=shape)
        samples = gather_samples(X, F, w, metric)
        error = samples.field - samples.points
        said.append(samples.noise)
        truth.append((samples.weights * metric.inner(error, error)).sum())
    np.testing.assert_allclose(np.mean(said), np.mean(truth), rtol=0.04)


@pytest.mark.parametrize("estimates", [1, 2])
def test_a_row_that_was_logged_twice_is_no_replicate(estimates):
    rng = np.random.default_rng(0)
    X, F = rng.normal(size=(9, 2)), rng.normal(size=(estimates, 9, 2))
    plain = gather_samples(X, F if estimates == 2 else F[0])
    rows = [0, 1, 2, 3, 4, 5, 6, 7, 8, 3, 3]
    again = gather_samples(X[rows], F[:, rows] if estimates == 2 else F[0, rows])
    np.testing.assert_array_equal(again.replicates, np.full(9, estimates))
    np.testing.assert_allclose(again.field, plain.field, atol=1e-15)
    np.testing.assert_allclose(again.weights[3], 3 / 11)
    if estimates == 1:
        assert again.noise is None
        return
    weighted = gather_samples(X, F, [1, 1, 1, 3, 1, 1, 1, 1, 1])
    np.testing.assert_allclose(again.noise, weighted.noise, rtol=1e-12)


@pytest.mark.parametrize("copied", [1, 9])
def test_halves_that_are_copies_anywhere_are_no_two_estimates(copied):
    rng = np.random.default_rng(0)
    X, F = rng.normal(size=(9, 2)), rng.normal(size=(2, 9, 2))
    assert gather_samples(X, F).halves is not None
    F[1, :copied] = F[0, :copied]
    samples = gather_samples(X, F)
    assert samples.halves is None
    assert (samples.noise is None) == (copied == 9)
    np.testing.assert_array_equal(samples.replicates, np.where(np.arange(9) < copied, 1, 2))


def test_copies_at_every_point_say_nothing_of_the_noise():
    X = np.random.default_rng(0).normal(size=(5, 2))
    for samples in (gather_samples(X, np.stack([X, X])), gather_samples(np.tile(X, (2, 1)), np.tile(X, (2, 1)))):
        assert samples.noise is None
        np.testing.assert_array_equal(samples.replicates, np.ones(5))


def test_weights_that_sums_do_not_see_count_for_nothing():
    X = np.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(gather_samples(X, X, [1.0, 1e-20, 1e-3, 1e-14]).rows, [0, -1, 1, 2])


def test_two_estimates_are_kept_and_averaged():
    rng = np.random.default_rng(0)
    X, F = rng.normal(size=(6, 3)), rng.normal(size=(2, 6, 3))
    samples = gather_samples(X, F)
    np.testing.assert_allclose(samples.halves, F)
    np.testing.assert_allclose(samples.field, F.mean(0))
    part = samples.take(np.array([1, 4]))
    np.testing.assert_allclose(part.halves, F[:, [1, 4]])
    np.testing.assert_allclose(part.weights, 0.5)


def test_measures_are_the_samples_a_domain_or_a_sampler():
    X = np.random.default_rng(0).normal(size=(5, 2))
    samples = gather_samples(X, X, np.arange(1.0, 6.0))
    points, weights = draw_measure(None, samples, None, 100)
    np.testing.assert_array_equal(points, X)
    np.testing.assert_allclose(weights, np.arange(1.0, 6.0) / 15)
    for measure in (Ball(np.zeros(2)), lambda key, count: jax.random.normal(key, (count, 2))):
        points, weights = draw_measure(measure, samples, jax.random.key(1), 100)
        again, _ = draw_measure(measure, samples, jax.random.key(1), 100)
        assert points.shape == (100, 2)
        np.testing.assert_allclose(weights, 0.01)
        np.testing.assert_array_equal(points, again)
    with pytest.raises(ValueError, match="dimension"):
        draw_measure(Ball(np.zeros(3)), samples, None, 10)
    with pytest.raises(ValueError, match="key, count"):
        draw_measure(lambda: 0, samples, None, 10)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float16, np.float32, bool, jnp.bfloat16])
def test_every_kind_of_number_is_taken_in_float64(dtype):
    X = np.array([[0, 1], [1, 1], [1, 0]]).astype(dtype)
    samples = gather_samples(X, X)
    assert samples.points.dtype == np.float64
    np.testing.assert_array_equal(samples.points, [[0, 1], [1, 1], [1, 0]])


GOOD = np.arange(8.0).reshape(4, 2)
BAD = GOOD.copy()
BAD[2, 1] = np.nan


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((GOOD[0], GOOD[0]), r"\(n, d\)"),
        ((GOOD, GOOD[:3]), "shape of points"),
        ((GOOD, np.zeros((3, 4, 2))), "two independent"),
        ((GOOD[:1], GOOD[:1]), "at least two"),
        ((GOOD[:, :0], GOOD[:, :0]), "no columns"),
        ((BAD, GOOD), r"points has 1 value.*\(2, 1\)"),
        ((GOOD, BAD), "field has 1 value"),
        ((GOOD, np.full_like(GOOD, np.inf)), "not finite"),
        ((GOOD * 1j, GOOD), "real"),
        (("hello", GOOD), "numbers"),
        (([[1.0], [1.0, 2.0]], GOOD), "numbers"),
        ((None, GOOD), "numbers"),
        ((np.ones((4, 2)), GOOD), "equal"),
        ((GOOD, GOOD, [1.0, 1.0]), "weights must have shape"),
        ((GOOD, GOOD, [1.0, 1.0, 1.0, -1.0]), "negative"),
        ((GOOD, GOOD, np.zeros(4)), "zero"),
        ((GOOD, GOOD, [1.0, 0.0, 0.0, 0.0]), "equal|two"),
        ((GOOD, GOOD, None, Dense(np.eye(3))), "dimension"),
    ],
)
def test_bad_samples_are_refused_with_words(arguments, words):
    with pytest.raises(ValueError, match=words):
        gather_samples(*arguments)
