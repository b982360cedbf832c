"""Finite Markov games: exact returns, gradients and best replies; a game with a cyclic equilibrium; bad input."""

import itertools

import jax
import numpy as np
import pytest

from hpml.games.families.markov import NOSDE_CYCLE, MarkovGame, nosde, random_markov
from hpml.games.families.normal_form import NormalForm
from hpml.games.game import evaluate, exploitability
from hpml.geometry.arrays import in_double

RNG = np.random.default_rng(0)
GAME = random_markov(4, (2, 3, 2), 0.9, seed=1)


@in_double
def returns(game, points):
    return jax.vmap(game.returns)(points)


def random_policies(game, seed=0):
    rng = np.random.default_rng(seed)
    tables = [rng.exponential(size=(game.policies.states, K)) for K in game.policies.actions]
    return [p / p.sum(-1, keepdims=True) for p in tables]


def simulate(game, policies, length=400):
    """The returns by following the law of the state, one step after the other."""
    n = len(policies)
    letters = "abc"[:n]
    weights = ",".join("s" + k for k in letters)
    P = np.einsum(f"{weights},s{letters}t->st", *policies, game.transitions)
    r = np.einsum(f"{weights},is{letters}->is", *policies, game.rewards)
    law, total = game.initial, np.zeros(len(r))
    for t in range(length):
        total += game.discount**t * (r @ law)
        law = law @ P
    return total


def test_returns_are_discounted_sums_of_rewards():
    policies = random_policies(GAME)
    np.testing.assert_allclose(returns(GAME, GAME.point(policies)[None])[0], simulate(GAME, policies), atol=1e-10)


@pytest.mark.parametrize("coordinates", ["orthonormal", "dropped", "logits"])
def test_gradients_agree_with_finite_differences(coordinates):
    game = random_markov(3, (2, 3), 0.9, seed=2, coordinates=coordinates)
    x = game.point(random_policies(game))
    F, h = evaluate(game, x[None])[0], 1e-5
    probes = np.concatenate([x + h * np.eye(len(x)), x - h * np.eye(len(x))])
    up, down = np.split(returns(game, probes), 2)
    slopes = (up - down) / (2 * h)
    agent = np.repeat(np.arange(2), game.blocks)
    np.testing.assert_allclose(F, slopes[np.arange(len(x)), agent], atol=1e-5 * np.abs(F).max())


def test_one_state_is_the_matrix_game_played_for_ever():
    u = RNG.normal(size=(2, 3, 2))
    stage = NormalForm(u)
    game = MarkovGame(np.ones((1, 3, 2, 1)), u[:, None], discount=0.75)
    X = np.asarray(stage.domain.sample(jax.random.key(0), 4), np.float64)
    np.testing.assert_allclose(evaluate(game, X), 4 * evaluate(stage, X), atol=1e-10)
    np.testing.assert_allclose(exploitability(game, X), 4 * exploitability(stage, X), atol=1e-10)


def test_regrets_are_those_of_the_best_deterministic_reply():
    """Among all of them, since some deterministic stationary policy is a best reply."""
    game = random_markov(3, (2, 2), 0.9, seed=4)
    policies = random_policies(game, 1)
    base = simulate(game, policies)
    truth = []
    for i in range(2):
        replies = []
        for choice in itertools.product(range(2), repeat=3):
            other = list(policies)
            other[i] = np.eye(2)[list(choice)]
            replies.append(simulate(game, other)[i])
        truth.append(max(replies) - base[i])
    assert exploitability(game, game.point(policies)[None])[0] == pytest.approx(sum(truth), abs=1e-10)


def test_nosde_has_no_deterministic_stationary_equilibrium():
    game = nosde()
    pure = [np.eye(2)[[a, 0]] for a in range(2)], [np.eye(2)[[0, b]] for b in range(2)]
    points = np.stack([game.point([p, q]) for p in pure[0] for q in pure[1]])
    assert (exploitability(game, points) > 0.1).all()


def test_nosde_has_one_stationary_equilibrium():
    """The regret of the agents in control has one zero on a grid of what they do: at (2/3, 5/12)."""
    game = nosde()
    grid = np.linspace(0, 1, 13)
    sends = np.array([(x, y) for x in grid for y in grid])
    even = [0.5, 0.5]
    points = np.stack([game.point([[[1 - x, x], even], [even, [1 - y, y]]]) for x, y in sends])
    gaps = exploitability(game, points)
    order = np.argsort(gaps)
    np.testing.assert_allclose(sends[order[0]], [2 / 3, 5 / 12])
    assert gaps[order[0]] < 1e-10
    assert gaps[order[1]] > 1e-3


def is_cyclic_equilibrium(game, cycle):
    """No agent in control gains by one deviation at any time, which suffices with discounting."""
    T, gamma = len(cycle), game.discount

    def outcome(state, action):
        at = (state, action, 0) if state == 0 else (state, 0, action)
        return game.rewards[(slice(None), *at)], game.transitions[at].argmax()

    system, gains = np.eye(2 * T), np.zeros((2 * T, 2))
    for t, s in itertools.product(range(T), range(2)):
        gains[2 * t + s], after = outcome(s, cycle[t][s])
        system[2 * t + s, 2 * ((t + 1) % T) + after] -= gamma
    V = np.linalg.solve(system, gains).reshape(T, 2, 2)
    for t, s in itertools.product(range(T), range(2)):
        reward, after = outcome(s, 1 - cycle[t][s])
        if reward[s] + gamma * V[(t + 1) % T, after, s] > V[t, s, s] + 1e-9:
            return False
    return True


def test_nosde_has_a_cyclic_equilibrium_and_no_shorter_one():
    game = nosde()
    assert is_cyclic_equilibrium(game, NOSDE_CYCLE)
    assert not is_cyclic_equilibrium(game, NOSDE_CYCLE[::-1])
    policies = list(itertools.product(range(2), repeat=2))
    for T in range(1, 5):
        assert not any(is_cyclic_equilibrium(game, cycle) for cycle in itertools.product(policies, repeat=T))


def test_a_shared_reward_is_shared():
    game = random_markov(shared=True, actions=(2, 2, 2))
    J = returns(game, np.zeros((1, game.domain.dimension)))[0]
    np.testing.assert_allclose(J, J[0])
    assert np.ptp(returns(random_markov(), np.zeros((1, 6)))[0]) > 1e-3


P, R = GAME.transitions, GAME.rewards


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: MarkovGame(P, R, 1.0), "strictly between 0 and 1"),
        (lambda: MarkovGame(P, R, 0.0), "strictly between 0 and 1"),
        (lambda: MarkovGame(P, R, float("nan")), "strictly between 0 and 1"),
        (lambda: MarkovGame(P, R, -0.5), "strictly between 0 and 1"),
        (lambda: MarkovGame(0.9 * P, R, 0.9), "sum to 1"),
        (lambda: MarkovGame(2 * P - 1 / 4, R, 0.9), "non-negative"),
        (lambda: MarkovGame(P[:, :, :, 0], R, 0.9), "transitions must have shape"),
        (lambda: MarkovGame(P, R[:2], 0.9), "rewards must have shape"),
        (lambda: MarkovGame(P, R[0, 0, 0, 0], 0.9), "rewards must have shape"),
        (lambda: MarkovGame(P, np.where(R > 1, np.nan, R), 0.9), "not finite"),
        (lambda: MarkovGame(P, R, 0.9, initial=[0.5, 0.5]), "each of 4 states"),
        (lambda: MarkovGame(P, R, 0.9, initial=np.ones(4)), "first state must be non-negative and sum to 1"),
        (lambda: MarkovGame(P, R, 0.9, coordinates="angles"), "coordinates must be"),
        (lambda: MarkovGame(P, R, 0.9, labels=[["a", "b"]] * 3), "labels must name"),
        (
            lambda: GAME.point([np.full((4, K), 0.7) for K in (2, 3, 2)]),
            "agent 1 must be non-negative and sum",
        ),
        (lambda: GAME.point([np.full((4, 2), 0.5)]), "Give one policy an agent"),
        (lambda: exploitability(GAME, np.full((1, GAME.domain.dimension), 2.0)), "outside the game's domain"),
    ],
)
def test_bad_input(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
