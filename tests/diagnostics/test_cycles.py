"""Loops of a cyclic flow: known ones are found, and their shares are a split of the energy (`rem:convention_graph`)."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.diagnostics.cycles import find_loops, fundamental_cycles
from hpml.projection.discrete.flow import split_flow
from hpml.projection.discrete.graph import make_graph
from hpml.projection.discrete.poisson import solve_poisson


def flow_of(edges, omega, count, weights=None):
    """The flow on edges that may be given in either direction."""
    E, omega = np.asarray(edges), np.asarray(omega, float)
    omega = np.where(E[:, 0] < E[:, 1], omega, -omega)
    graph = make_graph(E, np.ones(len(E)) if weights is None else weights, count)
    return split_flow(graph, omega, np.asarray(solve_poisson(graph, omega).potential))


def around(nodes):
    return [(a, b) for a, b in zip(nodes, [*nodes[1:], nodes[0]], strict=True)]


def complete(K):
    return np.stack(np.triu_indices(K, 1), 1)


@st.composite
def flows(draw):
    seed, n = draw(st.integers(0, 10_000)), draw(st.integers(3, 9))
    rng = np.random.default_rng(seed)
    edges = complete(n)
    edges = edges[rng.random(len(edges)) < draw(st.sampled_from([0.5, 0.8, 1.0]))]
    if not len(edges):
        edges = np.array([[0, 1]])
    return flow_of(edges, rng.normal(size=len(edges)), n, rng.uniform(0.2, 3.0, len(edges)))


@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_loops_in_any_units(unit):
    edges = around([0, 1, 2]) + around([3, 6, 4, 5])
    plain, scaled = (find_loops(flow_of(edges, [3.0 * u] * 3 + [u] * 4, 7)) for u in (1.0, unit))
    assert [loop.nodes for loop in scaled] == [loop.nodes for loop in plain]
    np.testing.assert_allclose([loop.share for loop in scaled], [loop.share for loop in plain])
    np.testing.assert_allclose([loop.circulation / unit for loop in scaled], [loop.circulation for loop in plain])


def test_two_separate_loops_have_their_energies():
    flow = flow_of(around([0, 1, 2]) + around([3, 6, 4, 5]), [3.0] * 3 + [1.0] * 4, 7)
    first, second = find_loops(flow, names=["rock", "paper", "scissors", "a", "b", "c", "d"])
    assert first.names == ("rock", "paper", "scissors")
    assert second.nodes == (3, 6, 4, 5)
    assert first.share == pytest.approx(27 / 31)
    assert second.share == pytest.approx(4 / 31)
    assert first.text == "rock → paper → scissors, 87 % of the circulation"


def test_a_gradient_does_not_hide_the_loop_and_the_loop_turns_with_the_sign():
    rng = np.random.default_rng(0)
    edges, phi = complete(5), rng.normal(size=5)
    rise = phi[edges[:, 1]] - phi[edges[:, 0]]
    assert find_loops(flow_of(edges, 100 * rise, 5)) == ()
    turn = np.zeros(len(edges))
    for a, b in around([0, 3, 1]):
        turn += np.where((edges == sorted((a, b))).all(1), 1.0 if a < b else -1.0, 0.0)
    (loop,) = find_loops(flow_of(edges, 100 * rise + turn, 5))
    assert loop.nodes == (0, 3, 1)
    (back,) = find_loops(flow_of(edges, 100 * rise - turn, 5))
    assert back.nodes == (0, 1, 3)
    assert back.circulation == pytest.approx(3.0)


@given(flows())
def test_loops_add_up_to_the_flow_and_shares_to_one(flow):
    loops = find_loops(flow)
    carried = flow.weights * flow.cyclic
    if flow.cycle_rank == 0:
        assert loops == ()
        return
    place = {tuple(edge): e for e, edge in enumerate(flow.edges.tolist())}
    total = np.zeros(len(carried))
    for loop in loops:
        for a, b in around(list(loop.nodes)):
            forward = (a, b) in place
            e = place[a, b] if forward else place[b, a]
            total[e] += loop.strength if forward else -loop.strength
            assert flow.cyclic[e] * (1 if forward else -1) > 0
    np.testing.assert_allclose(total, carried, atol=1e-6 * np.abs(carried).max())
    shares = [loop.share for loop in loops]
    assert sum(shares) == pytest.approx(1.0, abs=1e-6)
    assert shares == sorted(shares, reverse=True)
    assert min(shares) > 0
    assert len(loops) <= flow.cycle_rank


@given(flows())
def test_fundamental_cycles_are_a_basis_of_the_cycle_space(flow):
    carried = flow.weights * flow.cyclic
    chords, loops = fundamental_cycles(flow.edges, np.abs(carried), len(flow.node_potential))
    graph = nx.Graph(flow.edges.tolist())
    assert len(chords) == len(nx.cycle_basis(graph)) == flow.cycle_rank
    np.testing.assert_allclose(carried[chords] @ loops, carried, atol=1e-8)
    tail, head = flow.edges.T
    divergence = [np.bincount(head, row, 10) - np.bincount(tail, row, 10) for row in loops]
    assert not np.any(divergence)


@pytest.mark.parametrize("K", [3, 4, 7])
def test_a_cyclic_game_has_one_loop_through_all_its_actions(K):
    # Each action beats the one before it: the flow goes from a strategy to the one that beats it.
    edges = complete(K)
    payoff = np.zeros((K, K))
    for a in range(K):
        payoff[(a + 1) % K, a], payoff[a, (a + 1) % K] = 1.0, -1.0
    (loop,) = find_loops(flow_of(edges, payoff[edges[:, 1], edges[:, 0]], K))
    assert loop.nodes == tuple(range(K))
    assert loop.share == pytest.approx(1.0)


def test_two_agents_at_rock_paper_scissors_chase_each_other_around_six_profiles():
    A = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    names = [f"{a}{b}" for a in "RPS" for b in "RPS"]
    edges, omega = [], []
    for i, j in complete(9):
        (a, b), (c, d) = divmod(i, 3), divmod(j, 3)
        if a == c or b == d:
            edges.append((i, j))
            omega.append(A[c, b] - A[a, b] if b == d else -A[a, d] + A[a, b])
    loops = find_loops(flow_of(edges, omega, 9), names)
    # Payoff steps are 1, 1 and 2 on each side; the steps of 2 are best replies and form one loop: 6 * 4 of 36.
    assert loops[0].names == ("RP", "SP", "SR", "PR", "PS", "RS")
    assert loops[0].share == pytest.approx(24 / 36)


def test_what_is_no_cyclic_flow_is_refused():
    flow = flow_of(around([0, 1, 2]), [1.0, 1, 1], 3)
    with pytest.raises(ValueError, match="name the 3 nodes"):
        find_loops(flow, names=["a"])
    broken = flow_of(around([0, 1, 2]), [1.0, 1, 1], 3).__class__(
        flow.edges, flow.weights, flow.omega, flow.potential, np.array([1.0, 0, 0]), flow.node_potential, 1
    )
    with pytest.raises(ValueError, match="does not balance"):
        find_loops(broken)
    many = np.arange(500)
    with pytest.raises(ValueError, match="group the samples"):
        find_loops(flow_of(np.stack([many[:-1], many[1:]], 1), np.ones(499), 500))
