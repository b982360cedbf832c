"""How much a sample set can say about circulation at all (`rem:graph_cycle_space`, `rem:failed_loops`).

Circulation is seen only around loops. Along a path a potential that rises with the path explains any field, so recent
iterates of a trainer score no circulation whatever the field does. Two things make loops: points off the path (a
cloud), and a path that comes back to itself (an orbit). Both are read off the distances between the points alone.
"""

from typing import Any

import equinox as eqx
import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, depth_first_order, dijkstra, minimum_spanning_tree

from hpml.geometry.arrays import as_matrix
from hpml.geometry.metric import Euclidean, Metric

NEIGHBOURS = 4  # as in the paper's sample graph
LARGEST = 1024  # a uniform subset of this size answers for larger sets: the distances are dense
LANDMARKS = 64  # the coarse scale, at which a finely sampled orbit closes
ISOTROPIC = 0.3  # variance across the leading direction of nine points of an isotropic cloud in the plane, measured
NOTHING = 0.1  # below this share the samples are path-like
ENOUGH = 0.5  # from this share on they show what there is, and below it a part


class Identifiability(eqx.Module):
    """What the samples can tell.

    - `share` in [0, 1]: near 0 for points along a path, near 1 for a cloud or a closed orbit.
    - `cycle_rank`: independent cycles of the k-NN graph, k = 4. A path has some as well, from neighbours of neighbours.
    - `spread` in [0, 1]: the share of local displacement variance across the leading local direction, scaled so that an
      isotropic cloud in the plane has about 1.
    - `message`: one sentence, with what to do.
    """

    share: float
    cycle_rank: int
    spread: float
    message: str


def identifiability(points: Any, metric: Metric | None = None) -> Identifiability:
    """How much of the sample set can identify circulation, from the points alone."""
    X = np.unique(as_matrix(points, "points"), axis=0)
    metric = Euclidean() if metric is None else metric
    metric.check(X.shape[1])
    if len(X) > LARGEST:
        X = X[np.random.default_rng(0).choice(len(X), LARGEST, replace=False)]
    if metric.constant:
        X = np.asarray(metric.whiten(X))
    squares = _squared_distances(X)
    k = min(NEIGHBOURS, len(X) - 1)
    rank = _cycle_rank(squares, k) if len(X) > 2 else 0
    spread = _spread(squares) if len(X) > 2 else 0.0
    share = 0.0
    if rank > 0 and spread > 0:
        share = max(spread * _off_path(squares), _closed(squares, k))
        if len(X) > LANDMARKS:
            coarse = _landmarks(squares, LANDMARKS)
            share = max(share, _closed(squares[np.ix_(coarse, coarse)], k))
    return Identifiability(float(min(share, 1.0)), rank, spread, _message(share, len(X)))


def _message(share: float, n: int) -> str:
    if n <= 3:
        return f"{n} distinct points close no loop that could show circulation: add off-path samples (hpml.probe)."
    if share < NOTHING:
        return (
            "The samples lie along a path or are too few, and some potential explains any field there, so they say "
            "nothing about circulation: add off-path samples (hpml.probe)."
        )
    if share < ENOUGH:
        return "The samples close few loops, so circulation shows in part only: off-path samples would show the rest."
    return "The samples close enough loops to show circulation."


def _squared_distances(X: np.ndarray) -> np.ndarray:
    """|x - y|^2 for all pairs, centred first: the Gram form cancels badly far from the origin."""
    X = X - X.mean(0)
    norms = (X**2).sum(1)
    squares = np.maximum(norms[:, None] + norms[None] - 2.0 * X @ X.T, 0.0)
    np.fill_diagonal(squares, 0.0)
    return squares


def _neighbour_edges(squares: np.ndarray, k: int) -> np.ndarray:
    """Edges (m, 2) of the symmetrised k-NN graph."""
    n = len(squares)
    masked = squares + np.diag(np.full(n, np.inf))
    near = np.argpartition(masked, k - 1, axis=1)[:, :k]
    pairs = np.stack([np.repeat(np.arange(n), k), near.ravel()], 1)
    return np.unique(np.sort(pairs, axis=1), axis=0)


def _cycle_rank(squares: np.ndarray, k: int) -> int:
    """m - n + c, the dimension of the cycle space."""
    edges = _neighbour_edges(squares, k)
    n = len(squares)
    graph = csr_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(n, n))
    return len(edges) - n + int(connected_components(graph, directed=False)[0])


def _spread(squares: np.ndarray) -> float:
    """Local displacement variance across the leading local direction, scaled and cut at 1."""
    n = len(squares)
    k = min(2 * NEIGHBOURS, n - 1)
    off = total = 0.0
    for i in range(n):
        near = np.argpartition(squares[i], k)[: k + 1]
        # The Gram matrix of the neighbourhood about its mean, by double centring: its spectrum is the local PCA.
        centre = np.eye(k + 1) - 1.0 / (k + 1)
        values = np.linalg.eigvalsh(-0.5 * centre @ squares[np.ix_(near, near)] @ centre)
        scale = values.sum()
        if scale > 0:
            off += max(1.0 - values[-1] / scale, 0.0)
            total += 1.0
    return float(min(off / total / ISOTROPIC, 1.0)) if total else 0.0


def _tree(squares: np.ndarray) -> csr_array:
    """The minimum spanning tree; squared lengths have the same one."""
    # Named edge by edge: in a dense matrix SciPy takes what is below some 1e-8 for no edge. The order alone counts, so
    # ranks stand for lengths, and points that round to distance zero are still neighbours.
    i, j = np.triu_indices(len(squares), 1)
    ranks = 1.0 + np.unique(squares[i, j], return_inverse=True)[1].reshape(-1)
    return csr_array(minimum_spanning_tree(csr_array((ranks, (i, j)), shape=squares.shape)))


def _hops(tree: csr_array, source: int) -> np.ndarray:
    return dijkstra(tree, directed=False, indices=source, unweighted=True)


def _off_path(squares: np.ndarray) -> float:
    """The share of points off the longest path of the minimum spanning tree, scaled so that a small cloud has about 1.

    Points in order along a trajectory have a path for a tree, also where noise or orthogonal steps in high dimension
    make every local neighbourhood look isotropic.
    """
    tree = _tree(squares)
    end = int(np.argmax(_hops(tree, 0)))
    longest = int(_hops(tree, end).max()) + 1
    off = 1.0 - longest / len(squares)
    # A noisy path drops a few leaves; a cloud of 20 points in the plane leaves about half of them off the path.
    return float(np.clip((off - 0.1) / 0.3, 0.0, 1.0))


def _closed(squares: np.ndarray, k: int) -> float:
    """The share of points on loops that a neighbour edge closes over a long way round the spanning tree.

    Neighbours of neighbours along a path are at most k steps apart, at its ends; twice that is a true return.
    """
    n = len(squares)
    k = min(k, n - 1)
    tree = _tree(squares)
    order, parent = depth_first_order(tree, 0, directed=False)
    depth = np.zeros(n, int)
    for node in order[1:]:
        depth[node] = depth[parent[node]] + 1
    covered = np.zeros(n, bool)
    for i, j in _neighbour_edges(squares, k):
        way = []
        a, b = int(i), int(j)
        while a != b:
            if depth[a] < depth[b]:
                a, b = b, a
            way.append(a)
            a = int(parent[a])
        if len(way) > 2 * k:
            covered[[*way, a]] = True
    return float(covered.mean())


def _landmarks(squares: np.ndarray, count: int) -> np.ndarray:
    """Points chosen one by one, each the farthest from those before."""
    chosen = [int(np.argmax(squares.sum(1)))]
    nearest = squares[chosen[0]].copy()
    while len(chosen) < count:
        chosen.append(int(np.argmax(nearest)))
        nearest = np.minimum(nearest, squares[chosen[-1]])
    return np.array(chosen)
