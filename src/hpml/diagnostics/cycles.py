"""Loops that carry a cyclic flow, ranked by their energy (`rem:convention_graph`, `rem:graph_cycle_space`).

A cyclic flow c is orthogonal to gradients in W, so what it carries, f = W c, flows into a node as much as out of it.
Such a flow is a sum of loops, f = sum_l s_l g_l with s_l > 0, in which every loop g_l runs along f on each of its
edges. The energy is then a sum over loops as well, and no term is negative:

    |c|_W^2 = <c, f> = sum_l s_l <c, g_l>,    <c, g_l> = the circulation of c around the loop > 0.

A loop's share is its term over the sum: the shares add up to one. Each loop uses up an edge, so the loops are
independent, part of a cycle basis, and at most m - n + c of them are needed. Which loops is a choice: the widest first,
the shortest among equals, so that few loops carry much.
"""

from typing import Any

import equinox as eqx
import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from scipy.sparse.csgraph import connected_components, depth_first_order, minimum_spanning_tree, shortest_path

from hpml.geometry.arrays import Array
from hpml.projection.discrete.flow import EdgeFlow
from hpml.projection.discrete.scale import power_of_two

NODES = 400  # beyond this loops are too many to read and take too long to find: group the samples first
ROUNDING = 1e-9  # what is carried below this share of the most is rounding
UNBALANCED = 1e-5  # a flow that leaves more than this at a node is not cyclic


class Loop(eqx.Module):
    """A loop that carries part of a cyclic flow, its nodes in the order of the flow.

    - `share` of the cyclic flow's energy, in [0, 1]; the shares of all loops of a flow sum to one.
    - `strength`: s, how much flows around it. `circulation`: the sum of the flow along its edges, positive.
    - `error`: one standard error of the circulation from the sampling, None where it is not known.
    """

    nodes: tuple[int, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    share: float
    strength: float
    circulation: float
    error: float | None = None

    @property
    def certain(self) -> bool:
        """Whether the circulation is more than two standard errors from zero; True where the error is not known."""
        return self.error is None or self.circulation > 2.0 * self.error

    @property
    def text(self) -> str:
        """Such as "rock → paper → scissors, 71 % of the circulation"."""
        return f"{' → '.join(self.names)}, {100.0 * self.share:.0f} % of the circulation"


def find_loops(flow: EdgeFlow, names: Any = None, limit: int | None = None) -> tuple[Loop, ...]:
    """The loops of the flow's cyclic part, the largest share first; `names` are the nodes', `limit` keeps the first."""
    unit, unit_weight = power_of_two(flow.omega), power_of_two(flow.weights)  # squares of others may leave float64
    edges, weights = np.asarray(flow.edges), np.asarray(flow.weights) / unit_weight
    cyclic = np.asarray(flow.cyclic, np.float64) / unit
    count = len(flow.node_potential)
    if count > NODES:
        raise ValueError(
            f"Loops of a graph with {count} nodes are too many to read: group the samples into at most {NODES} "
            "conventions first (find_conventions)."
        )
    labels = [str(i) for i in range(count)] if names is None else [str(name) for name in names]
    if len(labels) != count:
        raise ValueError(f"names must name the {count} nodes, got {len(labels)}.")
    # Without any energy, 0 <= 0 below: no loop.
    carried = weights * cyclic
    energy = float(carried @ cyclic)
    whole = float(weights @ (np.asarray(flow.omega) / unit) ** 2)
    if not energy > ROUNDING**2 * whole:
        return ()
    _check_balance(edges, carried, count)

    backward = carried < 0
    tail, head = np.where(backward, edges[:, 1], edges[:, 0]), np.where(backward, edges[:, 0], edges[:, 1])
    left, size = np.abs(carried), np.abs(cyclic)
    floor = ROUNDING * float(left.max())
    loops = []
    while (widest := _widest_loop(tail, head, np.where(left > floor, left, 0.0), size, count)) is not None:
        strength = float(left[widest].min())
        left[widest] -= strength
        left[widest[np.argmin(left[widest])]] = 0.0
        circulation = float(size[widest].sum())
        nodes = _start_low(tuple(int(i) for i in tail[widest]))
        found = tuple(labels[i] for i in nodes)
        share = strength * circulation / energy
        loops.append(Loop(nodes, found, share, strength * unit * unit_weight, circulation * unit))
    return tuple(sorted(loops, key=lambda loop: -loop.share))[:limit]


def _start_low(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """The loop from its smallest node on, so that one loop has one name."""
    first = nodes.index(min(nodes))
    return nodes[first:] + nodes[:first]


def _check_balance(edges: np.ndarray, carried: np.ndarray, count: int) -> None:
    surplus = np.bincount(edges[:, 1], carried, count) - np.bincount(edges[:, 0], carried, count)
    if np.abs(surplus).max() > UNBALANCED * np.abs(carried).sum():
        raise ValueError("The flow's cyclic part does not balance at its nodes: split the flow with split_flow first.")


def _widest_loop(
    tail: np.ndarray, head: np.ndarray, left: np.ndarray, size: np.ndarray, count: int
) -> np.ndarray | None:
    """The edges, in order, of the loop whose narrowest edge is widest; the shortest, then largest, of such loops."""
    widths = np.unique(left[left > 0])

    def parts(width: float) -> np.ndarray:
        wide = left >= width
        graph = sp.coo_array((np.ones(wide.sum()), (tail[wide], head[wide])), shape=(count, count))
        return connected_components(graph.tocsr(), directed=True, connection="strong")[1]

    def has_loop(width: float) -> bool:
        return int(parts(width).max()) + 1 < count

    if not len(widths) or not has_loop(widths[0]):
        return None
    low, high = 0, len(widths)  # a loop is open at widths[low], none at widths[high]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if has_loop(widths[middle]) else (low, middle)
    part = parts(widths[low])
    inside = np.flatnonzero((left >= widths[low]) & (part[tail] == part[head]))
    graph = sp.coo_array((np.ones(len(inside)), (tail[inside], head[inside])), shape=(count, count)).tocsr()
    steps, before = shortest_path(graph, directed=True, unweighted=True, return_predecessors=True)
    # An edge closes a loop with the shortest way back from its head to its tail.
    back = steps[head[inside], tail[inside]]
    shortest = inside[back == back.min()]
    closing = shortest[np.argmax(size[shortest])]
    nodes = [int(tail[closing])]
    while nodes[-1] != head[closing]:
        nodes.append(int(before[head[closing], nodes[-1]]))
    nodes.reverse()  # head, ..., tail, and back to the head
    number = {(int(tail[e]), int(head[e])): int(e) for e in inside}
    return np.array([number[i, j] for i, j in zip(nodes, nodes[1:] + nodes[:1], strict=True)])


def fundamental_cycles(
    edges: Int[Array, "m 2"], size: Float[Array, " m"], count: int
) -> tuple[Int[np.ndarray, " r"], Float[np.ndarray, "r m"]]:
    """The cycle basis of the spanning tree with the largest edges, as the paper has it.

    Returns the edges outside the tree and the signed loop of each, +1 on that edge. What flows on these edges are the
    coefficients of any balanced flow: f = f[chords] @ loops. Their energy terms may be negative, so `find_loops` ranks.
    """
    E, m = np.asarray(edges), len(edges)
    if not m:
        return np.empty(0, int), np.empty((0, 0))
    rank = np.empty(m)
    rank[np.argsort(-np.asarray(size), kind="stable")] = np.arange(1, m + 1)
    number = sp.coo_array((rank, (E[:, 0], E[:, 1])), shape=(count, count)).tocsr()
    tree = minimum_spanning_tree(number)
    in_tree = np.isin(rank, tree.data)
    parent, depth = np.full(count, -1), np.zeros(count, int)
    for root in range(count):
        if depth[root] == 0 and parent[root] < 0:
            order, before = depth_first_order(tree, root, directed=False)
            for node in order[1:]:
                parent[node], depth[node] = before[node], depth[before[node]] + 1
    place = {(int(i), int(j)): e for e, (i, j) in enumerate(E)}
    chords = np.flatnonzero(~in_tree)
    loops = np.zeros((len(chords), m))
    for row, chord in enumerate(chords):
        loops[row, chord] = 1.0
        start, end = int(E[chord, 0]), int(E[chord, 1])
        while start != end:  # back from the head up to the common ancestor, and down to the tail
            if depth[end] >= depth[start]:
                step, end = (end, int(parent[end])), int(parent[end])
            else:
                step, start = (int(parent[start]), start), int(parent[start])
            forward = step in place
            loops[row, place[step if forward else step[::-1]]] += 1.0 if forward else -1.0
    return chords, loops
