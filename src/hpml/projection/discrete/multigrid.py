"""Aggregation multigrid, the preconditioner of the graph Poisson solve where samples fill a solid or a surface.

pyamg groups the nodes into aggregates, level by level, with piecewise constant interpolation; that takes an eighth of
the time of smoothed aggregation on a graph with eighteen neighbours a node. What such interpolation lacks is made up by
visiting each coarse level twice (a W-cycle) and stretching its correction. The cycle can run in float32: it only steers
the iterations, which are in float64. But float32 cannot see a heavy cluster move as a whole on edges 1e7 times lighter.

Every level is the Laplacian of a graph, singular once per component. A component that has shrunk to one node has no
equation left and leaves the hierarchy: what Galerkin's product computes for it is rounding, to be divided by nowhere.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyamg.aggregation
import pyamg.strength
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

COARSEST = 100
STRETCH = 1.5  # measured: 24 steps against 35 without, on a million points of a ball
LOWEST = 0.25  # the smoother works on this upper share of the spectrum of D^-1 L; the coarse levels have the rest


class Level(NamedTuple):
    """One level's Laplacian, inverse diagonal, prolongation from the next level and its transpose."""

    A: sp.csr_matrix
    inverse: np.ndarray
    P: sp.csr_matrix | None
    R: sp.csr_matrix | None


def aggregation_cycle(
    L: sp.csr_matrix, precision: type[np.floating] = np.float32
) -> Callable[[np.ndarray], np.ndarray]:
    """A function r -> z close to L^-1 r, symmetric and positive but for rounding.

    Positive, since the smoother contracts: if the coarse levels' two visits have B A in (0, 1], this one has it in
    (0, STRETCH], and two visits of it in (0, 1] again.
    """
    scale = float(L.diagonal().max(initial=0.0)) or 1.0  # float32 has a short range
    levels, last = _hierarchy(L / scale, precision)
    bottom = _inverse(last) if last.shape[0] <= COARSEST else None

    def cycle(depth: int, b: np.ndarray) -> np.ndarray:
        level = levels[depth]
        if level.P is None or level.R is None:
            return _smooth(level, b, None) if bottom is None else (bottom @ b).astype(precision)
        x = _smooth(level, b, None)
        coarse = level.R @ (b - level.A @ x)
        correction = cycle(depth + 1, coarse)
        if depth + 2 < len(levels):
            correction = correction + cycle(depth + 1, coarse - levels[depth + 1].A @ correction)
        return _smooth(level, b, x + STRETCH * (level.P @ correction))

    def precondition(r: np.ndarray) -> np.ndarray:
        size = float(np.abs(r).max()) or 1.0
        return size / scale * cycle(0, (r / size).astype(precision)).astype(np.float64)

    return precondition


def _hierarchy(L: sp.csr_matrix, precision: type[np.floating]) -> tuple[list[Level], sp.csr_matrix]:
    """The levels, finest first, and the last one's Laplacian in float64."""
    levels: list[Level] = []
    while L.shape[0] > COARSEST:
        P, coarse = _coarsen(L)
        if not coarse.shape[0]:
            break
        levels.append(_level(L, P, precision))
        L = coarse
    return [*levels, _level(L, None, precision)], L


def _coarsen(L: sp.csr_matrix) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """P, the aggregates' indicators, and the Laplacian of the graph of aggregates; at most half as many, and joined."""
    P = sp.csr_matrix(pyamg.aggregation.standard_aggregation(_strong(L))[0], dtype=np.float64)
    coupling = (P.T @ (L @ P)).tocsr()
    coupling = coupling - sp.diags(coupling.diagonal())
    coupling.eliminate_zeros()
    joined = np.flatnonzero(np.diff(coupling.indptr))
    if len(joined) < P.shape[1]:
        P, coupling = P[:, joined].tocsr(), coupling[joined][:, joined]
    # The diagonal from the edges, so that constants are in the null space.
    return P, (coupling - sp.diags(np.asarray(coupling.sum(1)).ravel())).tocsr()


def _strong(L: sp.csr_matrix) -> sp.csr_array:
    """The edges that aggregates grow along; every node that has an edge has a strong one.

    A node left out of the aggregates would hold its neighbours at zero on all coarser levels.
    """
    n = L.shape[0]
    # An edge is strong where it carries about an even share of a node's weight; a fixed bound sees none at large k.
    strong = pyamg.strength.symmetric_strength_of_connection(L, 0.9 * n / max(L.nnz - n, 1))
    alone = np.flatnonzero(np.diff(strong.indptr) <= 1).astype(np.int32)  # all that pyamg takes
    rows = L[alone]
    heaviest = np.asarray(rows.argmin(axis=1), np.int32).ravel()
    has_edge = np.diff(rows.indptr) > 1
    i, j = alone[has_edge], heaviest[has_edge]
    if not len(i):
        return strong
    extra = sp.coo_array((np.ones(2 * len(i)), (np.concatenate([i, j]), np.concatenate([j, i]))), shape=(n, n))
    return (strong + extra).tocsr()


def _inverse(L: sp.csr_matrix) -> np.ndarray:
    """A positive definite inverse of a small Laplacian, exact on what sums to zero on each component."""
    n, diagonal = L.shape[0], L.diagonal()
    root = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    labels = connected_components(L, directed=False)[1]
    share = root / np.sqrt(np.bincount(labels, root**2, n))[labels]
    A = L.toarray() / (root[:, None] * root)
    A += np.where(labels[:, None] == labels, share[:, None] * share, 0.0)
    inverse = scipy.linalg.inv(A) / (root[:, None] * root)
    return 0.5 * (inverse + inverse.T)


def _level(L: sp.csr_matrix, P: sp.csr_matrix | None, precision: type[np.floating]) -> Level:
    A = L.astype(precision)
    diagonal = A.diagonal()
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    if P is None:
        return Level(A, inverse, None, None)
    P = P.astype(precision)
    return Level(A, inverse, P, P.T.tocsr())


def _smooth(level: Level, b: np.ndarray, x: np.ndarray | None) -> np.ndarray:
    """Two Chebyshev steps on the upper part of the spectrum of D^-1 A, which for a Laplacian ends at 2."""
    high = 2.0
    middle, half = 0.5 * (1 + LOWEST) * high, 0.5 * (1 - LOWEST) * high
    sigma = middle / half
    rho = 1.0 / (2.0 * sigma - 1.0 / sigma)
    r = b if x is None else b - level.A @ x
    d = level.inverse * r * (1.0 / middle)
    x = d if x is None else x + d
    r = b - level.A @ x
    return x + (rho / sigma) * d + (2.0 * rho / half) * (level.inverse * r)
