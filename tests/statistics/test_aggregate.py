"""One number from many runs: rliable's numbers, the paper's standard errors, and what must not change them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rliable import metrics
from scipy import stats

from hpml.report.sweep import paper
from hpml.statistics.aggregate import IQM, MEAN, MEDIAN, macro_average, optimality_gap, standard_error
from hpml.statistics.scores import shared_tasks, table_of

ALL = (MEAN, MEDIAN, IQM, optimality_gap(1.0))
tables = st.tuples(st.integers(1, 7), st.integers(1, 6)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.floats(-100, 100))
)


def ragged(seed=0, shape=(6, 5)):
    """A table with between two and all of the runs of each task."""
    key = np.random.default_rng(seed)
    table = key.normal(size=shape) + 2.0 * key.normal(size=shape[1])
    for column, n in enumerate(key.integers(2, shape[0] + 1, shape[1])):
        table[key.permutation(shape[0])[n:], column] = np.nan
    return table


@given(tables)
def test_point_estimates_are_rliables(scores):
    theirs = (
        metrics.aggregate_mean(scores),
        metrics.aggregate_median(scores),
        metrics.aggregate_iqm(scores),
        metrics.aggregate_optimality_gap(scores, 1.0),
    )
    assert [statistic(scores) for statistic in ALL] == pytest.approx(theirs, rel=1e-10, abs=1e-10)


@given(tables)
def test_missing_rows_change_nothing(scores):
    padded = np.concatenate([np.full((2, scores.shape[1]), np.nan), scores, np.full((1, scores.shape[1]), np.nan)])
    for statistic in ALL:
        assert statistic(padded) == pytest.approx(statistic(scores), rel=1e-10, abs=1e-10)
        assert standard_error(padded, statistic) == pytest.approx(
            standard_error(scores, statistic), rel=1e-9, abs=1e-9, nan_ok=True
        )


@given(st.integers(0, 10_000), st.floats(0.01, 100), st.floats(-100, 100))
def test_another_unit_and_another_zero_move_the_number_with_them(seed, factor, shift):
    scores = ragged(seed)
    for statistic in (MEAN, MEDIAN, IQM):
        assert statistic(factor * scores + shift) == pytest.approx(
            factor * statistic(scores) + shift, rel=1e-9, abs=1e-8
        )
        assert standard_error(factor * scores + shift, statistic) == pytest.approx(
            factor * standard_error(scores, statistic), rel=1e-6
        )


@given(st.integers(0, 10_000))
def test_the_order_of_runs_and_of_tasks_is_nothing(seed):
    scores, key = ragged(seed), np.random.default_rng(seed)
    mixed = key.permuted(scores, axis=0)[:, key.permutation(scores.shape[1])]
    for statistic in ALL:
        assert statistic(mixed) == pytest.approx(statistic(scores))
        assert standard_error(mixed, statistic) == pytest.approx(standard_error(scores, statistic))


def test_a_task_with_more_runs_weighs_no_more():
    scores = np.random.default_rng(1).normal(size=(4, 4))
    twice = table_of({str(j): np.repeat(scores[:, j], 2 if j == 0 else 1) for j in range(4)})
    for statistic in ALL:  # 16 and 20 runs: a quarter is whole in both
        assert statistic(twice) == pytest.approx(statistic(scores))


def test_a_task_without_runs_is_left_out():
    scores = np.random.default_rng(2).normal(size=(5, 4))
    holed = scores.copy()
    holed[:, 1] = np.nan
    for statistic in ALL:
        assert statistic(holed) == pytest.approx(statistic(scores[:, [0, 2, 3]]))
        assert standard_error(holed, statistic) == pytest.approx(standard_error(scores[:, [0, 2, 3]], statistic))
    assert np.isnan([statistic(np.full((3, 2), np.nan)) for statistic in ALL]).all()


def test_standard_error_of_a_cell_is_the_textbooks():
    scores = np.random.default_rng(3).normal(size=7)
    assert standard_error(scores) == pytest.approx(stats.sem(scores))
    assert np.isnan(standard_error([1.0]))


@pytest.mark.parametrize("method", paper.METHODS)
def test_the_papers_macro_average_is_the_mean_with_errors_added_in_squares(method):
    mean, error = macro_average(list(paper.NORMALISED[method].values()), list(paper.ERRORS[method].values()))
    assert mean == pytest.approx(paper.MACRO[method], abs=0.051)  # the paper prints one digit
    assert error == pytest.approx(paper.MACRO_ERRORS[method], abs=0.075)


def test_macro_average_and_the_delta_method_agree():
    scores = ragged(4)
    means, errors = np.nanmean(scores, 0), stats.sem(scores, 0, nan_policy="omit")
    assert macro_average(means, errors) == pytest.approx((MEAN(scores), standard_error(scores)))
    assert macro_average([np.nan, 2.0], [np.nan, 0.5]) == (2.0, 0.5)


@pytest.mark.parametrize("statistic", [MEAN, MEDIAN, IQM, optimality_gap(0.5)])
def test_standard_error_is_the_scatter_of_new_samples(statistic):
    key = np.random.default_rng(5)
    drawn = key.normal(size=(4000, 40, 5)) + 0.4 * np.arange(5)
    estimated = np.sqrt(np.mean(standard_error(drawn, statistic) ** 2))
    assert estimated == pytest.approx(np.std(statistic(drawn)), rel=0.06)


def test_bad_tables_are_named():
    with pytest.raises(ValueError, match="infinite"):
        MEAN([[1.0, np.inf]])
    with pytest.raises(ValueError, match="at least one"):
        MEAN(np.empty((0, 3)))
    with pytest.raises(ValueError, match="same tasks"):
        shared_tasks({"a": np.ones((2, 3)), "b": np.ones((2, 4))})


def test_shared_tasks_are_those_of_all_methods():
    a, b = np.ones((2, 3)), np.ones((3, 3))
    b[:, 1] = np.nan
    assert shared_tasks({"a": a, "b": b}).tolist() == [True, False, True]
