"""Runs: bad input is refused, budgets hold, and a start that diverges is stopped before it overflows."""

import numpy as np
import pytest

import hpml
from hpml.dynamics.rules.hpml import HPML
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import FAR, run
from hpml.games.families.linear import Linear, swirl
from hpml.geometry.domain import Space

START = np.array([[0.5, 0.0]])


def test_a_run_has_one_more_point_than_steps():
    path = run(swirl(), Simultaneous(), START, steps=7)
    assert path.points.shape == (8, 1, 2)
    assert path.directions.shape == (7, 1, 2)
    np.testing.assert_array_equal(path.evaluations, np.arange(8))
    np.testing.assert_array_equal(path.points[0], START)


def test_a_diverging_start_is_stopped_and_leaves_the_others_alone():
    game = Linear(np.eye(2), Space(2))
    path = run(game, Simultaneous(1e3), np.array([[1.0, 0.0], [0.0, 0.0]]), steps=20).points
    assert np.isfinite(path).all()
    assert 1e9 < np.abs(path[-1, 0]).max() < FAR
    np.testing.assert_array_equal(path[-1, 0], path[-2, 0])
    np.testing.assert_array_equal(path[:, 1], 0.0)


def test_a_budget_below_the_samples_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match="spends 256 evaluations before its first step"):
        run(swirl(), HPML(direction=lambda x: -x, spent=256), START, budget=100)


@pytest.mark.parametrize(
    ("starts", "steps", "words"),
    [
        (START, 0, "at least one step"),
        (np.zeros((1, 3)), 5, "2 columns"),
        (START[0], 5, "shape"),
        ([[np.nan, 0]], 5, "fini"),
    ],
)
def test_bad_input_is_refused(starts, steps, words):
    with pytest.raises(ValueError, match=words):
        run(swirl(), Simultaneous(), starts, steps)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"residual": "keep"}, "residual must be one of"),
        ({"samples": 1}, "samples"),
        ({"reach": -1.0}, "reach"),
        ({"reach": 1.0, "measure": hpml.Ball(np.zeros(2))}, "not both"),
        ({"refresh": -1}, "refresh"),
        ({"residual": "adjust", "metric": hpml.Euclidean()}, "Euclidean"),
    ],
)
def test_bad_settings_of_hpml_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        HPML(**options)


def test_hpml_without_a_measure_on_an_unbounded_domain_says_what_to_give():
    with pytest.raises(ValueError, match=r"measure=hpml\.Ball"):
        run(Linear(-np.eye(2), Space(2)), HPML(), START, steps=1)
