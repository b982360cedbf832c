"""Nearest neighbours in the M-distance: exact lists for the sample graph and for inserted points.

Under a constant metric the whitened points are Euclidean. Under a varying one candidates are found in the metric at the
mean point and ranked again by `Metric.distance`. Up to six dimensions a k-d tree is fastest; above, faiss compares all
pairs in float32, so its candidates are centred first and ranked again in float64.
"""

from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from hpml.geometry.metric import Metric
from hpml.projection.discrete.chunks import in_chunks
from hpml.projection.discrete.scale import power_of_two

TREE_DIMENSION = 6  # measured: above it a k-d tree visits most of its leaves
BRUTE_COUNT = 512  # below it all distances cost less than building an index
SPARE = 8  # extra float32 candidates, so that rounding in faiss cannot hide a true neighbour
COARSE_COUNT = 100_000  # above it faiss searches the closest cells only, and a few far neighbours may be missed
VARYING_FACTOR = 3  # candidates for each wanted neighbour under a varying metric


@dataclass(frozen=True)
class Neighbours:
    """Row a holds the k samples nearest to query rows[a], closest first, and their M-distances."""

    rows: np.ndarray  # (q,)
    index: np.ndarray  # (q, k)
    distance: np.ndarray  # (q, k)


def nearest(queries: np.ndarray, points: np.ndarray, metric: Metric, k: int, itself: bool = False) -> Neighbours:
    """The k nearest points of each query; with `itself` the queries are the points, none its own neighbour."""
    if metric.constant:
        centre = points.mean(0)
        white = np.asarray(metric.whiten(points - centre))
        asked = white if itself else np.asarray(metric.whiten(queries - centre))
        return _euclidean(asked, white, k, itself)
    centre = np.broadcast_to(points.mean(0), points.shape)
    white = np.asarray(metric.whiten(points - centre, centre))
    shift = np.broadcast_to(centre[:1], queries.shape)
    asked = white if itself else np.asarray(metric.whiten(queries - shift, shift))
    wide = min(VARYING_FACTOR * k, len(points) - itself)
    found = _euclidean(asked, white, wide, itself)
    left = queries[np.repeat(found.rows, wide)]
    true = np.asarray(metric.distance(left, points[found.index.ravel()])).reshape(found.index.shape)
    return _closest(found.rows, found.index, true, k)


def _euclidean(queries: np.ndarray, points: np.ndarray, k: int, itself: bool) -> Neighbours:
    n, d = points.shape
    rows = np.arange(len(queries))
    wanted = k + itself
    if max(n, len(queries)) <= BRUTE_COUNT:
        distance = cdist(queries, points)
        if itself:
            np.fill_diagonal(distance, np.inf)
        return _closest(rows, np.broadcast_to(np.arange(n), distance.shape), distance, k)
    if d <= TREE_DIMENSION:
        tree = cKDTree(points)
        # In the tree's own order consecutive queries visit the same leaves: 2.5 times as fast at n = 1e6.
        rows = tree.indices if itself else cKDTree(queries).indices
        distance, index = tree.query(queries[rows], wanted, workers=-1)
        distance, index = distance.reshape(-1, wanted), index.reshape(-1, wanted)
        return Neighbours(rows, *(_without_self(rows, index, distance) if itself else (index, distance)))
    wide = min(n, wanted + k // 2 + SPARE)
    size = power_of_two(points)  # float32 holds the squares of 1e-19 to 1e19 only
    index = _faiss(_single(points, size), _single(queries, size), wide)
    distance = np.empty(index.shape)

    def measure(piece: slice) -> None:
        step = points[index[piece]] - queries[piece, None]
        distance[piece] = np.sqrt(np.einsum("qkd,qkd->qk", step, step))

    in_chunks(measure, len(queries), max(1, (1 << 20) // (wide * d)))
    if itself:
        distance[index == rows[:, None]] = np.inf
    return _closest(rows, index, distance, k)


def _single(values: np.ndarray, size: float) -> np.ndarray:
    return np.divide(values, size, out=np.empty(values.shape, np.float32), casting="same_kind")


def _faiss(points: np.ndarray, queries: np.ndarray, k: int) -> np.ndarray:
    n, d = points.shape
    index: Any = faiss.IndexFlatL2(d)
    if n > COARSE_COUNT:
        cells = int(4 * np.sqrt(n))
        index = faiss.IndexIVFFlat(index, d, cells)
        index.train(points[:: max(1, n // (64 * cells))])
        index.nprobe = 32
    index.add(points)
    found = index.search(queries, k)[1]
    return np.where(found < 0, found[:, :1], found)  # -1: the visited cells held fewer than k points


def _closest(rows: np.ndarray, index: np.ndarray, distance: np.ndarray, k: int) -> Neighbours:
    if k < distance.shape[1]:
        few = np.argpartition(distance, k - 1, axis=1)[:, :k]
        index, distance = np.take_along_axis(index, few, 1), np.take_along_axis(distance, few, 1)
    ranked = np.argsort(distance, axis=1, kind="stable")
    return Neighbours(rows, np.take_along_axis(index, ranked, 1), np.take_along_axis(distance, ranked, 1))


def _without_self(rows: np.ndarray, index: np.ndarray, distance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lists less the point itself, which stands first unless the point is repeated."""
    odd = np.flatnonzero(index[:, 0] != rows)
    for a in odd:  # repeated points only: samples are distinct, so this is rare
        place = np.flatnonzero(index[a] == rows[a])
        at = place[0] if len(place) else index.shape[1] - 1
        index[a, 1 : at + 1], distance[a, 1 : at + 1] = index[a, :at].copy(), distance[a, :at].copy()
    return index[:, 1:], distance[:, 1:]
