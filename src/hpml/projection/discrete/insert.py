"""New points in the sample graph (`rem:query_point_graph`): each is joined to its k nearest samples.

The field at a new point is unknown, so its value comes from a weighted affine fit y_j = c + <h, x_j - x> to what its
neighbours hold: c interpolates, h is a gradient. Constants pass exactly, and affine functions too up to the ridge.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from hpml.geometry.arrays import Array
from hpml.geometry.metric import Metric
from hpml.projection.discrete.graph import edge_weights
from hpml.projection.discrete.lift import fit_covector, solve_semidefinite
from hpml.projection.discrete.neighbours import nearest


@dataclass(frozen=True)
class Insertion:
    """The edges from q new points to their k nearest samples, closest first."""

    index: Int[Array, "q k"]
    steps: Float[Array, "q k d"]  # x_j - x
    whitened: Float[Array, "q k d"]  # the same where M at x is I
    weights: Float[Array, "q k"]
    distance: Float[Array, "q k"]


def insert_points(
    queries: Float[Array, "q d"], points: Float[Array, "n d"], metric: Metric, k: int, weighting: str
) -> Insertion:
    """Join new points to the samples by edges weighted as the graph's are."""
    found = nearest(np.asarray(queries), np.asarray(points), metric, k)
    index, distance = np.empty_like(found.index), np.empty_like(found.distance)
    index[found.rows], distance[found.rows] = found.index, found.distance
    steps = points[index] - queries[:, None]
    whitened = np.asarray(metric.whiten(steps, np.broadcast_to(queries[:, None], steps.shape)))
    return Insertion(index, steps, whitened, edge_weights(distance, weighting), distance)


def interpolation_weights(new: Insertion, ridge: float) -> Float[Array, "q k"]:
    """l with c = sum_j l_j y_j, the affine fit's value at the new point; the ridge falls on its gradient."""
    p = new.weights / new.weights.sum(1, keepdims=True)
    mean = np.einsum("qk,qkd->qd", p, new.whitened)
    root = np.sqrt(p)
    Z = (new.whitened - mean[:, None]) * root[..., None]
    # p sums to one where the graph's weights do not: the same share of ridge.
    shrink = ridge / new.weights.sum(1)
    k, d = Z.shape[1:]
    if d <= k:
        gram = Z.transpose(0, 2, 1) @ Z + shrink[:, None, None] * np.eye(d)
        tilt = np.einsum("qkd,qd->qk", Z, solve_semidefinite(gram, mean))
    else:
        gram = Z @ Z.transpose(0, 2, 1) + shrink[:, None, None] * np.eye(k)
        tilt = solve_semidefinite(gram, np.einsum("qkd,qd->qk", Z, mean))
    return p - root * tilt


def fit_gradient(new: Insertion, values: Float[Array, "q k"], ridge: float) -> Float[Array, "q d"]:
    """h of the affine fit to the neighbours' values, where M is I."""
    p = new.weights / new.weights.sum(1, keepdims=True)
    steps = new.whitened - np.einsum("qk,qkd->qd", p, new.whitened)[:, None]
    return fit_covector(steps, values - (p * values).sum(1, keepdims=True), new.weights, ridge)
