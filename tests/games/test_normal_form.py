"""Normal-form games: values by hand, one game in three coordinates, and bad input."""

import jax
import numpy as np
import pytest

from hpml.games.families.normal_form import NormalForm, bimatrix, matching_pennies, prisoners_dilemma
from hpml.games.game import evaluate, exploitability
from hpml.geometry.domain import tangent_basis

PAYOFFS = np.random.default_rng(0).normal(size=(3, 2, 3, 4))


def mixes(seed=0):
    rng = np.random.default_rng(seed)
    return [p / p.sum() for p in (rng.exponential(size=K) for K in (2, 3, 4))]


def test_action_values_are_expectations_over_the_others():
    game = NormalForm(PAYOFFS)
    p, q, r = mixes()
    values = game.action_values(game.point([p, q, r]))
    truth = [
        np.einsum("abc,b,c->a", PAYOFFS[0], q, r),
        np.einsum("abc,a,c->b", PAYOFFS[1], p, r),
        np.einsum("abc,a,b->c", PAYOFFS[2], p, q),
    ]
    for value, expected in zip(values, truth, strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-5)


def test_one_game_in_three_coordinates():
    """Payoff slopes q become B^T q, q_a - q_K and p (q - p.q); the exploitability does not depend on the choice."""
    games = {kind: NormalForm(PAYOFFS, coordinates=kind) for kind in ("orthonormal", "dropped", "logits")}
    p = mixes()
    fields = {kind: evaluate(game, game.point(p)[None])[0] for kind, game in games.items()}
    slopes = [
        tangent_basis(K) @ part for K, part in zip((2, 3, 4), np.split(fields["orthonormal"], [1, 3]), strict=True)
    ]
    dropped = np.concatenate([h[:-1] - h[-1] for h in slopes])
    np.testing.assert_allclose(fields["dropped"], dropped, atol=1e-12)
    logits = np.concatenate([x * (h - x @ h) for x, h in zip(p, slopes, strict=True)])
    np.testing.assert_allclose(fields["logits"], logits, atol=1e-12)
    gaps = [exploitability(game, game.point(p)[None])[0] for game in games.values()]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-12)


def test_points_and_strategies_are_inverse():
    for kind in ("orthonormal", "dropped", "logits"):
        game = NormalForm(PAYOFFS, coordinates=kind)
        with jax.enable_x64(True):
            parts = game.strategies(game.point(mixes(1)))
        for found, truth in zip(parts, mixes(1), strict=True):
            np.testing.assert_allclose(found, truth, atol=1e-12)


def test_what_an_agent_loses_by_its_mix():
    game = matching_pennies()
    assert exploitability(game, game.point([[1.0, 0.0], [1.0, 0.0]])[None])[0] == pytest.approx(2.0)
    dilemma = prisoners_dilemma()
    assert exploitability(dilemma, dilemma.point([[1.0, 0.0], [1.0, 0.0]])[None])[0] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: NormalForm(np.zeros((2, 3))), "payoffs must have shape"),
        (lambda: NormalForm(np.zeros((3, 2, 2))), "payoffs must have shape"),
        (lambda: NormalForm(np.zeros((2, 2, 1))), "at least two actions"),
        (lambda: NormalForm(3.0), "payoffs must have shape"),
        (lambda: NormalForm([[[1, 2], [3]], [[1, 2], [3, 4]]]), "array of numbers"),
        (lambda: NormalForm([[["a", "b"]] * 2] * 2), "array of numbers"),
        (lambda: NormalForm(np.full((2, 2, 2), np.inf)), "not finite"),
        (lambda: NormalForm(np.zeros((2, 2, 2)), labels=[["a", "b"]]), "labels must name"),
        (lambda: NormalForm(np.zeros((2, 2, 2)), coordinates="angles"), "coordinates must be"),
        (lambda: bimatrix(np.zeros((2, 3)), np.zeros((3, 2))), "one shape"),
        (lambda: bimatrix(np.zeros(3)), "matrices"),
        (lambda: matching_pennies().point([[0.5, 0.5]]), "one policy an agent"),
        (lambda: matching_pennies().point([[0.5, 0.6], [0.5, 0.5]]), "agent 1 must be non-negative and sum to 1"),
        (lambda: matching_pennies().point([[0.5, 0.5], [1.5, -0.5]]), "agent 2 must be non-negative and sum to 1"),
        (lambda: exploitability(matching_pennies(), np.ones((1, 2))), "outside the game's domain"),
    ],
)
def test_bad_input(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
