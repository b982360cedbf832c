"""The graph split of a trainer's history under jit: fixed shapes, empty rows masked, everything dense.

A history has a few hundred rows, so the graph is an n x n weight matrix, and no edge list changes its length. The small
dense algebra runs in float64 whatever the history's type: float32 loses the differences of nearby parameters.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from hpml.geometry.arrays import Array
from hpml.projection.projector import LocalSamples

FLOOR = 1e-6  # shortest edge, as a share of the median one: a repeated row has no distance


class LocalGraph(eqx.Module):
    """A fitted history: its rows, their node potentials, and the connected component of each."""

    points: Float[Array, "n r"]
    field: Float[Array, "n r"]
    mask: Bool[Array, " n"]
    potential: Float[Array, " n"]
    labels: Int[Array, " n"]


def empty_local(count: int, rank: int, dtype: jnp.dtype) -> LocalGraph:
    """A history with no rows."""
    rows = jnp.zeros((count, rank), dtype)
    return LocalGraph(rows, rows, jnp.zeros(count, bool), jnp.zeros(count, dtype), jnp.zeros(count, jnp.int32))


def fit_local(samples: LocalSamples, k: int, weighting: str) -> LocalGraph:
    """Symmetrised neighbours, edge flow and Poisson solve of the rows in the mask (`alg:hodge-proj`)."""
    dtype = samples.points.dtype
    with jax.enable_x64(True):
        mask = samples.mask
        X, F = _masked(samples.points, mask), _masked(samples.field, mask)
        X = X - mask[:, None] * (X.sum(0) / jnp.maximum(mask.sum(), 1))
        n = X.shape[0]
        squares = (X * X).sum(1)
        distance = jnp.sqrt(jnp.maximum(squares[:, None] + squares - 2.0 * _dot(X, X.T), 0.0))
        allowed = mask[:, None] & mask & ~jnp.eye(n, dtype=bool)
        closest = jax.lax.top_k(-jnp.where(allowed, distance, jnp.inf), k)[1]
        joined = jnp.zeros((n, n), bool).at[jnp.arange(n)[:, None], closest].set(True) & allowed
        joined = joined | joined.T
        W = _weights(distance, joined, weighting)
        # omega_ij = <F_i + F_j, x_j - x_i> / 2, and b = B^T W omega: what flows into j.
        FX = _dot(F, X.T)
        own = jnp.diagonal(FX)
        omega = 0.5 * (FX - FX.T + own - own[:, None])
        b = (W * omega).sum(0)
        labels = _components(joined)
        degree = W.sum(1)
        root = jnp.sqrt(jnp.where(degree > 0, degree, 1.0))
        same = (labels[:, None] == labels) & mask[:, None] & mask
        share = root / jnp.sqrt(jnp.maximum((same * root**2).sum(1), 1e-300))
        # As in `poisson._cholesky`: unit diagonal, each component's null vector lifted to eigenvalue 1, empty rows I.
        A = jnp.where(degree > 0, 1.0, 0.0) * jnp.eye(n) - W / (root[:, None] * root) + same * (share[:, None] * share)
        A = jnp.where(mask[:, None] & mask, A, jnp.eye(n))
        phi = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(A), jnp.where(mask, b, 0.0) / root) / root
        phi = phi - _dot(same, phi) / jnp.maximum(same.sum(1), 1)
        phi = jnp.where(mask & jnp.isfinite(phi), phi, 0.0).astype(dtype)
        labels = labels.astype(jnp.int32)
    return LocalGraph(samples.points, samples.field, samples.mask, phi, labels)


def local_covectors(
    graph: LocalGraph, point: Float[Array, " r"], field: Float[Array, " r"], k: int, weighting: str, ridge: float
) -> tuple[Float[Array, " r"], Float[Array, " r"], Bool[Array, ""]]:
    """The lifted cyclic flow and the lifted potential on a point's k edges, and whether it has any.

    The point's own potential is the one that its edge flows agree on best, one for each component that its edges reach:
    the components' constants are free.
    """
    dtype = field.dtype
    with jax.enable_x64(True):
        mask = graph.mask
        x, f = jnp.nan_to_num(point.astype(jnp.float64)), jnp.nan_to_num(field.astype(jnp.float64))
        X, F = _masked(graph.points, mask), _masked(graph.field, mask)
        steps = jnp.where(mask[:, None], X - x, 0.0)
        distance = jnp.sqrt((steps * steps).sum(1))
        nearest = jax.lax.top_k(-jnp.where(mask, distance, jnp.inf), k)[1]
        there, steps = mask[nearest], steps[nearest]
        w = _weights(distance[nearest], there, weighting)
        omega = 0.5 * (_dot(steps, f) + (steps * F[nearest]).sum(1))
        phi = graph.potential[nearest].astype(jnp.float64)
        same = (graph.labels[nearest][:, None] == graph.labels[nearest]) * w
        own = _dot(same, phi - omega) / jnp.maximum(same.sum(1), 1e-300)
        values = jnp.where(there[:, None], jnp.stack([omega - phi + own, phi - own], 1), 0.0)
        root = jnp.sqrt(w)
        Z = steps * root[:, None]
        gram = _dot(Z, Z.T)
        # With no ridge, a share of the trace far below the accuracy of the samples keeps the factor definite.
        shift = jnp.maximum(ridge, 1e-10 * jnp.trace(gram))
        factor = jax.scipy.linalg.cho_factor(gram + jnp.where(shift > 0, shift, 1.0) * jnp.eye(k))
        lifted = _dot(Z.T, jax.scipy.linalg.cho_solve(factor, values * root[:, None]))
        seen = mask.sum() >= 2
        cyclic, potential = jnp.where(seen & jnp.isfinite(lifted), lifted, 0.0).T.astype(dtype)
    return cyclic, potential, seen


def _dot(left: Array, right: Array) -> Array:
    # Not `@`: it asks for a result type, which vmap of a conditional would turn back into float32.
    return jax.lax.dot(jnp.asarray(left).astype(jnp.float64), jnp.asarray(right).astype(jnp.float64))


def _masked(rows: Float[Array, "n r"], mask: Bool[Array, " n"]) -> Float[Array, "n r"]:
    return jnp.nan_to_num(jnp.where(mask[:, None], rows, 0.0).astype(jnp.float64))


def _weights(distance: Array, joined: Array, weighting: str) -> Array:
    """As `graph.edge_weights`, zero where there is no edge."""
    if weighting == "unit":
        return jnp.where(joined, 1.0, 0.0)
    count = joined.sum()
    ranked = jnp.sort(jnp.where(joined, distance, jnp.inf).reshape(-1))
    median = 0.5 * (ranked[jnp.maximum(count - 1, 0) // 2] + ranked[count // 2])
    median = jnp.where(jnp.isfinite(median) & (median > 0), median, 1.0)
    if weighting == "gaussian":
        return jnp.where(joined, jnp.maximum(jnp.exp(-0.5 * (distance / median) ** 2), 1e-12), 0.0)
    return jnp.where(joined, jnp.maximum(distance, FLOOR * median) ** -2.0, 0.0)


def _components(joined: Bool[Array, "n n"]) -> Int[Array, " n"]:
    """The smallest node that each node can reach, by squaring the adjacency until every path is one step."""
    n = joined.shape[0]
    reach = (joined | jnp.eye(n, dtype=bool)).astype(jnp.float32)
    for _ in range(max(1, (n - 1).bit_length())):
        reach = (reach @ reach > 0).astype(jnp.float32)
    # int32 said outright: inside a float32 program the lowering of jnp.argmax in this float64 block fails.
    return jax.lax.argmax(reach, 1, jnp.int32)
