"""The sample graph: symmetrised nearest neighbours in the M-distance (`subsec:sampling_graph`)."""

from typing import Any

import equinox as eqx
import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int
from scipy.sparse.csgraph import connected_components

from hpml.geometry.arrays import Array, as_matrix
from hpml.geometry.metric import Euclidean, Metric
from hpml.projection.discrete.chunks import in_chunks
from hpml.projection.discrete.neighbours import nearest

WEIGHTINGS = ("unit", "inverse_square", "gaussian")

EDGES = 1 << 24  # some 2 GB with everything that is computed on them


class SampleGraph(eqx.Module):
    """A weighted undirected graph on n samples, each edge oriented from its smaller to its larger node.

    - `labels` names the connected component of each node, 0 to c - 1.
    - `order` lists the nodes so that neighbours are close in memory; None where that does not matter.
    - `dimension` is the intrinsic dimension seen in the neighbour distances; it decides which Poisson solver pays.
    """

    edges: Int[Array, "m 2"]
    weights: Float[Array, " m"]
    labels: Int[Array, " n"]
    order: Int[Array, " n"] | None = None
    dimension: float = eqx.field(static=True, default=float("inf"))

    @property
    def count(self) -> int:
        """The number n of nodes."""
        return self.labels.shape[0]

    @property
    def components(self) -> int:
        """The number c of connected components."""
        return int(self.labels.max()) + 1

    @property
    def cycle_rank(self) -> int:
        """m - n + c, the dimension of the cycle space (`rem:graph_cycle_space`); at 0 every flow is a gradient."""
        return self.edges.shape[0] - self.count + self.components

    def incidence(self) -> sp.csr_matrix:
        """B (m, n): -1 at the tail and +1 at the head of each edge, so that B phi is the discrete gradient."""
        m = self.edges.shape[0]
        signs = np.tile([-1.0, 1.0], m)
        return sp.csr_matrix((signs, self.edges.ravel(), 2 * np.arange(m + 1)), shape=(m, self.count))


def make_graph(
    edges: Any, weights: Any, count: int, order: np.ndarray | None = None, dimension: float = float("inf")
) -> SampleGraph:
    """A sample graph from an edge list: edges are turned to i < j, and the components are found."""
    E = np.sort(np.asarray(edges, np.int64).reshape(-1, 2), axis=1)
    w = np.asarray(weights, np.float64)
    if w.shape != (len(E),):
        raise ValueError(f"weights must have shape ({len(E)},), one for each edge; got {w.shape}.")
    if len(E) and (E[:, 0].min() < 0 or E[:, 1].max() >= count or (E[:, 0] == E[:, 1]).any()):
        raise ValueError(f"edges must join two different nodes, numbered 0 to {count - 1}.")
    if not (w > 0).all():
        raise ValueError("edge weights must be positive: leave out the edges that should not count.")
    half = sp.coo_matrix((np.ones(len(E), np.int8), (E[:, 0], E[:, 1])), shape=(count, count)).tocsr()
    labels = connected_components(half, directed=False)[1]
    return SampleGraph(E, w, labels, order, dimension)


def neighbour_graph(
    points: Any, metric: Metric | None = None, k: int | None = None, weighting: str = "inverse_square"
) -> SampleGraph:
    """The symmetrised k-nearest-neighbour graph of (n, d) points in the M-distance.

    i and j are joined where either is among the other's k nearest; `k=None` takes `default_neighbours(n, d)`. Weights
    are 1 ("unit"), 1 / |dx|_M^2 ("inverse_square"), or exp(-|dx|_M^2 / 2 s^2) with s the median edge length
    ("gaussian").
    """
    metric = Euclidean() if metric is None else metric
    X = as_matrix(points, "points")
    n, d = X.shape
    if n < 2:
        raise ValueError(f"A graph needs at least two points, got {n}: collect more samples.")
    k = check_neighbours(default_neighbours(n, d) if k is None else k, n)
    found = nearest(X, X, metric, k, itself=True)
    edges = _merge(found.rows, found.index, n)
    weights = edge_weights(_lengths(X, edges, metric), weighting)
    return make_graph(edges, weights, n, found.rows, _intrinsic_dimension(found.distance, d))


def default_neighbours(count: int, dimension: int) -> int:
    """k = 2 n^1/2 + 2 min(d, n^1/2), at most n - 1, and at most 2^24 edges where that leaves 16 neighbours.

    A graph with m edges explains a share n / m of any flow, so k must grow with n; but long edges blur the field. Tried
    on potentials with sines and on swirls, d = 2 to 10 and n = 200 to 5,000: the best k for the direction was 32 to 64
    at n = 200, 64 to 128 at n = 1,000 and about 128 at n = 5,000, and 64 or more in ten dimensions.
    """
    root = np.sqrt(count)
    k = min(round(2.0 * (root + min(dimension, root))), max(16, EDGES // count))
    return max(1, min(k, count - 1))


def check_neighbours(k: int, count: int) -> int:
    """k as an int, or a `ValueError` where no graph on `count` points has that many neighbours."""
    if int(k) != k or k < 1:
        raise ValueError(f"neighbours must be a whole number of at least 1, got {k}.")
    if k >= count:
        raise ValueError(
            f"neighbours={k} needs more than {k} distinct points, got {count}: take fewer neighbours, collect more "
            "samples, or leave neighbours=None to have the number chosen."
        )
    return int(k)


def edge_weights(lengths: np.ndarray, weighting: str) -> np.ndarray:
    """w_e from the M-lengths of the edges."""
    if weighting not in WEIGHTINGS:
        raise ValueError(f"weighting must be one of {', '.join(WEIGHTINGS)}; got {weighting!r}.")
    if weighting == "unit":
        return np.ones_like(lengths)
    median = float(np.median(lengths)) or 1.0
    if weighting == "gaussian":
        # The floor keeps a far edge in the graph: without it the exponential underflows to zero.
        return np.maximum(np.exp(-0.5 * (lengths / median) ** 2), 1e-12)
    return np.maximum(lengths, 1e-6 * median) ** -2.0  # the floor: repeated points have no distance


def weigh_samples(graph: SampleGraph, weights: Float[Array, " n"]) -> SampleGraph:
    """The graph with each edge weight times the mean weight of its ends, scaled so that equal weights change nothing.

    The mean and not the product: every sample has about k edges whatever the density around it, so the edge energies
    at a node already stand for that one sample.
    """
    s = np.asarray(weights) * (graph.count / np.sum(weights))
    if np.ptp(s) < 1e-12:
        return graph
    w = graph.weights * (0.5 * (s[graph.edges[:, 0]] + s[graph.edges[:, 1]]))
    return SampleGraph(graph.edges, w, graph.labels, graph.order, graph.dimension)


def _merge(rows: np.ndarray, index: np.ndarray, count: int) -> np.ndarray:
    """The edge list (m, 2) of the symmetrised lists, each edge once, i < j, in rising order."""
    key = np.empty(index.shape, np.int64)

    def encode(piece: slice) -> None:
        i, j = rows[piece, None], index[piece]
        key[piece] = np.minimum(i, j) * count + np.maximum(i, j)

    in_chunks(encode, len(rows))
    ranked = key.reshape(-1)
    ranked.sort()
    first = np.empty(len(ranked), bool)
    first[0] = True
    np.not_equal(ranked[1:], ranked[:-1], out=first[1:])
    distinct = ranked[first]
    edges = np.empty((len(distinct), 2), np.int64)

    def decode(piece: slice) -> None:
        np.divmod(distinct[piece], count, out=(edges[piece, 0], edges[piece, 1]))

    in_chunks(decode, len(distinct))
    return edges


def _lengths(points: np.ndarray, edges: np.ndarray, metric: Metric) -> np.ndarray:
    out = np.empty(len(edges))

    def measure(piece: slice) -> None:
        i, j = edges[piece].T
        out[piece] = metric.distance(points.take(i, 0), points.take(j, 0))

    in_chunks(measure, len(edges))
    return out


def _intrinsic_dimension(distance: np.ndarray, ambient: int) -> float:
    """From how fast balls fill: a ball of twice the neighbours is 2^(1/dimension) times as wide."""
    k = distance.shape[1]
    if k < 4:
        return float(ambient)
    some = distance[:: max(1, len(distance) // 10_000)]
    inner, outer = np.maximum(some[:, k // 2 - 1], 1e-300), some[:, k - 1]
    growth = np.median(np.log(np.maximum(outer / inner, 1.0)))
    return float(min(ambient, np.log(k / (k // 2)) / max(growth, 1e-9)))
