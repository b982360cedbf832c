"""Which method is better: rliable's probability, SciPy's exact tests, every exchange of runs counted by hand."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rliable import library, metrics
from scipy import stats

from hpml.statistics import exchange
from hpml.statistics.aggregate import IQM, MEAN
from hpml.statistics.compare import difference, holm, probability_of_improvement
from hpml.statistics.curves import average_profile, learning_curve, performance_profile
from hpml.statistics.exchange import exchange_p, improvement_by_task, smallest_p
from hpml.statistics.interval import student_interval


def pair(seed, m=4, n=5, tasks=3, digits=None):
    key = np.random.default_rng(seed)
    x, y = key.normal(size=(m, tasks)) + 0.5, key.normal(size=(n, tasks))
    return (x, y) if digits is None else (np.round(x, digits), np.round(y, digits))


@given(st.integers(0, 10_000), st.sampled_from([None, 0]))
def test_the_probability_is_rliables(seed, digits):
    x, y = pair(seed, digits=digits)  # rounding makes ties
    ours = probability_of_improvement(x, y, resamples=10)
    assert ours.value == pytest.approx(metrics.probability_of_improvement(x, y), abs=1e-12)
    assert probability_of_improvement(y, x, resamples=10).value == pytest.approx(1.0 - ours.value)
    stretched = probability_of_improvement(np.exp(x), np.exp(y), resamples=10)
    assert (stretched.value, stretched.score, stretched.p) == (ours.value, ours.score, ours.p)


def test_its_percentile_interval_is_rliables():
    x, y = pair(1, 6, 6, 2)
    _, theirs = library.get_interval_estimates({"pair": (x, y)}, metrics.probability_of_improvement, reps=200)
    ours = probability_of_improvement(x, y, resamples=5000)
    assert ours.percentile == pytest.approx(theirs["pair"].ravel(), abs=0.06)


@given(st.integers(0, 10_000))
def test_p_of_one_task_is_scipys_exact_one(seed):
    x, y = pair(seed, tasks=1)
    theirs = stats.mannwhitneyu(x[:, 0], y[:, 0], method="exact").pvalue
    assert exchange_p(x, y)[0] == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("digits", [None, 0])
def test_p_over_tasks_counts_every_exchange(digits):
    x, y = pair(2, 2, 3, 2, digits)
    pooled = np.concatenate([x, y])
    away = []
    for first, second in product(combinations(range(5), 2), repeat=2):
        u = [
            improvement_by_task(pooled[list(chosen), j][:, None], np.delete(pooled[:, j], chosen)[:, None])[0]
            for j, chosen in enumerate((first, second))
        ]
        away.append(abs(np.mean(u) - 0.5))
    seen = abs(improvement_by_task(x, y).mean() - 0.5)
    p, least = exchange_p(x, y)
    assert p == pytest.approx(np.mean(np.array(away) >= seen - 1e-9))
    assert least == pytest.approx(np.mean(np.array(away) >= max(away) - 1e-9))


def test_p_with_unequal_numbers_of_runs_and_its_approximation_agree(monkeypatch):
    x, y = pair(3, 9, 9, 4)
    x[7:, 1], y[5:, 2] = np.nan, np.nan
    exact = exchange_p(x, y)[0]
    monkeypatch.setattr(exchange, "FINEST", 0)
    assert exchange_p(x, y)[0] == pytest.approx(exact, rel=0.1)


@pytest.mark.parametrize(("m", "n", "tasks"), [(3, 3, 1), (5, 5, 1), (3, 4, 2)])
def test_the_smallest_p_is_that_of_runs_wholly_apart(m, n, tasks):
    x, y = pair(4, m, n, tasks)
    assert exchange_p(x + 100.0, y) == pytest.approx((smallest_p(m, n, tasks), smallest_p(m, n, tasks)))


def test_holms_p_by_hand():
    # 4 x 0.005, 3 x 0.01, 2 x 0.03, and 0.04 is no smaller than the one before it.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.7, 0.6]) == pytest.approx([1.0, 1.0])


def test_runs_wholly_apart_are_no_certainty():
    x, y = pair(5, 3, 3, 1)
    found = probability_of_improvement(x + 100.0, y)
    assert found.value == 1.0
    assert found.percentile == (1.0, 1.0)
    assert found.score[0] < 0.5
    assert found.score[1] == 1.0
    mirrored = probability_of_improvement(y, x + 100.0)
    assert mirrored.score == pytest.approx((0.0, 1.0 - found.score[0]))


@given(st.integers(0, 10_000))
def test_the_score_interval_is_where_the_data_lie_within_t_standard_errors(seed):
    x, y = pair(seed, 4, 4, 2)
    found = probability_of_improvement(x, y, resamples=10)
    assert found.score[0] <= found.value <= found.score[1]
    for end in found.score:
        if 0.0 < end < 1.0:
            # Hanley and McNeil's variance of one task, in its usual letters.
            q1, q2 = end / (2 - end), 2 * end**2 / (1 + end)
            one = (end * (1 - end) + 3 * (q1 - end**2) + 3 * (q2 - end**2)) / 16
            assert abs(found.value - end) == pytest.approx(stats.t.ppf(0.975, 12) * np.sqrt(one / 2), rel=1e-5)


def test_only_tasks_of_both_methods_are_compared():
    x, y = pair(6)
    x[:, 0], y[:, 1] = np.nan, np.nan
    found = probability_of_improvement(x, y)
    assert found.tasks == 1
    assert found.value == pytest.approx(metrics.probability_of_improvement(x[:, 2:], y[:, 2:]))
    assert np.isnan(found.by_task).tolist() == [True, True, False]
    assert np.isnan(probability_of_improvement(x[:, :1], y[:, :1]).value)


def test_the_difference_of_one_task_is_welchs():
    x, y = pair(7, tasks=1)
    found = difference(x, y)
    theirs = stats.ttest_ind(x[:, 0], y[:, 0], equal_var=False)
    assert found.interval == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    assert found.settled == (theirs.pvalue < 0.05)
    assert difference(y, x).value == pytest.approx(-found.value)


def test_profiles_are_rliables():
    scores, tau = np.random.default_rng(8).random((6, 4)), np.linspace(0, 1, 11)
    runs, bands = library.create_performance_profile({"x": scores}, tau, reps=1000)
    ours = performance_profile(scores, tau)
    assert ours.value == pytest.approx(runs["x"])
    assert np.stack([ours.low, ours.high]) == pytest.approx(bands["x"], abs=0.06)
    tasks, _ = library.create_performance_profile({"x": scores}, tau, use_score_distribution=False, reps=10)
    assert average_profile(scores, tau) == pytest.approx(tasks["x"])


def test_scenarios_weigh_the_same_in_a_profile():
    table = np.array([[0.0, 2.0], [1.0, 2.0], [np.nan, 2.0], [np.nan, 2.0]])
    assert performance_profile(table, [-1.0, 0.5, 1.5, 2.0]).value.tolist() == [1.0, 0.75, 0.5, 0.0]
    assert np.isnan(performance_profile(np.full((2, 2), np.nan), [0.0]).value).all()
    assert np.isnan(performance_profile([[1.0, 2.0]], [0.0]).low).all()


def test_a_curve_is_the_statistic_at_each_step():
    scores = np.random.default_rng(9).normal(size=(5, 4, 3))
    scores[3, 1:, 2], scores[4] = np.nan, np.nan  # two tasks are ahead of the third, nobody has reached the end
    curve = learning_curve(scores, np.arange(5), IQM)
    for step in range(3):
        assert curve.value[step] == pytest.approx(metrics.aggregate_iqm(scores[step]))
        assert (curve.low[step], curve.high[step]) == pytest.approx(tuple(student_interval(scores[step], IQM)))
    assert curve.runs.tolist() == [4, 4, 4, 1, 0]
    assert np.isfinite(curve.value[3])
    assert np.isnan([curve.low[3], curve.value[4]]).all()
    one = learning_curve(scores[..., 0], np.arange(5), MEAN, band="error")
    assert one.high[0] - one.value[0] == pytest.approx(stats.sem(scores[0, :, 0]))
    with pytest.raises(ValueError, match="band must be"):
        learning_curve(scores, np.arange(5), band="none")
    with pytest.raises(ValueError, match="5 steps"):
        learning_curve(scores[:4], np.arange(5))
