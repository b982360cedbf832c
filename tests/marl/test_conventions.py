"""Convention switches, counted by hand and by a plain loop."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.marl.conventions import count_switches, evaluation_switches, most_frequent

count = jax.jit(count_switches)
NONE = (-1, -1)


def one(*rows, ends=()):
    """One environment with these joint conventions, and the steps that end an episode."""
    convention = np.array(rows)[:, None]
    done = np.isin(np.arange(len(rows)), ends)[:, None]
    return convention, done


def loop(convention, done):
    """The definition, a step at a time: each player remembers the last interaction that it took part in."""
    interactions = pairs = switches = 0
    for e in range(convention.shape[1]):
        last: dict[int, int] = {}
        for t, row in enumerate(convention[:, e]):
            players = tuple(np.flatnonzero(row >= 0))
            if players:
                interactions += 1
                before = {last.get(i) for i in players}
                if len(before) == 1 and None not in before:
                    (s,) = before
                    if tuple(np.flatnonzero(convention[s, e] >= 0)) == players:
                        pairs += 1
                        switches += tuple(convention[s, e]) != tuple(row)
                last.update(dict.fromkeys(players, t))
            if done[t, e]:
                last = {}
    return interactions, pairs, switches


def test_by_hand():
    # Bach, Bach, nothing, Stravinsky | next episode: Stravinsky, Bach
    found = count(*one((0, 0), (0, 0), NONE, (1, 1), (1, 1), (0, 0), ends=[3]))
    assert tuple(map(int, found)) == (5, 3, 2)
    assert float(found.rate) == pytest.approx(2 / 3)


def test_one_players_change_is_a_change_of_the_joint_convention():
    assert tuple(map(int, count(*one((0, 0), (0, 1), (1, 1), (1, 1))))) == (4, 3, 2)


def test_only_the_same_players_are_compared():
    # 1 meets 2, 3 meets 4, 1 meets 2 again with another convention, 1 meets 3, 1 meets 2 again: not consecutive for 1.
    rows = [(0, 0, -1, -1), (-1, -1, 1, 1), (0, 1, -1, -1), (0, -1, 0, -1), (0, 1, -1, -1)]
    assert tuple(map(int, count(*one(*rows)))) == (5, 1, 1)


def test_without_pairs_there_is_no_rate():
    found = count(*one(NONE, (0, 1), NONE))
    assert tuple(map(int, found)) == (1, 0, 0)
    assert np.isnan(found.rate)
    assert np.isnan(count(*one((0, 0), (1, 1), ends=[0])).rate)


@given(st.integers(0, 10_000), st.integers(2, 4))
def test_the_array_form_is_the_loop(seed, agents):
    rng = np.random.default_rng(seed)
    convention = rng.integers(-1, 2, size=(12, 5, agents))
    convention[rng.random((12, 5)) < 0.3] = -1
    done = rng.random((12, 5)) < 0.15
    assert tuple(map(int, count(convention, done))) == loop(convention, done)


@given(st.integers(0, 10_000))
def test_names_and_order_of_environments_do_not_matter(seed):
    rng = np.random.default_rng(seed)
    convention, done = rng.integers(-1, 3, size=(12, 5, 3)), rng.random((12, 5)) < 0.15
    renamed = np.append(rng.permutation(3), -1)[convention]  # the entry at -1 stays -1
    shuffled = rng.permutation(5)
    assert tuple(map(int, count(renamed[:, shuffled], done[:, shuffled]))) == tuple(map(int, count(convention, done)))


@given(st.integers(0, 10_000))
def test_the_most_frequent_joint_convention(seed):
    rng = np.random.default_rng(seed)
    convention = rng.integers(-1, 2, size=(6, 5, 3))
    convention[rng.random((6, 5)) < rng.random()] = -1
    seen = [tuple(row) for row in convention.reshape(-1, 3).tolist() if max(row) >= 0]
    want = max(seen, key=lambda row: (seen.count(row), -seen.index(row)), default=(-1, -1, -1))
    assert tuple(np.asarray(jax.jit(most_frequent)(convention)).tolist()) == want


def test_evaluations_without_an_interaction_are_passed_over():
    found = jax.jit(evaluation_switches)(np.array([(0, 0), (0, 0), NONE, (1, 1), (1, 0), (1, 0)]))
    assert tuple(map(int, found)) == (5, 4, 2)
    assert float(found.rate) == 0.5
    assert np.isnan(evaluation_switches(np.array([(0, 0)])).rate)


def test_arrays_that_do_not_fit_get_a_sentence():
    with pytest.raises(ValueError, match=r"convention must be \(T, E, agents\)"):
        count_switches.__wrapped__(np.zeros((3, 2, 2), int), np.zeros((3, 3), bool))
