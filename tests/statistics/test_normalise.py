"""Scales: worst 0, best 100, and where there is none."""

import numpy as np
import pytest

from hpml.statistics.normalise import fixed_scale, paper_scale, scale_cautions
from hpml.statistics.scores import task_means


def methods(seed=0):
    key = np.random.default_rng(seed)
    return {name: key.normal(size=(5, 4)) + 3 * key.normal(size=4) for name in ("a", "b", "c")}


def test_the_worst_mean_is_0_and_the_best_100():
    scores = methods()
    scores["b"][3:, 2] = np.nan
    scale = paper_scale(scores)
    means = np.array([task_means(scale.apply(table)) for table in scores.values()])
    assert means.min(0) == pytest.approx(np.zeros(4), abs=1e-9)
    assert means.max(0) == pytest.approx(np.full(4, 100.0))


def test_units_of_a_scenario_do_not_matter():
    scores = methods(1)
    factor, shift = np.array([0.1, 1.0, 7.0, 1e6]), np.array([5.0, -3.0, 0.0, 1e3])
    moved = {name: factor * table + shift for name, table in scores.items()}
    for name in scores:
        assert paper_scale(moved).apply(moved[name]) == pytest.approx(paper_scale(scores).apply(scores[name]))


def test_a_tie_and_a_single_method_have_no_scale_and_say_so():
    scores = {"a": np.array([[1.0, 1.0], [1.0, 2.0]]), "b": np.array([[1.0, 5.0], [1.0, 6.0]])}
    scale = paper_scale(scores)
    assert np.isnan(scale.apply(scores["a"])[:, 0]).all()
    assert np.isfinite(scale.apply(scores["a"])[:, 1]).all()
    said = scale_cautions(scores, scale, ("tied", "apart"))
    assert said == ("tied has no normalised return (all methods have the same mean) and is left out of averages over "
                    "scenarios.",)  # fmt: skip
    alone = {"a": scores["a"]}
    assert "one method only" in scale_cautions(alone, paper_scale(alone), ("tied", "apart"))[1]


def test_anchors_within_noise_are_named():
    scores = {"a": np.array([[0.0, 0.0], [1.0, 1.0]]), "b": np.array([[0.2, 9.0], [1.2, 10.0]])}
    said = scale_cautions(scores, paper_scale(scores), ("noise", "signal"))
    assert len(said) == 1
    assert said[0].startswith("On noise the best and the worst method are closer than two standard errors")


def test_a_scenario_that_nobody_ran_has_no_scale():
    scores = methods()
    for table in scores.values():
        table[:, 1] = np.nan
    assert np.isnan(paper_scale(scores).width).tolist() == [False, True, False, False]
    assert scale_cautions(scores, paper_scale(scores), ("w", "x", "y", "z")) == ()


def test_fixed_anchors_do_not_depend_on_the_methods():
    scale = fixed_scale([0.0, 10.0], [2.0, 30.0])
    assert scale.apply([[1.0, 40.0]]).tolist() == [[50.0, 150.0]]
    assert "random play is 0" in scale.words
    with pytest.raises(ValueError, match="below its high anchor"):
        fixed_scale([1.0], [1.0])
    with pytest.raises(ValueError, match="2 tasks and the scores have 3"):
        scale.apply(np.ones((2, 3)))


def test_a_method_without_a_run_of_a_scenario_has_no_part_in_its_anchors():
    scores = methods(2)
    without = {name: scores[name] for name in ("a", "b")}
    scores["c"][:, 3] = np.nan
    both, two = paper_scale(scores), paper_scale(without)
    assert (both.low[3], both.high[3]) == (two.low[3], two.high[3])
