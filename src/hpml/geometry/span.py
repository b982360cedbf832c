"""The chart of a history, from its rolling matrices alone and under jit: isometric coordinates of span{x_i - x0, F_i}.

The origin x0 is the mean of the chart's points. Nothing here touches a vector of length d: a history of n samples has
2n coordinates, and a vector of the span is 2n coefficients on the rows of the buffers.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from hpml.geometry.arrays import Array
from hpml.geometry.history import History, Products


class SpanChart(eqx.Module):
    """Orthonormal coordinates of the span of n rows, with coefficients for the way in and the way back.

    - `rows`: the rows of the history that span the chart; `mask` is False where there is none.
    - `basis`: coordinate k is sum_i basis[i, k] v_i with v = (x_i - x0, F_i); zero columns where the rank is lower. Two
      float32 parts, since the small directions are differences of large coefficients.
    """

    rows: Int[Array, " n"]
    mask: Bool[Array, " n"]
    basis: Float[Array, "2 m r"]


def empty_span(count: int, dimension: int | None = None) -> SpanChart:
    """The chart of no rows: every vector has coordinates zero. It has 2n of them, or d where that is less."""
    rank = 2 * count if dimension is None else min(2 * count, dimension)
    return SpanChart(jnp.zeros(count, jnp.int32), jnp.zeros(count, bool), jnp.zeros((2, 2 * count, rank), jnp.float32))


def span_of(
    history: History, previous: SpanChart | None = None, precise: bool = False
) -> tuple[SpanChart, Float[Array, "n r"], Float[Array, "n r"]]:
    """The chart of the kept rows, and the coordinates of their points and field.

    Samples that were in the previous chart keep their place, so that a fit can follow them. `precise` says that the
    buffers are float64; they are not looked at and may be None.
    """
    previous = empty_span(history.capacity) if previous is None else previous
    rows, mask = _places(history, previous)
    with jax.enable_x64(True):
        n = history.capacity
        D, A, Q = history.matrices[:, rows][:, :, rows]
        m = mask.astype(jnp.float64)
        xx = _centred_gram(D, D, D, m)
        fx = (A - _mean(A, m)[:, None]) * m[:, None] * m  # <F_i, x_j - x0>
        ff = Q * m[:, None] * m
        G = jnp.block([[xx, fx.T], [fx, ff]])
        # Points and field are scaled alike, so that the smaller of the two is not cut off as rounding.
        size = jnp.stack([jnp.trace(xx), jnp.trace(ff)])
        scale = jnp.repeat(jnp.where(size > 0, size, 1.0) ** -0.5, n)
        # Entries are right to about 1e-8 where the buffers are float32.
        L, C = _pivoted_cholesky(G * scale[:, None] * scale, previous.basis.shape[-1], 1e-13 if precise else 1e-7)
        coordinates, basis = L / scale[:, None], C * scale[:, None]
        high = basis.astype(jnp.float32)
        pair = jnp.stack([high, (basis - high.astype(jnp.float64)).astype(jnp.float32)])
    return SpanChart(rows, mask, pair), coordinates[:n], coordinates[n:]


def encode(chart: SpanChart, history: History, products: Products) -> tuple[Float[Array, " r"], Float[Array, " r"]]:
    """The coordinates of one sample's point and field, projected on the span, from its products with every row."""
    with jax.enable_x64(True):
        m = chart.mask.astype(jnp.float64)
        D, A = history.matrices[:2, chart.rows][:, :, chart.rows]
        distance = products.distance[chart.rows]
        on_points = _centred_gram(distance[:, None], D, distance[:, None], m)[:, 0]
        on_field = (products.toward[chart.rows] - _mean(A, m)) * m
        point = jnp.concatenate([on_points, on_field])
    return _coordinates(chart, point), encode_field(chart, products)


def encode_field(chart: SpanChart, products: Products) -> Float[Array, " r"]:
    """The coordinates of one sample's field."""
    with jax.enable_x64(True):
        m = chart.mask.astype(jnp.float64)
        back, gram = products.back[chart.rows], products.gram[chart.rows]
        vector = jnp.concatenate([(back - _mean(back[None], m)[0]) * m, gram * m])
    return _coordinates(chart, vector)


def encode_gap(chart: SpanChart, products: Products) -> Float[Array, " r"]:
    """The coordinates of the second vector of the products."""
    back, gram = products.gap_back, products.gap_gram
    return encode_field(chart, eqx.tree_at(lambda p: (p.back, p.gram), products, (back, gram)))


def row_coefficients(
    chart: SpanChart, coordinates: Float[Array, " r"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """The vector with these coordinates as sum_i a_i (x_i - x) + b_i F_i over `rows`; sum a = 0, so x is free."""
    n = len(chart.rows)
    with jax.enable_x64(True):
        m = chart.mask.astype(jnp.float64)
        c = _apply(_basis(chart), coordinates.astype(jnp.float64))
        return (c[:n] - _mean(c[None, :n], m)[0]) * m, c[n:] * m


def on_steps(chart: SpanChart, times: Int[Array, " rows"], on_points: Float[Array, " n"]) -> Float[Array, " n"]:
    """The coefficients of the steps to each row from the one before in time, for those of the points, whose sum is 0.

    A step counts for every point that comes after it. The oldest row's leads to all of them, so that its own is 0.
    """
    at = jnp.where(chart.mask, times[chart.rows], -1)
    oldest = at == jnp.min(jnp.where(chart.mask, at, jnp.iinfo(at.dtype).max))
    with jax.enable_x64(True):
        after = (at[None] >= at[:, None]) & chart.mask[None]
        sums = _apply(after.astype(jnp.float64), on_points.astype(jnp.float64))
        return jnp.where(chart.mask & ~oldest, sums, 0.0)


def path_return(history: History, chart: SpanChart) -> Float[Array, ""]:
    """How far the chart's points come back to where they were, in [0, 1]: what can identify circulation.

    Two points close the path between them as far as |x_i - x_j|^2 is less than the sum of the squared steps from one to
    the other; a point counts with the best closure that it lies on. A straight path and a random walk in high dimension
    have 0: a potential that rises along them explains any field. A closed orbit and a cloud of n points have nearly 1.
    """
    last = jnp.iinfo(history.times.dtype).max
    order = jnp.argsort(jnp.where(chart.mask, history.times[chart.rows], last))
    rows, mask = chart.rows[order], chart.mask[order]
    with jax.enable_x64(True):
        D = history.matrices[0, rows][:, rows]
        place = jnp.arange(len(D))
        present = mask[:, None] & mask[None]
        steps = jnp.where(mask[1:], jnp.diagonal(D, 1), 0.0)
        travelled = jnp.concatenate([jnp.zeros(1, jnp.float64), jnp.cumsum(steps)])
        between = jnp.abs(travelled[:, None] - travelled[None])
        far = present & (place[None] - place[:, None] >= 2) & (between > 0)
        ratio = jnp.where(far, D / jnp.where(far, between, 1.0), 1.0)
        covering = jax.lax.cummin(jax.lax.cummin(ratio, 0), 1, reverse=True)  # over all i <= k <= j
        least = jnp.clip(jnp.diagonal(covering), 0.0, 1.0)
        share = 1.0 - jnp.sum(jnp.where(mask, least, 0.0)) / jnp.maximum(mask.sum(), 1)
    return share.astype(jnp.float32)


def _places(history: History, previous: SpanChart) -> tuple[Array, Array]:
    """The kept rows in n places; what is still kept stays, what is new fills the gaps from the oldest on."""
    stays = previous.mask & history.kept[previous.rows]
    old = jnp.zeros(len(history.times), bool).at[previous.rows].max(stays)
    fresh = history.kept & ~old
    order = jnp.argsort(jnp.where(fresh, history.times, jnp.iinfo(history.times.dtype).max)).astype(jnp.int32)
    gap = jnp.cumsum(~stays) - 1
    return jnp.where(stays, previous.rows, order[gap]), stays | (gap < fresh.sum())


def _pivoted_cholesky(G: Array, rank: int, tolerance: float) -> tuple[Array, Array]:
    """L and C with G = L L^T and C^T G C = 1 on the first columns; zero columns once no pivot is above the tolerance.

    Gram-Schmidt on the vector that is left longest, with the rows of (G, 1) side by side. An eigendecomposition would
    do, but LAPACK's threads made it the slowest part of a refresh on a busy machine: 200 ms.
    """
    m = G.shape[0]
    floor = tolerance * jnp.max(jnp.diagonal(G))
    rows = jnp.concatenate([G, jnp.eye(m, dtype=G.dtype)], 1)
    first = jnp.int32(0)

    def row(k: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        done, left = carry
        pivot = jax.lax.argmax(left.astype(jnp.float32), 0, jnp.int32)  # of float64 it does not lower in such a program
        longest = jax.lax.dynamic_slice(left, (pivot,), (1,))
        seen = longest > floor
        (new,) = jax.lax.dynamic_slice(rows, (pivot, first), (1, 2 * m))
        along = jax.lax.dynamic_slice(done, (first, pivot), (rank, 1))[:, 0]
        new = jnp.where(seen, (new - _apply(along, done)) * jnp.where(seen, longest, 1.0) ** -0.5, 0.0)
        left = jnp.where(jnp.arange(m, dtype=jnp.int32) == pivot, 0.0, jnp.maximum(left - new[:m] ** 2, 0.0))
        return jax.lax.dynamic_update_slice(done, new[None], (k.astype(jnp.int32), first)), left

    zero = jnp.zeros((rank, 2 * m), G.dtype)
    done, _ = jax.lax.fori_loop(first, jnp.int32(rank), row, (zero, jnp.diagonal(G)))
    return done[:, :m].T, done[:, m:].T


def _apply(matrix: Array, vector: Array) -> Array:
    # Not `@`: it asks for a result type, which vmap of a conditional would turn back into float32.
    return jax.lax.dot(jnp.asarray(matrix), jnp.asarray(vector))


def _basis(chart: SpanChart) -> Array:
    return chart.basis[0].astype(jnp.float64) + chart.basis[1].astype(jnp.float64)


def _coordinates(chart: SpanChart, inner: Array) -> Array:
    with jax.enable_x64(True):
        return _apply(_basis(chart).T, inner)


def _mean(values: Array, m: Array) -> Array:
    """The mean of each row over the mask."""
    return _apply(values, m) / jnp.maximum(m.sum(), 1.0)


def _centred_gram(cross: Array, within: Array, to: Array, m: Array) -> Array:
    """<x_i - x0, y_j - x0> from squares: `cross` |x_i - y_j|^2, `within` |x_i - x_k|^2, `to` |x_k - y_j|^2."""
    grand = _mean(_mean(within, m)[None], m)
    gram = -0.5 * (cross - _mean(within, m)[:, None] - _mean(to.T, m)[None] + grand)
    other = m if cross.shape[1] == len(m) else jnp.ones(cross.shape[1], m.dtype)
    return gram * m[:, None] * other
