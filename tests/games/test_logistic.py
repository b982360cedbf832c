"""The logistic 2x2 game agrees with the normal form it comes from, on logits and on (p, q)."""

import numpy as np
import pytest

from hpml.games.families.logistic import Logistic, logistic, pushed_field, show
from hpml.games.families.normal_form import NormalForm
from hpml.games.game import evaluate, exploitability

RNG = np.random.default_rng(0)
POINTS = RNG.uniform(-3, 3, size=(6, 2))


def test_it_is_the_normal_form_in_logits():
    """A logit difference a is the pair of logits (a, 0), whose first coordinate has the same derivative."""
    payoffs = RNG.normal(size=(2, 2, 2))
    game, other = Logistic(payoffs), NormalForm(payoffs, coordinates="logits")
    full = np.zeros((6, 4))
    full[:, [0, 2]] = POINTS
    np.testing.assert_allclose(evaluate(game, POINTS), evaluate(other, full)[:, [0, 2]], atol=1e-12)
    np.testing.assert_allclose(exploitability(game, POINTS), exploitability(other, full), atol=1e-12)


def test_the_field_on_probabilities_is_how_they_move():
    game, h = logistic(coordination=0.3), 1e-6
    F = evaluate(game, POINTS)
    moved = (show(POINTS + h * F) - show(POINTS - h * F)) / (2 * h)
    np.testing.assert_allclose(pushed_field(game, show(POINTS)), moved, atol=1e-9)


def test_matching_pennies_turns_around_the_middle():
    """a F_b - b F_a keeps its sign, and near the middle the radius does not change to first order."""
    game = logistic(turn=2.0)
    F = evaluate(game, POINTS)
    turning = POINTS[:, 0] * F[:, 1] - POINTS[:, 1] * F[:, 0]
    assert (turning < 0).all()
    near = 1e-3 * POINTS
    assert np.abs((near * evaluate(game, near)).sum(1)).max() < 1e-5 * (near**2).sum(1).max()


def test_the_equilibrium_is_where_both_are_indifferent():
    payoffs = np.array([[[3.0, 0.0], [0.0, 2.0]], [[2.0, 0.0], [0.0, 3.0]]])
    game = Logistic(payoffs)
    np.testing.assert_allclose(show(game.equilibrium[None])[0], [0.6, 0.4], atol=1e-12)
    assert Logistic(payoffs, reach=0.1).equilibrium is None
    dilemma = np.array([[[3.0, 0.0], [5.0, 1.0]], [[3.0, 5.0], [0.0, 1.0]]])
    assert Logistic(dilemma).equilibrium is None


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Logistic(np.zeros((2, 2))), r"shape \(2, 2, 2\)"),
        (lambda: logistic(reach=0.0), "reach must be positive"),
        (lambda: Logistic(np.zeros((2, 2, 2)), labels=[["a"], ["b"]]), "two actions"),
        (lambda: show(np.zeros((3, 3))), "2 columns"),
        (lambda: pushed_field(logistic(), [[0.5, 1.5]]), "between 0 and 1"),
    ],
)
def test_bad_input(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
