"""Conventions are found, named, and joined by a flow that gradients leave without loops (`rem:convention_graph`)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hpml
from hpml.diagnostics.conventions import (
    convention_graph,
    convention_loops,
    find_conventions,
    joint_conventions,
    neighbouring,
)
from hpml.games.families.normal_form import bimatrix
from hpml.games.game import evaluate

RPS = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
ACTIONS = ["rock", "paper", "scissors"]


def population(n=300, seed=0):
    """One population at rock-paper-scissors: p in the simplex, drawn to what beats it."""
    X = np.random.default_rng(seed).dirichlet(np.ones(3), size=n)
    F = X @ RPS.T
    return X, F - F.mean(1, keepdims=True)


@given(st.integers(3, 7), st.integers(0, 1000))
def test_separate_clusters_are_found_with_their_number(k, seed):
    rng = np.random.default_rng(seed)
    angles = 2 * np.pi * np.arange(k) / k
    centres = 10 * np.stack([np.cos(angles), np.sin(angles), np.zeros(k)], 1)
    truth = rng.permutation(np.repeat(np.arange(k), 20))
    found = find_conventions(centres[truth] + 0.3 * rng.normal(size=(len(truth), 3)))
    assert found.count == k
    assert len({(a, b) for a, b in zip(truth, found.member, strict=True)}) == k
    assert found.clustered
    assert len(set(found.names)) == k


def test_a_cloud_is_said_to_be_a_cloud():
    found = find_conventions(np.random.default_rng(0).normal(size=(500, 2)))
    assert 3 <= found.count <= 12
    assert not found.clustered
    assert found.mass.sum() == pytest.approx(1.0)


def test_conventions_are_named_by_labels_or_by_what_is_typical():
    X, _ = population()
    labels = np.array(ACTIONS)[X.argmax(1)]
    found = find_conventions(X, labels=labels)
    assert set(found.names) == set(ACTIONS)
    assert all(found.names[a] == label for a, label in zip(found.member, labels, strict=True))
    typical = find_conventions(X, count=3, names=ACTIONS)
    assert set(typical.names) == {"rock high", "paper high", "scissors high"}
    agree = [typical.names[a].split()[0] == label for a, label in zip(typical.member, labels, strict=True)]
    assert np.mean(agree) > 0.9
    assert find_conventions(np.random.default_rng(0).normal(size=(30, 100)), count=3).names == ("A", "B", "C")


def test_too_many_labels_name_clusters_by_their_commonest():
    centres = np.repeat([[0.0, 0], [9, 0], [0, 9]], 20, 0)
    X = centres + np.random.default_rng(0).normal(size=centres.shape)
    labels = [f"rare {i}" for i in range(60)]
    labels[0:5], labels[20:25], labels[40:45] = ["rock"] * 5, ["paper"] * 5, ["rock"] * 5
    found = find_conventions(X, labels=labels)
    assert found.origin == "clusters"
    assert {name.split(" (")[0] for name in found.names} == {"rock", "paper"}
    assert len(set(found.names)) == found.count == 3


@given(st.integers(0, 1000), st.integers(2, 5))
def test_a_linear_gradient_has_no_cyclic_flow_between_conventions(seed, d):
    rng = np.random.default_rng(seed)
    X, H = rng.normal(size=(80, d)), rng.normal(size=(d, d))
    found = find_conventions(X, count=5)
    graph = convention_graph(found, X, X @ (H + H.T) + rng.normal(size=d))
    assert graph.nonpotentiality < 1e-20
    assert find_conventions(X, count=5).names == found.names
    # With the potential apart, any gradient has none, however curved: the residual alone can cycle.
    wild = convention_graph(found, X, np.zeros_like(X), potential=np.sin(7 * X).sum(1))
    assert wild.nonpotentiality < 1e-20
    assert np.abs(wild.flow.omega).max() > 0


def test_the_population_game_turns_rock_paper_scissors():
    X, F = population()
    found = joint_conventions(X, [X], [ACTIONS])
    (loop,) = convention_loops(found, convention_graph(found, X, F), X, F)
    assert loop.text == "rock → paper → scissors, 100 % of the circulation"
    assert loop.certain
    (back,) = convention_loops(found, convention_graph(found, X, -F), X, -F)
    assert back.names == ("rock", "scissors", "paper")


def test_the_graph_projector_finds_the_same_loop():
    X, F = population()
    split = hpml.project(X, F, hpml.GraphProjector())
    found = find_conventions(X, labels=np.array(ACTIONS)[X.argmax(1)])
    loops = convention_loops(
        found, convention_graph(found, X, split.residual, split.potential), X, np.asarray(split.residual)
    )
    assert set(zip(loops[0].names, loops[0].names[1:] + loops[0].names[:1], strict=True)) == {
        ("rock", "paper"),
        ("paper", "scissors"),
        ("scissors", "rock"),
    }


def test_two_agents_chase_each_other_around_six_profiles():
    game = bimatrix(RPS, labels=[ACTIONS, ACTIONS], equilibrium=[[1 / 3] * 3] * 2)
    points = np.asarray(game.domain.reduce([np.repeat(np.eye(3), 3, 0), np.tile(np.eye(3), (3, 1))]), float)
    strategies = [np.asarray(p) for p in game.strategies(points)]
    found = joint_conventions(points, strategies, game.labels)
    assert found.count == 9
    assert len(neighbouring(found)) == 18
    field = evaluate(game, points)
    loops = convention_loops(found, convention_graph(found, points, field), points, field)
    assert loops[0].share == pytest.approx(2 / 3)
    assert len(loops[0].nodes) == 6
    assert loops[0].error == float("inf")  # one sample a convention says nothing of its spread


def test_neighbours_around_a_ring_are_the_ring():
    angles = 2 * np.pi * np.arange(6) / 6
    ring = np.stack([np.cos(angles), np.sin(angles)], 1)
    found = find_conventions(np.repeat(ring, 2, 0), labels=np.repeat(np.arange(6), 2))
    edges = {tuple(edge) for edge in neighbouring(found).tolist()}
    assert edges == {(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)}


def test_the_error_of_a_circulation_is_its_spread_over_repeated_noise():
    rng = np.random.default_rng(0)
    X = np.repeat(np.array([[0.0, 0], [2, 0], [2, 1], [0, 1]]), 40, 0)
    J = np.array([[0.0, -1], [1, 0]])
    found = find_conventions(X, labels=np.repeat(np.arange(4), 40))
    values, errors = [], []
    for _ in range(200):
        F = X @ J.T + 0.5 * rng.normal(size=X.shape)
        (loop,) = convention_loops(found, convention_graph(found, X, F), X, F)
        values.append(loop.circulation)
        errors.append(loop.error)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.15)
    assert np.mean(values) == pytest.approx(4.0, abs=0.1)  # twice the rectangle's area


def test_bad_input_is_said():
    X, F = population(20)
    with pytest.raises(ValueError, match="one entry for each of the 20"):
        find_conventions(X, labels=["a"])
    with pytest.raises(ValueError, match="count must be between"):
        find_conventions(X, count=21)
    with pytest.raises(ValueError, match="row for each"):
        joint_conventions(X, [X[:5]], [ACTIONS])
    two = find_conventions(X, count=2)
    assert convention_loops(two, convention_graph(two, X, F), X, F) == ()
