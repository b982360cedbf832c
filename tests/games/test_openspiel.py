"""Games both have: payoffs, Nash gaps and replicator fields agree with OpenSpiel."""

import builtins

import numpy as np
import pytest
import scipy.optimize

from hpml.catalogue import list_games
from hpml.games.families import openspiel
from hpml.games.families.cyclic import rock_paper_scissors
from hpml.games.families.normal_form import prisoners_dilemma
from hpml.games.game import evaluate, exploitability
from hpml.geometry.metric import Shahshahani

pyspiel = pytest.importorskip("pyspiel")
from open_spiel.python.algorithms import exploitability as theirs  # noqa: E402
from open_spiel.python.egt import dynamics  # noqa: E402
from open_spiel.python.policy import TabularPolicy  # noqa: E402

ONE_SHOT = ["matrix_rps", "matrix_pd", "matrix_bos", "matrix_brps", "matrix_shapleys_game", "blotto(coins=4,fields=3)"]
SEQUENTIAL = ["kuhn_poker", "tiny_hanabi", "goofspiel(num_cards=2,points_order=descending)"]


def mixtures(game, seed=0):
    rng = np.random.default_rng(seed)
    return [p / p.sum() for p in (rng.exponential(size=K) for K in game.sizes)]


@pytest.mark.parametrize("name", ONE_SHOT)
def test_payoffs_are_those_of_the_matrix_game(name):
    game, other = openspiel.load(name), pyspiel.extensive_to_matrix_game(pyspiel.load_game_as_turn_based(name))
    np.testing.assert_allclose(game.payoffs[0], other.row_utilities())
    np.testing.assert_allclose(game.payoffs[1], other.col_utilities())


def test_rock_paper_scissors_is_ours():
    game = openspiel.load("matrix_rps")
    np.testing.assert_array_equal(game.payoffs, rock_paper_scissors().payoffs)
    assert game.labels == (("Rock", "Paper", "Scissors"),) * 2
    assert openspiel.load("matching_pennies_3p").payoffs.shape == (3, 2, 2, 2)


@pytest.mark.parametrize("name", [*ONE_SHOT[:3], "blotto(coins=4,fields=3)", *SEQUENTIAL])
def test_nash_gaps_agree(name):
    tree, game = openspiel.GameTree(name), openspiel.load(name)
    mixes = mixtures(game)
    policy = TabularPolicy(tree.game)
    for i, mix in enumerate(mixes):
        for known, chances in tree.behaviour(i, mix).items():
            row = np.zeros(policy.action_probability_array.shape[1])
            row[list(chances)] = list(chances.values())
            policy.action_probability_array[policy.state_lookup[known]] = row
    ours = exploitability(game, game.point(mixes)[None])[0]
    assert ours == pytest.approx(theirs.nash_conv(tree.game, policy), abs=1e-6)
    assert ours > 0.01


@pytest.mark.parametrize("name", ["matrix_rps", "matrix_pd", "blotto(coins=4,fields=3)", "kuhn_poker"])
def test_softmax_gradients_are_the_replicator_field(name):
    """The gradient in logits is p (q - p.q); so is the metric gradient under the Fisher metric on the simplex."""
    logits, dropped = openspiel.load(name, "logits"), openspiel.load(name, "dropped")
    mixes = mixtures(logits, 1)
    replicator = dynamics.MultiPopulationDynamics(logits.payoffs, dynamics.replicator)(np.concatenate(mixes))
    np.testing.assert_allclose(evaluate(logits, logits.point(mixes)[None])[0], replicator, atol=1e-6)
    x = dropped.point(mixes)[None]
    natural = Shahshahani(dropped.sizes).raise_index(evaluate(dropped, x), x)[0]
    ends = np.cumsum(dropped.sizes) - 1
    np.testing.assert_allclose(natural, np.delete(replicator, ends), atol=1e-6)


def test_our_dilemma_follows_their_replicator_too():
    game = prisoners_dilemma(coordinates="logits")
    mixes = mixtures(game)
    replicator = dynamics.MultiPopulationDynamics(game.payoffs, dynamics.replicator)(np.concatenate(mixes))
    np.testing.assert_allclose(evaluate(game, game.point(mixes)[None])[0], replicator, atol=1e-6)


def test_kuhn_poker_in_plans():
    """The first agent bets, or passes and then folds or calls, with each of three cards; the game's value is -1/18."""
    game = openspiel.load("kuhn_poker")
    assert game.sizes == (27, 64)
    A = game.payoffs[0]
    np.testing.assert_allclose(game.payoffs[1], -A, atol=1e-15)
    cost = np.append(np.zeros(27), -1.0)
    answer = scipy.optimize.linprog(
        cost,
        A_ub=np.column_stack([-A.T, np.ones(64)]),
        b_ub=np.zeros(64),
        A_eq=np.append(np.ones(27), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * 27 + [(None, None)],
    )
    assert -answer.fun == pytest.approx(-1 / 18, abs=1e-9)
    assert any("0pb: Pass" in label for label in game.labels[0])


def test_a_game_made_by_hand_is_taken_too():
    A, B = np.random.default_rng(0).normal(size=(2, 3, 4))
    np.testing.assert_allclose(openspiel.load(pyspiel.create_matrix_game(A, B)).payoffs, [A, B])


def test_the_catalogue_shows_them():
    assert "kuhn_poker" in list_games()["openspiel"]


def test_without_the_package_there_is_one_sentence(monkeypatch):
    real = builtins.__import__

    def missing(name, *arguments, **options):
        if name == "pyspiel":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert openspiel.examples() == {}
    with pytest.raises(ValueError, match=r"pip install \"hpml\[openspiel\]\""):
        openspiel.load("matrix_rps")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nonsense", "no game 'nonsense'"),
        ("kuhn_poker(players=99)", "cannot load"),
        ("kuhn_poker(", "cannot load"),
        ("leduc_poker", r"plans, more than 4000000 profiles: take a smaller game"),
        ("phantom_ttt", "more than 10000 histories: take a smaller game"),
        ("nim(pile_sizes=1;1)", "no choice"),
        ("mfg_crowd_modelling", "no finite number of agents"),
        ("liars_dice_ir", "forget what they did"),
    ],
)
def test_bad_input(name, sentence, monkeypatch):
    monkeypatch.setattr(openspiel, "MOST_HISTORIES", 10_000)
    with pytest.raises(ValueError, match=sentence):
        openspiel.load(name)
