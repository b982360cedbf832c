"""`hpml.project` as a whole: bad input gets a `ValueError` in words, anything else an answer without NaN."""

import subprocess
import sys
import textwrap

import hypothesis.extra.numpy as arrays
import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hpml

QUICK = hpml.GraphProjector()  # nothing to compile, so that random shapes cost little
X = np.random.default_rng(0).normal(size=(20, 2))


def attempt(points, field, **options):
    """The projection, or the words of the refusal."""
    try:
        return hpml.project(points, field, QUICK, **options)
    except ValueError as error:
        return str(error)


def well_formed(projection, shape):
    assert projection.direction.shape == projection.residual.shape == shape
    for array in (projection.direction, projection.residual, projection.potential):
        assert np.isfinite(array).all()
    assert 0.0 <= projection.nonpotentiality <= 1.0


@given(data=st.data(), n=st.integers(0, 12), d=st.integers(0, 4), extra=st.integers(-1, 1))
def test_any_array_gets_a_value_error_or_finite_numbers(data, n, d, extra):
    numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)
    points = data.draw(arrays.arrays(np.float64, (n, d), elements=numbers))
    field = data.draw(arrays.arrays(np.float64, (max(n + extra, 0), d), elements=numbers))
    answer = attempt(points, field)
    if isinstance(answer, str):
        assert len(answer) > 20
    else:
        well_formed(answer, points.shape)


@given(data=st.data(), dtype=st.sampled_from([np.int8, np.uint16, np.int64, np.float16, np.float32, np.bool_]))
def test_any_dtype_gets_a_value_error_or_finite_numbers(data, dtype):
    elements = (
        None
        if dtype in (np.int8, np.uint16, np.bool_)
        else arrays.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False, min_value=-1000, max_value=1000)
    )
    points = data.draw(arrays.arrays(dtype, (10, 2), elements=elements))
    field = data.draw(arrays.arrays(dtype, (10, 2), elements=elements))
    answer = attempt(points, field)
    if isinstance(answer, str):
        assert len(np.unique(points, axis=0)) < 3, answer
    else:
        well_formed(answer, points.shape)


@given(data=st.data())
def test_any_weights_get_a_value_error_or_finite_numbers(data):
    weights = data.draw(arrays.arrays(np.float64, (20,), elements=st.floats(-1.0, 1e6) | st.just(0.0)))
    answer = attempt(X, -X, weights=weights)
    if isinstance(answer, str):
        assert (weights < 0).any() or (weights > 0).sum() < 3, answer
    else:
        well_formed(answer, X.shape)


@pytest.mark.parametrize("projector", [hpml.KernelProjector(), hpml.GraphProjector(), hpml.NeuralProjector(steps=20)])
def test_weights_of_any_size_are_shares(projector):
    """Their sum may overflow, and a share that float64 cannot divide by counts for nothing."""
    points = np.random.default_rng(0).normal(size=(10, 2))
    even = hpml.project(points, -points, projector)
    huge = hpml.project(points, -points, projector, weights=np.full(10, 1e308))
    np.testing.assert_allclose(huge.direction, even.direction, rtol=1e-5, atol=1e-6)
    tiny = hpml.project(points, -points, projector, weights=np.r_[np.full(9, 1e10), 1e-320])
    well_formed(tiny, points.shape)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: hpml.project(X, X, weights=np.ones(3)), "weights must have shape"),
        (lambda: hpml.project(X, X, weights=-np.ones(20)), "negative"),
        (lambda: hpml.project(X, X, metric=hpml.Diagonal(np.ones(3))), "dimension 3"),
        (lambda: hpml.project(X, X, metric=hpml.Shahshahani((3, 3))), "dimension 4"),
        (lambda: hpml.project(X, X, measure=hpml.Ball(np.zeros(3)), key=jax.random.key(0)), "dimension 3"),
        (lambda: hpml.project(X, X, hpml.GraphProjector(neighbours=20)), "neighbours"),
        (lambda: hpml.project(X[:4], X[:4], hpml.GraphProjector.paper()), "neighbours"),
        (lambda: hpml.project(X, X, metric=hpml.Shahshahani(3)), "probabilities"),
        (lambda: hpml.project(X, X, metric=hpml.Shahshahani(2)), "last probability out"),
        (lambda: hpml.project(X, X, measure=hpml.Ball), "the class Ball"),
        (lambda: hpml.project(X, X, measure=lambda count: X), "function of other arguments"),
        (lambda: hpml.Simplices((3, 2)).reduce([np.ones(3) / 3]), "one array a simplex"),
        (lambda: hpml.project(X * 1j, X), "real"),
        (lambda: hpml.project("points", X), "numbers"),
        (lambda: hpml.project(X, X, QUICK).at(X[:, :1]), "columns"),
        (lambda: hpml.project(X, X, QUICK).at(np.full((1, 2), np.nan)), "finite"),
        (lambda: hpml.project(X, np.zeros((3, 20, 2))), "two independent"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_probabilities_of_few_digits_and_those_that_do_not_count_are_taken():
    rng = np.random.default_rng(0)
    metric = hpml.Shahshahani(30)
    full = rng.dirichlet(np.full(30, 0.02), size=12)
    points = full[:, :-1].astype(np.float16)
    assert points.astype(float).sum(1).max() > 1.0  # rounding alone
    well_formed(attempt(points, metric.raise_index(full[:, :-1], full[:, :-1]), metric=metric), points.shape)
    points = rng.dirichlet(np.ones(3), size=20)[:, :2]
    points[4] = 7.0
    left_out = np.where(np.arange(20) == 4, 0.0, 1.0)
    for weights, words in ((left_out, ""), (None, "row 4 ")):
        answer = attempt(points, points, metric=hpml.Shahshahani(3), weights=weights)
        assert words in answer if words else not isinstance(answer, str)


def test_rows_that_look_like_columns_are_named():
    with pytest.warns(UserWarning, match="2 rows of 20 coordinates"):
        hpml.nonpotentiality(X.T, -X.T, QUICK)


def test_what_is_printed_says_what_matters():
    assert repr(hpml.project(X, -X, QUICK)).startswith("Projection(n=20, d=2, nonpotentiality=0.0")
    assert "identifiable=" in repr(hpml.nonpotentiality(X, -X, QUICK))


def test_only_the_graph_has_a_flow():
    projection = hpml.project(X, -X)
    with pytest.raises(AttributeError, match="GraphProjector"):
        _ = projection.flow


def test_things_of_the_wrong_kind_are_named():
    """In a fresh process: under test the types of arguments are checked before our own words are reached."""
    script = """
        import numpy as np, hpml
        X = np.random.default_rng(0).normal(size=(20, 2))
        wrong = [("measure", "ball"), ("metric", np.eye(2)), ("projector", "kernel")]
        for name, value in [*wrong, ("projector", hpml.KernelProjector)]:
            try:
                hpml.project(X, X, **{name: value})
            except ValueError as error:
                assert name in str(error), f"{name}: {error}"
            else:
                raise AssertionError(f"{name}={value} passed")
        for shape in ((5, 3), (1, 3)):
            try:
                hpml.Simplices(3).reduce(np.ones(shape) / 3)
            except ValueError as error:
                assert f"one array of shape {shape}" in str(error), error
            else:
                raise AssertionError("an array for a list of arrays passed")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of the overflow
@pytest.mark.parametrize("projector", [None, hpml.GraphProjector(), hpml.NeuralProjector(steps=20)])
def test_points_beyond_all_numbers_are_refused(projector):
    p = hpml.project(X, -X, projector)
    with pytest.raises(ValueError, match="so far from the samples"):
        p.at(np.full((1, 2), 1e200)), p.potential_at(np.full((1, 2), 1e200))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hpml.GraphProjector(ridge=np.inf), "ridge must be a finite number"),
        (lambda: hpml.project(X, -X, measure=lambda key, count: np.ones((count, 2))), "all equal"),
        (lambda: hpml.Shahshahani(()), "whole number of actions"),
        (lambda: hpml.Shahshahani((1, 3)), "whole number of actions"),
        (lambda: hpml.Shahshahani(3, floor=np.nan), "floor is the least probability"),
        (lambda: hpml.Shahshahani(3, floor=-1.0), "floor is the least probability"),
        (lambda: hpml.project(X, -X, QUICK, hpml.Varying(lambda x: np.eye(2))), "must give a constant metric"),
        (lambda: hpml.project(X, -X, QUICK, hpml.Varying(lambda x: hpml.Dense(np.eye(3)))), "dimension 3"),
    ],
)
def test_metrics_and_settings_are_refused_in_words(make, message):
    with pytest.raises(ValueError, match=message):
        make()
