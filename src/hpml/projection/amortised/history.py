"""A potential network on a trainer's history: fixed shapes, all of it under jit (`alg:neural-hpml`, `alg:ctde-hpml`).

The online network is carried from refresh to refresh. A refresh may turn the chart, so the network keeps a frame of its
own, and the turn is found from the rows that are still the same points.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from hpml.geometry.arrays import Array
from hpml.projection.amortised.network import (
    PotentialNetwork,
    Recipe,
    descend,
    least_squares_bowl,
    optimiser,
    whole_products,
)
from hpml.projection.projector import LocalSamples

RIDGE = 0.1  # of the bowl that a periodic refresh starts at: a history has about as many rows as coordinates
UNSEEN = 0.01  # a direction with this share of the typical spread counts for half


class HistoryState(eqx.Module):
    """The network of a history inside its chart.

    Network coordinates are z = frame (x - centre) / scale, and the field is `strength` times the network's gradient.
    `seen` keeps the directions in which the points spread and removes the others; `radius` is the furthest row's |z|.
    `points` and `mask` are the last refresh's, to find how the chart has turned since.
    """

    network: PotentialNetwork
    moments: Any
    frame: Float[Array, "r r"]
    centre: Float[Array, " r"]
    scale: Float[Array, ""]
    strength: Float[Array, ""]
    seen: Float[Array, "r r"]
    radius: Float[Array, ""]
    points: Float[Array, "n r"]
    mask: Bool[Array, " n"]


def init_history(recipe: Recipe, count: int, rank: int, width: int, depth: int, key: jax.Array) -> HistoryState:
    """A state that has seen nothing, so that its residual is zero."""
    network = PotentialNetwork(rank, width, depth, key)
    one, eye = jnp.ones((), jnp.float32), jnp.eye(rank, dtype=jnp.float32)
    rows, mask = jnp.zeros((count, rank), jnp.float32), jnp.zeros(count, bool)
    return HistoryState(
        network,
        optimiser(recipe).init(network),
        eye,
        jnp.zeros(rank, jnp.float32),
        one,
        one,
        0.0 * eye,
        one,
        rows,
        mask,
    )


@whole_products
def fit_history(recipe: Recipe, online: bool, steps: int, state: HistoryState, samples: LocalSamples) -> HistoryState:
    """Train on the valid rows: from the carried network when online, else anew from the least-squares bowl.

    With fewer than two distinct rows nothing is seen, and the network stays as it was.
    """
    mask = samples.mask
    x = jnp.where(mask[:, None], jnp.asarray(samples.points, jnp.float32), 0.0)
    F = jnp.where(mask[:, None], jnp.asarray(samples.field, jnp.float32), 0.0)
    w = mask / jnp.maximum(mask.sum(), 1)
    centre = w @ x
    gaps = jnp.where(mask[:, None], x - centre, 0.0)
    scale, strength = _rms(gaps, w), _rms(F, w)
    C = (gaps * w[:, None]).T @ gaps / scale**2
    enough = jnp.trace(C) > 0.5  # the trace is 1, or 0 where all rows are equal

    if online:
        frame, network, moments = _turn(state, x, mask), state.network, state.moments
    else:
        frame = jnp.eye(x.shape[1], dtype=jnp.float32)
        # With the last layer back at zero the carried hidden weights serve as fresh ones.
        last = (jnp.zeros_like(state.network.weights[-1]), jnp.zeros_like(state.network.biases[-1]))
        bowl = least_squares_bowl(gaps / scale, F / strength, w, RIDGE)
        network = eqx.tree_at(
            lambda net: (net.weights[-1], net.biases[-1], net.slope, net.curvature), state.network, (*last, *bowl)
        )
        moments = jax.tree.map(jnp.zeros_like, state.moments)
    network, moments = descend(recipe, network, moments, gaps / scale @ frame.T, F / strength @ frame.T, w, steps)

    typical = jnp.trace(C @ C) / jnp.maximum(jnp.trace(C), 1e-12)
    seen = jnp.linalg.solve(C + (UNSEEN * typical + 1e-12) * jnp.eye(len(C)), C)
    radius = jnp.max(jnp.linalg.norm(gaps, axis=1)) / scale
    new = HistoryState(network, moments, frame, centre, scale, strength, seen, radius, x, mask)
    blind = eqx.tree_at(lambda s: s.seen, state, jnp.zeros_like(state.seen))
    fine = enough & jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(network)]))
    return jax.tree.map(lambda a, b: jnp.where(fine, a, b).astype(jnp.asarray(b).dtype), new, blind)


@whole_products
def history_residual(state: HistoryState, point: Float[Array, " r"], field: Float[Array, " r"]) -> Float[Array, " r"]:
    """Field minus direction where the history can tell, else zero.

    Only the directions in which the history spreads are kept, and the whole fades as a Gaussian where the point lies
    further from the history's centre than any of its rows: the network says nothing there.
    """
    x, F = jnp.asarray(point, jnp.float32), jnp.asarray(field, jnp.float32)
    z = state.frame @ (x - state.centre) / state.scale
    direction = state.frame.T @ jax.grad(lambda at: state.network(at))(z) * state.strength
    excess = jnp.maximum(jnp.linalg.norm(z) / jnp.maximum(state.radius, 1e-6) - 1.0, 0.0)
    residual = jnp.exp(-4.0 * excess**2) * (state.seen @ (F - direction))
    return jnp.where(jnp.isfinite(residual), residual, 0.0).astype(jnp.asarray(field).dtype)


def _turn(state: HistoryState, x: Float[Array, "n r"], mask: Bool[Array, " n"]) -> Float[Array, "r r"]:
    """The frame that carries new chart coordinates onto the old network coordinates (orthogonal Procrustes).

    Rows replaced since would pull at it: after a first fit, rows that miss by more than twice the median are left out.
    """
    both = (mask & state.mask).astype(jnp.float32)
    old = state.points @ state.frame.T

    def procrustes(w):
        total = jnp.maximum(w.sum(), 1.0)
        a, b = (x - w @ x / total) * w[:, None], (old - w @ old / total) * w[:, None]
        # The small identity settles the directions that no row has.
        U, _, Vt = jnp.linalg.svd(b.T @ a + (1e-6 * jnp.sum(a * a) / len(x) + 1e-20) * jnp.eye(x.shape[1]))
        return U @ Vt, jnp.linalg.norm(a @ (U @ Vt).T - b, axis=1)

    turn, miss = procrustes(both)
    typical = jnp.nanmedian(jnp.where(both > 0, miss, jnp.nan))
    kept = both * (miss <= 2.0 * jnp.nan_to_num(typical) + 1e-12)
    again, _ = procrustes(kept)
    turn = jnp.where(kept.sum() >= 2, again, turn)
    return jnp.where(both.sum() >= 2, turn, state.frame)


def _rms(rows, w):
    value = jnp.sqrt(w @ jnp.sum(rows**2, -1))
    return jnp.where(value > 0, value, 1.0)
