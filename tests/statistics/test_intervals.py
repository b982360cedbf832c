"""Intervals: closed forms, SciPy's, rliable's, and what must not change them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rliable import library, metrics
from scipy import stats

from hpml.statistics.aggregate import IQM, MEAN, Statistic, standard_error
from hpml.statistics.bootstrap import bootstrap_intervals
from hpml.statistics.interval import estimate, student_interval


def scores(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def test_students_interval_of_a_cell_is_scipys():
    x = scores(6)
    low, high = stats.ttest_1samp(x, 0.0).confidence_interval(0.95)
    assert student_interval(x) == pytest.approx([low, high])


@pytest.mark.parametrize("n", [5, 8, 11])
def test_students_interval_of_a_trimmed_mean_is_scipys(n):
    x = scores(n, n)
    cut = n // 4 / n
    theirs = stats.mstats.trimmed_mean_ci(x, limits=(cut, cut), inclusive=(True, True), alpha=0.05)
    assert student_interval(x, IQM) == pytest.approx(np.asarray(theirs))


def test_students_interval_over_two_tasks_is_welchs():
    # The mean of two tasks is half the difference of the first and the mirrored second.
    table = scores((5, 2))
    welch = stats.ttest_ind(table[:, 0], -table[:, 1], equal_var=False).confidence_interval(0.95)
    assert student_interval(table) == pytest.approx([welch.low / 2, welch.high / 2])


def test_percentile_interval_of_three_runs_is_their_range():
    # 1 of 27 resamples is the lowest run three times, more than the 2.5 % that are cut.
    x = scores(3)
    percentile, _ = bootstrap_intervals(x, MEAN, resamples=20_000)
    assert percentile == pytest.approx([x.min(), x.max()])


def test_percentile_interval_is_scipys():
    x = scores(12, 1)
    theirs = stats.bootstrap((x,), np.mean, n_resamples=20_000, method="percentile", rng=0).confidence_interval
    ours, _ = bootstrap_intervals(x, MEAN, resamples=20_000)
    assert ours == pytest.approx(theirs, abs=0.03 * x.std())


def test_percentile_interval_over_tasks_is_rliables():
    table = scores((5, 8), 2) + np.arange(8)
    iqm = lambda drawn: np.array([metrics.aggregate_iqm(drawn)])  # noqa: E731
    _, theirs = library.get_interval_estimates({"x": table}, iqm, reps=5000, random_state=np.random.RandomState(0))
    ours, _ = bootstrap_intervals(table, IQM, resamples=20_000)
    assert ours == pytest.approx(theirs["x"][:, 0], abs=0.15 * standard_error(table, IQM))


def test_studentised_interval_by_hand():
    # Every resample of three runs, one by one.
    x = np.array([0.0, 1.0, 5.0])
    ratios = []
    for drawn in np.stack(np.meshgrid(x, x, x), -1).reshape(-1, 3):
        if np.ptp(drawn) > 0:
            ratios.append((drawn.mean() - x.mean()) / stats.sem(drawn))
    many = np.repeat(np.sort(ratios), 1000)
    low, high = np.quantile(many, [0.1, 0.9])
    _, ours = bootstrap_intervals(x, MEAN, level=0.8, resamples=40_000)
    assert ours == pytest.approx([x.mean() - high * stats.sem(x), x.mean() - low * stats.sem(x)], abs=1e-9)


def test_resamples_stay_within_their_task_and_keep_its_number_of_runs():
    table = np.array([[1.0, 10.0], [2.0, np.nan], [3.0, 30.0], [np.nan, np.nan]])
    seen = []
    watched = Statistic("mean", lambda tables: seen.append(tables) or MEAN.estimate(tables), MEAN.pulls)
    bootstrap_intervals(table, watched, resamples=500)
    (drawn,) = next(tables for tables in seen if tables.ndim == 4)
    assert (np.isfinite(drawn).sum(1) == [3, 2]).all()
    assert set(drawn[..., 0][np.isfinite(drawn[..., 0])]) == {1.0, 2.0, 3.0}
    assert set(drawn[..., 1][np.isfinite(drawn[..., 1])]) == {10.0, 30.0}


@given(st.floats(0.01, 100), st.floats(-100, 100), st.sampled_from([MEAN, IQM]))
def test_another_unit_and_another_zero_move_the_intervals_with_them(factor, shift, statistic):
    table = scores((4, 3), 3)
    table[2:, 1] = np.nan
    table[0, 2] = np.nan
    table = np.concatenate([table, [[np.nan, 0.3, np.nan]]])
    plain = estimate(table, statistic, resamples=200)
    moved = estimate(factor * table + shift, statistic, resamples=200)
    for name in ("student", "studentised", "percentile"):
        expected = [factor * end + shift for end in getattr(plain, name)]
        assert getattr(moved, name) == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_many_tables_at_once_are_each_like_one_alone():
    tables = scores((5, 4, 3), 4)
    together = student_interval(tables, IQM)
    assert together == pytest.approx(np.array([student_interval(table, IQM) for table in tables]))
    both = bootstrap_intervals(tables, IQM, resamples=4000)
    alone = [bootstrap_intervals(table, IQM, resamples=4000, seed=7) for table in tables]
    for kind in (0, 1):
        difference = both[kind] - np.array([pair[kind] for pair in alone])
        assert np.abs(difference).max() < 0.4 * standard_error(tables, IQM).max()


def test_what_cannot_have_an_interval_has_none():
    one, two, none = estimate([3.0]), estimate([3.0, 4.0]), estimate([np.nan])
    assert one.value == 3.0
    assert np.isnan([one.error, *one.student, *one.percentile, *one.studentised]).all()
    assert np.isfinite([*two.student, *two.percentile]).all()
    assert np.isnan(two.studentised).all()
    assert np.isnan([none.value, none.error, *none.student]).all()
    assert (none.fewest, none.most, none.tasks) == (0, 0, 0)
    single = np.array([[1.0, 2.0], [2.0, np.nan], [4.0, np.nan]])
    assert np.isnan(estimate(single).student).all()


def test_equal_runs_have_an_interval_of_no_width():
    found = estimate(np.full((5, 2), 0.1))
    for name in ("student", "studentised", "percentile"):
        assert getattr(found, name) == pytest.approx((0.1, 0.1))


def test_the_same_seed_gives_the_same_interval_and_another_seed_another():
    table = scores((5, 3), 5)
    assert estimate(table, IQM, seed=1) == estimate(table, IQM, seed=1)
    assert estimate(table, IQM, seed=1).percentile != estimate(table, IQM, seed=2).percentile


def test_impossible_levels_are_named():
    with pytest.raises(ValueError, match="between 0 and 1"):
        estimate([1.0, 2.0], level=95)
