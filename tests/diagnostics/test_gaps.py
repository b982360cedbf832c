"""Gaps against exploitability, closed forms and brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from hpml.diagnostics.gaps import linear_gap, minty_gap, natural_residual, spread, stampacchia_gap
from hpml.games.families.linear import Linear, rotation, saddle, swirl
from hpml.games.families.normal_form import NormalForm, bimatrix, matching_pennies, prisoners_dilemma
from hpml.games.game import evaluate, exploitability
from hpml.geometry.domain import Ball, Box, Space

CIRCLE = np.stack([np.cos(np.linspace(0, 6, 50)), np.sin(np.linspace(0, 6, 50))], 1)


def draw(domain, rng, count):
    return spread(domain, count - count // 3, count // 3, int(rng.integers(2**32)))


@given(seed=st.integers(0, 2**32 - 1), coordinates=st.sampled_from(["orthonormal", "dropped"]))
def test_on_normal_forms_the_gap_is_the_exploitability(seed, coordinates):
    """Each agent's payoff is linear in its own strategy, so that best replies are the linear maximiser's."""
    rng = np.random.default_rng(seed)
    game = NormalForm(rng.normal(size=(2, 3, 4)), coordinates=coordinates)
    X = draw(game.domain, rng, 20)
    np.testing.assert_allclose(stampacchia_gap(game, X), exploitability(game, X), atol=1e-6)


def test_the_gap_of_a_rotation_on_a_disc_is_its_length():
    """max_u <U(x), u - x> = |U(x)| - <U(x), x>, and the rotation is orthogonal to x."""
    X = 0.7 * CIRCLE
    np.testing.assert_allclose(stampacchia_gap(rotation(), X), 0.7, atol=1e-12)
    np.testing.assert_allclose(stampacchia_gap(swirl(2.0), X), 0.7 * np.sqrt(5.0) + 0.49, atol=1e-12)
    np.testing.assert_allclose(natural_residual(rotation(), X, step=0.1), 0.7, atol=1e-12)


@pytest.mark.parametrize("game", [matching_pennies(), prisoners_dilemma(), swirl(), saddle(2)])
def test_gaps_and_residual_vanish_together(game):
    rest = game.equilibrium[None]
    assert abs(stampacchia_gap(game, rest)[0]) < 1e-12
    assert natural_residual(game, rest)[0] < 1e-12
    away = draw(game.domain, np.random.default_rng(0), 60)
    away = away[np.linalg.norm(away - rest, axis=1) > 0.1]
    assert (stampacchia_gap(game, away) > 1e-3).all()
    assert (natural_residual(game, away, 0.5) > 1e-3).all()


def test_the_minty_gap_of_zero_sum_games_is_linear_and_equals_the_stampacchia_gap():
    """With a skew Jacobian <U(u) - U(x), u - x> = 0, so that the two maxima are of one function."""
    rng = np.random.default_rng(1)
    for game in (bimatrix(rng.normal(size=(2, 3))), rotation()):
        X = draw(game.domain, rng, 20)
        gap = minty_gap(game, X)
        assert gap.method == "linear"
        assert gap.exact
        np.testing.assert_allclose(gap.value, stampacchia_gap(game, X), atol=1e-10)


@pytest.mark.parametrize("domain", [Box([-1.0] * 3, [0.5, 1.0, 2.0]), Ball(np.array([0.2, 0.0, 0.1]))])
def test_the_minty_gap_of_monotone_games_is_solved_and_certified(domain):
    rng = np.random.default_rng(2)
    root, turn = rng.normal(size=(2, 3, 3))
    game = Linear(turn - turn.T - root @ np.diag([1.0, 0.3, 0.0]) @ root.T, domain)
    X = draw(domain, rng, 5)
    gap = minty_gap(game, X)
    assert gap.method == "concave"
    assert gap.exact
    assert (gap.value <= stampacchia_gap(game, X) + 1e-9).all()  # monotone: Minty is the smaller
    if isinstance(domain, Box):
        for x, value in zip(X, gap.value, strict=True):
            box = list(zip(domain.low, domain.high, strict=True))
            other = minimize(lambda u, x=x: -(game.matrix @ u) @ (u - x), x, bounds=box, options={"ftol": 1e-14})
            assert value == pytest.approx(-other.fun, abs=1e-6)


def test_the_minty_gap_elsewhere_is_a_lower_bound_and_says_so():
    """A convex quadratic on a box has its maximum at a corner: the search must find it and not call it exact."""
    rng = np.random.default_rng(3)
    root = rng.normal(size=(4, 4))
    game = Linear(root @ root.T, Box([-1.0] * 4, [1.0] * 4))
    X = draw(game.domain, rng, 6)
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=4)))
    best = [max(float((game.matrix @ u) @ (u - x)) for u in corners) for x in X]
    gap = minty_gap(game, X)
    assert gap.method == "search"
    assert not gap.exact
    np.testing.assert_allclose(gap.value, best, rtol=1e-6)


@settings(max_examples=4)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_search_beats_every_sampled_point_of_a_three_agent_game(seed):
    rng = np.random.default_rng(seed)
    game = NormalForm(rng.normal(size=(3, 2, 2, 2)))
    X, U = draw(game.domain, rng, 3), draw(game.domain, rng, 2000)
    sampled = np.einsum("ud,xud->xu", evaluate(game, U), U[None] - X[:, None]).max(1)
    gap = minty_gap(game, X)
    assert gap.method == "search"
    assert (gap.value >= sampled - 1e-9).all()


def test_linear_gap_takes_any_covectors():
    box = Box([0.0, 0.0], [1.0, 2.0])
    np.testing.assert_allclose(linear_gap(box, [[0.5, 0.5]], [[1.0, -1.0]]), [1.0])


def test_unbounded_domains_are_told():
    game = Linear(-np.eye(2), Space(2))
    for call in (stampacchia_gap, minty_gap):
        with pytest.raises(ValueError, match="bounded domain"):
            call(game, np.ones((1, 2)))
    assert natural_residual(game, np.array([[3.0, 4.0]]))[0] == pytest.approx(5.0)
    with pytest.raises(ValueError, match="step must be positive"):
        natural_residual(game, np.ones((1, 2)), 0.0)
