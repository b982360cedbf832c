"""One population: rock-paper-scissors is a pure rotation, hawk and dove have their known rest."""

import jax
import numpy as np
import pytest

from hpml.games.families.population import Population, hawk_dove, population_cycle
from hpml.games.game import evaluate, exploitability


@pytest.mark.parametrize("actions", [3, 5])
def test_a_cycle_is_a_rotation(actions):
    game = population_cycle(actions)
    J = evaluate(game, np.eye(game.domain.dimension)).T  # the field is linear
    np.testing.assert_allclose(J, -J.T, atol=1e-12)
    points = np.asarray(game.domain.sample(jax.random.key(0), 5), np.float64)
    np.testing.assert_allclose((points * evaluate(game, points)).sum(1), 0.0, atol=1e-12)


def test_hawks_and_doves_rest_where_both_earn_alike():
    game = hawk_dove(1.0, 4.0)
    np.testing.assert_allclose(game.strategies(game.equilibrium)[0], [0.25, 0.75], atol=1e-6)
    assert exploitability(game, game.equilibrium[None])[0] < 1e-12


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Population(np.ones((2, 3))), "square"),
        (lambda: Population(np.eye(3), labels=("a", "b")), "name 3 actions"),
        (lambda: hawk_dove(2.0, 1.0), "exceed"),
    ],
)
def test_what_is_no_population_game_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
