"""The graph Poisson equation L phi = B^T W omega (`eq:graph_poisson`) by three solvers.

- "cholesky": dense, for small graphs. Each component's constant is added to the Laplacian, which makes it definite and
  fixes the gauge exactly; a pinned node would spread its rounding over the whole component.
- "amg": conjugate gradients behind aggregation multigrid, for graphs that look like a curve, a surface or a solid.
- "cg": conjugate gradients behind the diagonal. Above three intrinsic dimensions a graph mixes so fast that it needs
  some tens of steps; it also runs on a GPU, edge by edge, where JAX finds one.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse as sp
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.projection.discrete.graph import SampleGraph
from hpml.projection.discrete.multigrid import aggregation_cycle

SOLVERS = ("cholesky", "amg", "cg")

# |L phi - b| / |b| where the iterations stop: two digits below the 1e-9 that orthogonality and Pythagoras are held to.
TOLERANCE = 1e-11
DENSE_COUNT = {"cpu": 600, "gpu": 1_000}  # measured, two cores and an H200: iterations win above
AMG_COUNT = 20_000  # below it the hierarchy costs more than the plain iterations that it saves
AMG_DIMENSION = 3.5  # pyamg pays up to an intrinsic dimension of about three
AMG_COMPONENTS = 100  # each component keeps a node on the coarsest level, which is solved densely
MAX_ITERATIONS = 20_000
PATIENCE = {"amg": 50, "cg": 1_000}  # steps without halving the residual before rounding is taken for the cause
ROUNDING = 1e-14  # of a sum of some tens of edge flows


class PoissonSolution(eqx.Module):
    """phi, mean zero on every component, and how it was found; `residual` is |L phi - b| / |b|."""

    potential: Float[Array, " n"]
    solver: str = eqx.field(static=True)
    iterations: int = eqx.field(static=True)
    residual: float = eqx.field(static=True)


def solve_poisson(graph: SampleGraph, omega: Float[Array, " m"], solver: str | None = None) -> PoissonSolution:
    """The least-squares potential of an edge flow (`def:disc_proj`).

    Solves L phi = b with L = B^T W B and b = B^T W omega. `solver=None` chooses from size, dimension and device.
    """
    if solver is None:
        solver = choose_solver(graph)
    if solver not in SOLVERS:
        raise ValueError(f"solver must be one of {', '.join(SOLVERS)} or None; got {solver!r}.")
    flow = np.asarray(graph.weights * omega, np.float64)
    # A power of two near the largest entry: exact, and no weight or field scale can over- or underflow the iterations.
    scale = np.exp2(np.round(np.log2(np.abs(flow).max(initial=0.0) or 1.0)))
    flow = flow / scale
    b = np.asarray(centre(divergence(graph, flow), graph))
    # A flow that circulates only has no divergence but rounding: at most some eps of what passes through the nodes.
    passing = np.bincount(graph.edges.reshape(-1), np.repeat(np.abs(flow), 2), graph.count)
    if np.linalg.norm(b) <= ROUNDING * np.linalg.norm(passing):
        return PoissonSolution(np.zeros(graph.count), solver, 0, 0.0)
    if solver == "cholesky":
        phi, iterations, residual = _cholesky(graph, b)
    elif solver == "cg" and device() == "gpu":
        phi, iterations, residual = _cg_edges(graph, b)
    else:
        phi, iterations, residual = _cg_rows(graph, b, multigrid=solver == "amg")
    return PoissonSolution(centre(phi, graph) * scale, solver, iterations, residual)


def choose_solver(graph: SampleGraph) -> str:
    """The solver that was fastest for graphs of this size, dimension and device."""
    if graph.count <= DENSE_COUNT[device()]:
        return "cholesky"
    low = graph.dimension <= AMG_DIMENSION and graph.components <= AMG_COMPONENTS
    return "amg" if low and graph.count >= AMG_COUNT and device() == "cpu" else "cg"


def device() -> str:
    """Where JAX computes: "cpu" or "gpu"."""
    return "cpu" if jax.default_backend() == "cpu" else "gpu"


def divergence(graph: SampleGraph, flow: Float[Array, " m"]) -> Float[Array, " n"]:
    """B^T u: what flows into each node less what flows out."""
    i, j = graph.edges[:, 0], graph.edges[:, 1]
    return np.bincount(j, flow, graph.count) - np.bincount(i, flow, graph.count)


def centre(potential: Float[Array, " n"], graph: SampleGraph) -> Float[Array, " n"]:
    """The potential with its mean on each connected component taken out."""
    sizes = np.bincount(graph.labels)
    return potential - (np.bincount(graph.labels, potential) / sizes)[graph.labels]


def laplacian(graph: SampleGraph, order: np.ndarray | None = None) -> sp.csr_matrix:
    """L = B^T W B, its nodes in the given order."""
    n = graph.count
    i, j = graph.edges[:, 0], graph.edges[:, 1]
    if order is not None:
        rank = np.empty(n, np.int32)
        rank[order] = np.arange(n, dtype=np.int32)
        i, j = rank[i], rank[j]
    half = sp.coo_matrix((graph.weights, (i, j)), shape=(n, n)).tocsr()
    adjacency = half + half.T
    return (sp.diags(np.asarray(adjacency.sum(1)).ravel()) - adjacency).tocsr()


def conjugate_gradients(
    apply: Callable[[np.ndarray], np.ndarray],
    b: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray],
    tolerance: float = TOLERANCE,
    patience: int = PATIENCE["cg"],
) -> tuple[np.ndarray, int, float]:
    """x with A x = b for a semidefinite A and b in its range, the number of steps, and |A x - b| / |b|.

    The step length is the flexible (Polak-Ribiere) one, which forgives a preconditioner in float32. It stops early
    where rounding lets the residual fall no further: with hardly any potential in the flow, |b| is rounding itself.
    """
    x, r = np.zeros_like(b), b.copy()
    whole = size = float(np.linalg.norm(b))
    kept, kept_size, kept_step, steps = x.copy(), size, 0, 0
    z = precondition(r)
    p, rz = z.copy(), r @ z
    while size > tolerance * whole and steps - kept_step < patience and steps < MAX_ITERATIONS:
        q = apply(p)
        curvature = p @ q
        if not curvature > 0:
            break
        alpha = rz / curvature
        x += alpha * p
        r -= alpha * q
        steps += 1
        size = float(np.linalg.norm(r))
        if size < 0.5 * kept_size:
            kept, kept_size, kept_step = x.copy(), size, steps
        z = precondition(r)
        p *= -alpha * (z @ q) / rz  # z @ (r - last r) is -alpha z @ q
        p += z
        rz = z @ r
    best = x if size <= tolerance * whole else kept
    return best, steps, float(np.linalg.norm(apply(best) - b) / whole)


def _cg_rows(graph: SampleGraph, b: np.ndarray, multigrid: bool) -> tuple[np.ndarray, int, float]:
    """Conjugate gradients on the CPU, row by row of L, its rows in an order that keeps neighbours close."""
    order = np.arange(graph.count) if graph.order is None else np.asarray(graph.order)
    L = laplacian(graph, order)
    if multigrid:
        precondition = aggregation_cycle(L)
    else:
        diagonal = L.diagonal()
        inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
        precondition = inverse.__mul__
    solution, steps, residual = conjugate_gradients(
        L.__matmul__, b[order], precondition, patience=PATIENCE["amg" if multigrid else "cg"]
    )
    phi = np.empty_like(b)
    phi[order] = solution
    return phi, steps, residual


def _cholesky(graph: SampleGraph, b: np.ndarray) -> tuple[np.ndarray, int, float]:
    n, (i, j) = graph.count, graph.edges.T
    degree = np.bincount(i, graph.weights, n) + np.bincount(j, graph.weights, n)
    # S L S + T with S = degree^-1/2 has a unit diagonal; T spans the null vectors degree^1/2 1_c and moves no other.
    root = np.sqrt(np.where(degree > 0, degree, 1.0))
    A = np.zeros((n, n))
    A[i, j] = A[j, i] = -graph.weights / (root[i] * root[j])
    A[np.arange(n), np.arange(n)] = degree > 0
    share = root / np.sqrt(np.bincount(graph.labels, root**2))[graph.labels]
    A += np.where(graph.labels[:, None] == graph.labels, share[:, None] * share, 0.0)
    if device() == "gpu":
        with jax.enable_x64(True):
            phi = np.asarray(jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(jnp.asarray(A)), b / root)) / root
    else:
        phi = scipy.linalg.cho_solve(scipy.linalg.cho_factor(A, overwrite_a=True, check_finite=False), b / root) / root
    step = phi[j] - phi[i]
    return phi, 1, float(np.linalg.norm(divergence(graph, graph.weights * step) - b) / np.linalg.norm(b))


def _cg_edges(graph: SampleGraph, b: np.ndarray) -> tuple[np.ndarray, int, float]:
    """Conjugate gradients where JAX computes, with no matrix: a product is one gather and one scatter of the edges."""
    with jax.enable_x64(True):
        i, j = (jnp.asarray(end, jnp.int32) for end in graph.edges.T)
        phi, steps, residual = _edge_iterations(i, j, jnp.asarray(graph.weights), jnp.asarray(b), MAX_ITERATIONS)
        return np.asarray(phi), int(steps), float(residual)


@jax.jit
def _edge_iterations(i, j, w, b, limit):
    n = b.shape[0]

    def apply(x):
        flow = w * (x[j] - x[i])
        return jax.ops.segment_sum(flow, j, n) - jax.ops.segment_sum(flow, i, n)

    degree = jax.ops.segment_sum(w, j, n) + jax.ops.segment_sum(w, i, n)
    inverse = jnp.where(degree > 0, 1.0 / jnp.where(degree > 0, degree, 1.0), 0.0)
    goal = TOLERANCE * jnp.linalg.norm(b)

    def going(state):
        *_, best_size, since, steps = state
        return (best_size > goal) & (since < PATIENCE["cg"]) & (steps < limit)

    def step(state):
        x, r, p, rz, best, best_size, since, steps = state
        q = apply(p)
        alpha = rz / jnp.maximum(p @ q, jnp.finfo(p.dtype).tiny)
        x, r = x + alpha * p, r - alpha * q
        size = jnp.linalg.norm(r)
        better = size < best_size
        best = jnp.where(better, x, best)
        z = inverse * r
        new = r @ z
        return (
            x,
            r,
            z + (new / rz) * p,
            new,
            best,
            jnp.minimum(size, best_size),
            jnp.where(better, 0, since + 1),
            steps + 1,
        )

    z = inverse * b
    x = jnp.zeros_like(b)
    start = (x, b, z, b @ z, x, jnp.linalg.norm(b), jnp.int32(0), jnp.int32(0))
    *_, best, _, _, steps = jax.lax.while_loop(going, step, start)
    return best, steps, jnp.linalg.norm(apply(best) - b) / jnp.linalg.norm(b)
