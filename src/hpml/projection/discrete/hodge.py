"""The cyclic flow on the clique complex: around triangles, and around holes (`rem:hodge_app`, `rem:graph_cycle_space`).

With C the curl operator, one row a triangle, the cyclic flow is W^-1 C^T s (curl) plus a harmonic flow u with C u = 0
and B^T W u = 0. The two are orthogonal in W, and the harmonic flows have the dimension of the complex's first homology.
"""

import warnings

import equinox as eqx
import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Int

from hpml.geometry.arrays import Array
from hpml.projection.discrete.poisson import TOLERANCE, ConvergenceWarning, conjugate_gradients, converged
from hpml.projection.discrete.scale import power_of_two

WEDGES = 1 << 22  # pairs of edges looked at in one go


class CyclicSplit(eqx.Module):
    """A cyclic flow as curl + harmonic, orthogonal in W."""

    curl: Float[Array, " m"]
    harmonic: Float[Array, " m"]


def split_cyclic(edges: Int[Array, "m 2"], weights: Float[Array, " m"], cyclic: Float[Array, " m"]) -> CyclicSplit:
    """The curl part closest to the cyclic flow in W, and the harmonic rest."""
    C = curl_operator(edges)
    # In u' = W^1/2 u the curl flows are the range of K = W^-1/2 C^T, so K^T K s = K^T u'.
    K = sp.diags(np.asarray(weights) ** -0.5) @ C.T
    target = np.sqrt(weights) * cyclic
    scale = power_of_two(target)
    target = target / scale
    b = K.T @ target
    if not b.any():
        return CyclicSplit(np.zeros_like(target), np.asarray(cyclic))
    diagonal = np.asarray(K.multiply(K).sum(0)).ravel()
    s, _, residual = conjugate_gradients(lambda x: K.T @ (K @ x), b, lambda r: r / diagonal, units=diagonal**-0.5)
    # A flow with no curl has the rounding of `target` for b, which nothing need solve.
    nothing = np.linalg.norm(b) <= 1e-12 * np.linalg.norm(abs(K).T @ np.abs(target))
    if not (nothing or converged(residual, diagonal, s, b)):
        warnings.warn(
            f"The split into curl and harmonic flow stopped at a relative residual of {residual:.1e}, short of "
            f"{TOLERANCE:.0e}, so some curl is counted as harmonic: take more neighbours, or weights that vary less.",
            ConvergenceWarning,
            stacklevel=2,
        )
    curl = scale * ((K @ s) / np.sqrt(weights))
    return CyclicSplit(curl, cyclic - curl)


def curl_operator(edges: Int[Array, "m 2"]) -> sp.csr_matrix:
    """C (t, m): (C u) at the triangle i < j < k is u_ij + u_jk - u_ik, so that C B = 0."""
    sides = triangles(edges)
    t = len(sides)
    signs = np.tile([1.0, 1.0, -1.0], t)
    return sp.csr_matrix((signs, sides.ravel(), 3 * np.arange(t + 1)), shape=(t, len(edges)))


def triangles(edges: Int[Array, "m 2"]) -> Int[Array, "t 3"]:
    """The edge numbers (ij, jk, ik) of each triangle i < j < k."""
    E = np.asarray(edges, np.int64)
    if not len(E):
        return np.empty((0, 3), np.int64)
    n = int(E.max()) + 1
    key = E[:, 0] * n + E[:, 1]
    ranked = np.argsort(key)
    key, (tail, head) = key[ranked], E[ranked].T
    first = np.searchsorted(tail, np.arange(n + 1))
    # Each edge ij is followed by every edge jk; the wedge closes where ik is an edge too.
    fan = first[head + 1] - first[head]
    ends = np.cumsum(fan)
    found, start = [], 0
    while start < len(E):
        stop = max(start + 1, int(np.searchsorted(ends, ends[start] - fan[start] + WEDGES)))
        ij = np.repeat(np.arange(start, stop), fan[start:stop])
        place = (
            np.arange(len(ij))
            + (ends[start] - fan[start])
            - np.repeat(ends[start:stop] - fan[start:stop], fan[start:stop])
        )
        jk = first[head[ij]] + place
        want = tail[ij] * n + head[jk]
        ik = np.minimum(np.searchsorted(key, want), len(key) - 1)
        closed = key[ik] == want
        found.append(np.stack([ij[closed], jk[closed], ik[closed]], axis=1))
        start = stop
    return ranked[np.concatenate(found)]
