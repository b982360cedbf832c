"""Cyclic games: who beats whom, where they rest, and the pull to a target."""

import jax
import numpy as np
import pytest

from hpml.games.families.cyclic import (
    PulledCycle,
    cyclic,
    pulled_cycle,
    rock_paper_scissors,
    weighted_rock_paper_scissors,
)
from hpml.games.families.normal_form import prisoners_dilemma
from hpml.games.game import evaluate, exploitability
from hpml.geometry.arrays import in_double


def test_paper_beats_rock_beats_scissors_beat_paper():
    game = rock_paper_scissors()
    u = game.payoffs[0]
    name = {label: k for k, label in enumerate(game.labels[0])}
    for winner, loser in [("paper", "rock"), ("scissors", "paper"), ("rock", "scissors")]:
        assert u[name[winner], name[loser]] == 1.0
        assert u[name[loser], name[winner]] == -1.0


def test_five_actions_have_the_names_of_the_known_game():
    game = cyclic(5)
    wins = {
        (a, b) for i, a in enumerate(game.labels[0]) for j, b in enumerate(game.labels[0]) if game.payoffs[0, i, j] > 0
    }
    assert {("spock", "rock"), ("lizard", "spock"), ("scissors", "lizard"), ("rock", "lizard")} < wins
    assert len(wins) == 10


@pytest.mark.parametrize("K", [3, 4, 5, 6, 7])
def test_each_action_wins_as_often_as_it_loses(K):
    A = cyclic(K).payoffs[0]
    np.testing.assert_array_equal(A, -A.T)
    np.testing.assert_array_equal(A.sum(0), 0.0)
    np.testing.assert_array_equal(np.roll(A, (1, 1), (0, 1)), A)
    assert (A[0] > 0).sum() == (K - 1) // 2
    ties = (A[0] == 0).sum()
    assert ties == (1 if K % 2 else 2)
    assert ((cyclic(K, reach=1).payoffs[0] > 0).sum(1) == 1).all()


def test_zero_sum_rock_paper_scissors_only_turns():
    """In orthonormal coordinates its field is linear and antisymmetric, and straight steps move outwards."""
    game = rock_paper_scissors()
    J = in_double(lambda game, x: jax.jacfwd(game.field)(x))(game, np.zeros(4))
    np.testing.assert_allclose(J, -J.T, atol=1e-12)
    x = 0.1 * np.ones((1, 4))
    F = evaluate(game, x)
    assert abs((x * F).sum()) < 1e-12
    assert np.linalg.norm(x + 0.1 * F) > np.linalg.norm(x)


def test_the_pull_rests_at_the_target_where_the_cycle_rests_there_too():
    game = pulled_cycle()
    np.testing.assert_allclose(game.equilibrium, game.optimum, atol=1e-14)
    mix = np.array([2.0, 3.0, 1.0]) / 6
    weighted = PulledCycle(weighted_rock_paper_scissors(), [mix, mix], pull=0.1)
    np.testing.assert_allclose(weighted.equilibrium, weighted.optimum, atol=1e-13)


@pytest.mark.parametrize("turn", [0.0, 1.0, 20.0])
@pytest.mark.parametrize("target", [(0.6, 0.3, 0.1), (1.0, 0.0, 0.0)])
def test_the_equilibrium_of_a_pull_aside_is_solved_to_rounding(target, turn):
    game = pulled_cycle(target, pull=0.5, turn=turn)
    assert exploitability(game, game.equilibrium[None])[0] < 1e-10
    distance = np.linalg.norm(game.equilibrium - game.optimum)
    assert (distance < 1e-12) == (turn == 0.0)


def test_long_straight_steps_leave_a_pulled_cycle_and_short_ones_do_not():
    pull, turn = 0.7, 1.3
    game = pulled_cycle(pull=pull, turn=turn)
    J = in_double(lambda game, x: jax.jacfwd(game.field)(x))(game, np.zeros(4))
    values = np.linalg.eigvals(J)
    np.testing.assert_allclose(values.real, -pull, atol=1e-12)
    np.testing.assert_allclose(np.abs(values.imag), np.sqrt(3) * turn, atol=1e-12)
    edge = 2 * pull / (pull**2 + 3 * turn**2)
    for step, leaves in [(0.99 * edge, False), (1.01 * edge, True)]:
        assert (np.abs(1 + step * values).max() > 1.0) == leaves


def test_the_potential_term_is_what_remains_without_the_cycle():
    game = pulled_cycle((0.6, 0.3, 0.1), pull=0.5, turn=0.0)
    X = np.asarray(game.domain.sample(jax.random.key(0), 5), np.float64)
    np.testing.assert_allclose(evaluate(game, X), -0.5 * (X - game.optimum), atol=1e-12)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: cyclic(2), "at least three actions"),
        (lambda: cyclic(5, reach=3), "between 1 and 2"),
        (lambda: rock_paper_scissors(win=0.0), "must be positive"),
        (lambda: weighted_rock_paper_scissors([1.0, 2.0]), "three positive numbers"),
        (lambda: pulled_cycle((0.5, 0.6, 0.1)), "sum to 1"),
        (lambda: pulled_cycle((0.5, 0.5)), "one policy an agent"),
        (lambda: pulled_cycle(pull=0.0), "pull must be positive"),
        (lambda: PulledCycle(prisoners_dilemma(), [[0.5, 0.5]] * 2), "zero-sum"),
        (lambda: rock_paper_scissors(coordinates="polar"), "coordinates must be"),
        (lambda: rock_paper_scissors().point([[1.0, 0.0, 0.0], [0.7, 0.7, -0.4]]), "non-negative and sum to 1"),
        (lambda: exploitability(rock_paper_scissors(), 3 * np.ones((1, 4))), "outside the game's domain"),
    ],
)
def test_bad_input(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
