"""From edge values back to vectors: a least-squares covector at each node (`eq:lifting_ls_h`, `eq:lifting_metric`).

The covector h of a neighbourhood minimises sum_j w_j (<h, dx_j> - y_j)^2 + ridge |h|^2, in coordinates in which M is I,
so that neither unit nor axes of the metric count. With Z the rows w_j^1/2 dx_j and v = w^1/2 y, the primal form solves
(Z^T Z + ridge I) h = Z^T v, d equations; the dual form is h = Z^T (Z Z^T + ridge I)^-1 v, as many equations as
neighbours (Woodbury). They agree up to rounding. With no ridge, a neighbourhood that does not span the space gives the
smallest h.
"""

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.geometry.metric import Euclidean, Metric
from hpml.projection.discrete.chunks import in_chunks
from hpml.projection.discrete.graph import SampleGraph
from hpml.projection.discrete.scale import power_of_two

ENTRIES = 1 << 19  # numbers in one batch of neighbourhoods: 4 MB an array
FLAT = 1e-10  # eigenvalues below this share of the largest are directions that the neighbourhood does not see


def lift_flow(
    graph: SampleGraph,
    points: Float[Array, "n d"],
    flow: Float[Array, " m"],
    ridge: float = 0.0,
    form: str | None = None,
    metric: Metric | None = None,
) -> Float[Array, "n d"]:
    """The vector M^-1 h^i at each node whose covector h^i fits an edge flow on the node's edges (`eq:lifting_metric`).

    A potential is lifted as its flow B phi. Turning an edge around changes the sign of both dx and its value, so each
    edge enters the fits at its two ends in the same way.
    """
    metric = Euclidean() if metric is None else metric
    given = np.asarray(points)
    X = np.asarray(metric.whiten(given)) if metric.constant else given
    tail, head = (np.ascontiguousarray(end) for end in np.asarray(graph.edges).T)
    m, n, d = len(tail), graph.count, X.shape[1]
    out = np.zeros((n, d))
    # Incident edges of each node, one row a node; nodes of one degree are then solved as one batch, with no padding.
    incident = sp.coo_matrix(
        (np.zeros(2 * m, np.int8), (np.concatenate([tail, head]), np.tile(np.arange(m), 2))), shape=(n, m)
    ).tocsr()
    degree = np.diff(incident.indptr)
    ranked = np.argsort(degree, kind="stable")
    for size in np.unique(degree[degree > 0]):
        left, right = np.searchsorted(degree, [size, size + 1], sorter=ranked)
        nodes = ranked[left:right]

        def fit(piece: slice, nodes: np.ndarray = nodes, size: int = int(size)) -> None:
            some = nodes[piece]
            e = incident.indices[incident.indptr[some][:, None] + np.arange(size)]
            step = X.take(head.take(e), 0) - X.take(tail.take(e), 0)
            if not metric.constant:
                step = np.asarray(metric.whiten(step, np.broadcast_to(given[some][:, None], step.shape)))
            out[some] = fit_covector(step, flow.take(e), graph.weights.take(e), ridge, form)

        in_chunks(fit, len(nodes), max(1, ENTRIES // (int(size) * d)))
    return np.asarray(metric.unwhiten(out, given))


def fit_covector(
    steps: Float[Array, "q k d"],
    values: Float[Array, "q k"],
    weights: Float[Array, "q k"],
    ridge: float = 0.0,
    form: str | None = None,
) -> Float[Array, "q d"]:
    """h for each of q neighbourhoods of k steps, by the "primal" or "dual" form; None takes the smaller system."""
    k, d = steps.shape[1:]
    root = np.sqrt(weights)
    scale = power_of_two(values)  # Z^T v has the units of points^2 times field, which float64 may not hold
    Z, v = steps * root[..., None], values / scale * root
    if (form or ("primal" if d <= k else "dual")) == "primal":
        gram = Z.transpose(0, 2, 1) @ Z
        return scale * solve_semidefinite(gram, np.einsum("qkd,qk->qd", Z, v), ridge)
    gram = Z @ Z.transpose(0, 2, 1)
    return scale * np.einsum("qkd,qk->qd", Z, solve_semidefinite(gram, v, ridge))


def solve_semidefinite(
    matrix: Float[Array, "q s s"], right: Float[Array, "q s"], ridge: float = 0.0
) -> Float[Array, "q s"]:
    """(A + ridge I)^-1 b for a batch of semidefinite A; the pseudo-inverse where A + ridge I is close to singular."""
    s = matrix.shape[-1]
    A = matrix + ridge * np.eye(s) if ridge else matrix
    mean = np.trace(A, axis1=-2, axis2=-1) / s
    safe = np.where(mean > 0, mean, 1.0)
    A, b = A / safe[:, None, None], right / safe[:, None]
    # det <= e * (smallest eigenvalue) once the mean eigenvalue is 1, so a determinant that is not small is enough.
    regular = np.linalg.det(A) > 1e-6
    out = np.empty_like(b)
    out[regular] = np.linalg.solve(A[regular], b[regular][..., None])[..., 0]
    odd = ~regular
    if odd.any():
        values, vectors = np.linalg.eigh(A[odd])
        seen = values > FLAT * np.maximum(values[:, -1:], 1e-300)
        inverse = np.divide(1.0, values, out=np.zeros_like(values), where=seen)
        out[odd] = np.einsum("qij,qj,qkj,qk->qi", vectors, inverse, vectors, b[odd], optimize=True)
    return out
