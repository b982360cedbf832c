"""Comparisons: one budget of evaluations, each rule with its best step, the same starts for all."""

import jax
import numpy as np
import pytest

from hpml.dynamics.compare import compare, shortfall, tidy
from hpml.dynamics.rules.extragradient import Extragradient
from hpml.dynamics.rules.hpml import HPML
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import run
from hpml.games.families.linear import Linear, swirl
from hpml.games.families.normal_form import bimatrix
from hpml.games.game import exploitability
from hpml.geometry.domain import Space

RPS = bimatrix([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
STARTS = np.asarray(RPS.domain.sample(jax.random.key(2), 6), np.float64)
BUDGET = 200
RULES = {
    "raw": Simultaneous(),
    "ahead": Extragradient(),
    "hpml": HPML(direction=lambda x: 0.0 * x, spent=40, residual="extragradient"),
}


@pytest.fixture(scope="module")
def curves():
    return {curve.name: curve for curve in compare(RPS, RULES, STARTS, BUDGET, marks=11)}


def test_every_rule_spends_the_same_evaluations(curves):
    for curve in curves.values():
        np.testing.assert_array_equal(curve.evaluations, np.arange(0, 201, 20))
        assert (curve.last.low <= curve.last.median).all()
        assert (curve.last.median <= curve.last.high).all()


def test_the_marks_are_those_of_a_run_of_its_own(curves):
    for name, cost, before in (("raw", 1, 0), ("ahead", 2, 0), ("hpml", 2, 40)):
        rule = type(RULES[name])
        own = rule(step=curves[name].step) if name != "hpml" else Extragradient(curves[name].step)  # P is zero here
        path = run(RPS, own, STARTS, steps=200).points
        for mark, median, average in zip(
            curves[name].evaluations, curves[name].last.median, curves[name].average.median, strict=True
        ):
            t = max(mark - before, 0) // cost
            assert median == pytest.approx(np.median(exploitability(RPS, path[t])), abs=1e-9)
            assert average == pytest.approx(np.median(exploitability(RPS, path[: t + 1].mean(0))), abs=1e-9)


def test_the_step_is_the_best_of_the_grid_on_other_starts(curves):
    for curve in curves.values():
        assert curve.step == min(curve.tuning, key=curve.tuning.get)
        assert set(curve.tuning) == {0.03, 0.1, 0.3, 1.0}
    others = np.asarray(RPS.domain.sample(jax.random.key(1), 8), np.float64)
    path = run(RPS, Extragradient(0.3), others, steps=100)
    assert curves["ahead"].tuning[0.3] == pytest.approx(np.median(exploitability(RPS, path.points[-1])), abs=1e-9)
    assert not np.isin(others, STARTS).any()


def test_extragradient_beats_raw_ascent_on_a_cycle_and_pays_twice(curves):
    assert curves["ahead"].last.median[-1] < 0.1 * curves["raw"].last.median[-1]


def test_the_table_has_a_row_for_each_mark_and_iterate(curves):
    table = tidy(list(curves.values()))
    assert {len(column) for column in table.values()} == {3 * 2 * 11}
    rows = (table["rule"] == "raw") & (table["iterate"] == "average")
    np.testing.assert_array_equal(table["median"][rows], curves["raw"].average.median)


def test_what_is_measured_depends_on_the_game():
    z = np.array([[0.6, 0.8], [0.0, 0.0], [0.3, 0.0]])
    # On the unit disc max_u <F, u - z> = |F| - <F, z>.
    F = z @ swirl().matrix.T
    np.testing.assert_allclose(shortfall(swirl(), z), np.linalg.norm(F, axis=1) - (F * z).sum(1), atol=1e-12)
    free = Linear(swirl().matrix, Space(2))
    np.testing.assert_allclose(shortfall(free, z), np.linalg.norm(F, axis=1), atol=1e-12)
    np.testing.assert_allclose(shortfall(RPS, STARTS), exploitability(RPS, STARTS))


def test_logits_have_no_average():
    game = bimatrix([[1.0, -1.0], [-1.0, 1.0]], coordinates="logits")
    z = np.array([[1.0, 0.0, 0.5, 0.0]])
    (curve,) = compare(game, {"raw": Simultaneous()}, z, 20, tuning=-z, marks=3)
    assert curve.average is None
    with pytest.raises(ValueError, match="tuning="):
        compare(game, {"raw": Simultaneous()}, z, 20)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"rules": {}}, "one rule"), ({"steps": ()}, "one step"), ({"budget": 0}, "budget"), ({"marks": 1}, "marks")],
)
def test_bad_input_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        compare(RPS, **({"rules": RULES, "starts": STARTS} | options))
