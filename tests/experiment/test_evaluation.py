"""Equality has the closed forms of the Gini coefficient; an evaluation counts what was played."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.experiment.evaluation import Episodes, equality, summarise


@pytest.mark.parametrize("agents", [2, 3, 7])
def test_equality_of_equals_and_of_one_who_has_all(agents):
    assert equality(np.full(agents, 3.0)) == pytest.approx(1.0)
    assert equality(np.eye(agents)[0]) == pytest.approx(1.0 / agents)


@given(st.lists(st.floats(0.1, 100.0), min_size=2, max_size=8), st.floats(0.1, 10.0))
def test_equality_is_the_area_under_the_lorenz_curve(returns, scale):
    shares = np.concatenate([[0.0], np.cumsum(np.sort(returns)) / np.sum(returns)])
    area = np.trapezoid(shares, dx=1.0 / len(returns))
    assert equality(returns) == pytest.approx(2.0 * area)
    assert equality(scale * np.array(returns)) == pytest.approx(equality(returns))


def test_equality_has_no_meaning_for_losses():
    assert np.isnan(equality([1.0, -1.0]))
    assert np.isnan(equality([0.0, 0.0]))
    assert equality([[1.0, -1.0], [2.0, 2.0]]) == pytest.approx(1.0)


def played(conventions, lengths):
    conventions = np.array(conventions)
    return Episodes(np.array([[4.0, 2.0], [0.0, 2.0]]), np.array(lengths), conventions)


def test_an_evaluation_counts_by_hand():
    # Two episodes, of 3 and 2 steps; conventions of the two players in each step.
    first, second = [[0, 0], [1, 0], [1, 0]], [[1, 0], [1, 0], [-1, -1]]
    episodes = played(np.stack([first, second], 1), [3, 2])
    columns, frequent = summarise(episodes, True, np.array([0, 0]))
    assert columns["evaluation/return"] == 2.0
    assert columns["evaluation/collective_return"] == 4.0
    assert (columns["evaluation/return/0"], columns["evaluation/return/1"]) == (2.0, 2.0)
    assert columns["evaluation/length"] == 2.5
    assert columns["evaluation/equality"] == pytest.approx((1 - 2 / 12 * 1 + 0.5) / 2)
    assert columns["evaluation/switch_rate"] == pytest.approx(1 / 3)
    assert columns["evaluation/interactions"] == 2.5
    assert columns["evaluation/switched"] == 1.0
    assert frequent.tolist() == [1, 0]
    assert summarise(episodes, True, frequent)[0]["evaluation/switched"] == 0.0


def test_an_evaluation_without_interactions_leaves_the_convention_as_it_was():
    columns, frequent = summarise(played(np.full((3, 2, 2), -1), [3, 3]), True, np.array([1, 0]))
    assert np.isnan(columns["evaluation/switched"])
    assert np.isnan(columns["evaluation/switch_rate"])
    assert frequent.tolist() == [1, 0]
