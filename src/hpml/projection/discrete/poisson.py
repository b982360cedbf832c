"""The graph Poisson equation L phi = B^T W omega (`eq:graph_poisson`) by three solvers.

- "cholesky": dense, for small graphs. Each component's constant is added to the Laplacian, which makes it definite and
  fixes the gauge exactly; a pinned node would spread its rounding over the whole component.
- "amg": conjugate gradients behind aggregation multigrid, for graphs that look like a curve, a surface or a solid.
- "cg": conjugate gradients behind the diagonal. Above three intrinsic dimensions a graph mixes so fast that it needs
  some tens of steps; it also runs on a GPU, edge by edge, where JAX finds one.

Iterations that end short of the tolerance are taken over by the other preconditioner, and what is still short is warned
about. Residuals r are measured as |D^-1/2 r|, D the degrees: next to heavy edges, |r| would not see the light ones.
"""

import warnings
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse as sp
from jaxtyping import Float, Int

from hpml.geometry.arrays import Array
from hpml.projection.discrete.graph import SampleGraph
from hpml.projection.discrete.multigrid import aggregation_cycle
from hpml.projection.discrete.scale import power_of_two

SOLVERS = ("cholesky", "amg", "cg")

# The relative residual where iterations stop: two digits below the 1e-9 that orthogonality and Pythagoras are held to.
TOLERANCE = 1e-11
DENSE_COUNT = {"cpu": 600, "gpu": 1_000}  # measured, two cores and an H200: iterations win above
AMG_COUNT = 20_000  # below it the hierarchy costs more than the plain iterations that it saves
AMG_DIMENSION = 3.5  # pyamg pays up to an intrinsic dimension of about three
MAX_ITERATIONS = 20_000
PATIENCE = {"amg": 50, "cg": 1_000}  # steps without halving the residual before rounding is taken for the cause
ROUNDING = 1e-14  # of a sum of some tens of edge flows
EXCUSED = 1e-9  # what rounding may leave of a residual with no warning


class ConvergenceWarning(UserWarning):
    """A solve stopped short of its tolerance."""


class PoissonSolution(eqx.Module):
    """phi, mean zero on every component, and how it was found; `residual` is |L phi - b| / |b| in D^-1."""

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
    scale = power_of_two(flow)  # no weight or field scale can over- or underflow the iterations
    flow = flow / scale
    b = np.asarray(centre(divergence(graph, flow), graph))
    # A flow that circulates only has no divergence but rounding: at most some eps of what passes through the nodes.
    passing = np.bincount(graph.edges.reshape(-1), np.repeat(np.abs(flow), 2), graph.count)
    if np.linalg.norm(b) <= ROUNDING * np.linalg.norm(passing):
        return PoissonSolution(np.zeros(graph.count), solver, 0, 0.0)
    degree = np.bincount(graph.edges.reshape(-1), np.repeat(graph.weights, 2), graph.count)
    if solver == "cholesky":
        phi, iterations, residual = _cholesky(graph, b, degree)
    elif solver == "cg" and device() == "gpu":
        phi, iterations, residual = _cg_edges(graph, b)
        if not converged(residual, degree, phi, b):
            phi, iterations, residual = _cg_rows(graph, b, degree, "amg")
    else:
        phi, iterations, residual = _cg_rows(graph, b, degree, solver)
    phi = np.asarray(centre(phi, graph))
    if not converged(residual, degree, phi, b):
        warnings.warn(
            f"The Poisson solve ({solver}) stopped at a relative residual of {residual:.1e}, short of {TOLERANCE:.0e}, "
            "so the potential and its non-potentiality are inexact: take more neighbours, or weights that vary less.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return PoissonSolution(phi * scale, solver, iterations, residual)


def choose_solver(graph: SampleGraph) -> str:
    """The solver that was fastest for graphs of this size, dimension and device."""
    if graph.count <= DENSE_COUNT[device()]:
        return "cholesky"
    low = graph.dimension <= AMG_DIMENSION
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
    return mean_zero(graph.labels)(np.asarray(potential))


def mean_zero(labels: Int[Array, " n"]) -> Callable[[np.ndarray], np.ndarray]:
    """The projection onto what has mean zero on each component."""
    index = np.asarray(labels, np.intp)
    sizes = np.bincount(index)
    if len(sizes) == 1:
        return lambda x: x - x.mean()
    return lambda x: x - (np.bincount(index, x) / sizes)[index]


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


def converged(residual: float, degree: np.ndarray, phi: np.ndarray, b: np.ndarray) -> bool:
    """Whether a relative residual is at the tolerance, or, up to 1e-9, where the rounding of L phi would put it."""
    # Ten times that of one sum: the iterates have been added up as well.
    rounding = 10.0 * ROUNDING * np.linalg.norm(np.sqrt(degree) * phi) / np.linalg.norm(inverse_root(degree) * b)
    return residual <= max(TOLERANCE, min(float(rounding), EXCUSED))


def inverse_root(degree: np.ndarray) -> np.ndarray:
    """D^-1/2, zero at an isolated node."""
    return np.where(degree > 0, degree, np.inf) ** -0.5


def conjugate_gradients(
    apply: Callable[[np.ndarray], np.ndarray],
    b: np.ndarray,
    precondition: Callable[[np.ndarray], np.ndarray],
    tolerance: float = TOLERANCE,
    patience: int = PATIENCE["cg"],
    start: np.ndarray | None = None,
    units: np.ndarray | float = 1.0,
) -> tuple[np.ndarray, int, float]:
    """x with A x = b for a semidefinite A and b in its range, the number of steps, and |A x - b| / |b|.

    Residuals are measured after a product with `units`.

    The step length is the flexible (Polak-Ribiere) one, which forgives a preconditioner in float32. It stops early
    where rounding lets the residual fall no further: with hardly any potential in the flow, |b| is rounding itself.
    """
    x, r = (np.zeros_like(b), b.copy()) if start is None else (start.copy(), b - apply(start))
    whole, size = float(np.linalg.norm(units * b)), float(np.linalg.norm(units * r))
    kept, kept_size, kept_step, steps = x.copy(), size, 0, 0
    z = precondition(r)
    p, rz = z.copy(), r @ z
    while size > tolerance * whole and steps - kept_step < patience and steps < MAX_ITERATIONS:
        q = apply(p)
        curvature = p @ q
        if not (curvature > 0 and rz > 0):  # rounding, or a preconditioner that is not positive
            break
        alpha = rz / curvature
        x += alpha * p
        r -= alpha * q
        steps += 1
        size = float(np.linalg.norm(units * r))
        if size < 0.5 * kept_size:
            kept, kept_size, kept_step = x.copy(), size, steps
        z = precondition(r)
        p *= -alpha * (z @ q) / rz  # z @ (r - last r) is -alpha z @ q
        p += z
        rz = z @ r
    best = x if size <= tolerance * whole else kept
    return best, steps, float(np.linalg.norm(units * (apply(best) - b)) / whole)


def _cg_rows(graph: SampleGraph, b: np.ndarray, degree: np.ndarray, solver: str) -> tuple[np.ndarray, int, float]:
    """Conjugate gradients on the CPU, row by row of L, its rows in an order that keeps neighbours close."""
    order = np.arange(graph.count) if graph.order is None else np.asarray(graph.order)
    b, degree = b[order], degree[order]
    L = laplacian(graph, order)
    units = inverse_root(degree)
    inverse = units**2
    gauge = mean_zero(graph.labels[order])

    def preconditioner(name: str) -> Callable[[np.ndarray], np.ndarray]:
        if name == "cg":
            return lambda r: inverse * r
        cycle = aggregation_cycle(L, np.float32 if name == "amg" else np.float64)
        return lambda r: gauge(cycle(r))  # the cycle's constants do nothing for L phi but round it

    solution, steps = np.zeros_like(b), 0
    for name in ("amg", "amg, float64", "cg") if solver == "amg" else ("cg", "amg, float64"):
        patience = PATIENCE["cg" if name == "cg" else "amg"]
        solution, more, residual = conjugate_gradients(
            L.__matmul__, b, preconditioner(name), patience=patience, start=gauge(solution), units=units
        )
        steps += more
        if converged(residual, degree, solution, b):
            break
    phi = np.empty_like(b)
    phi[order] = solution
    return phi, steps, residual


def _cholesky(graph: SampleGraph, b: np.ndarray, degree: np.ndarray) -> tuple[np.ndarray, int, float]:
    n, (i, j) = graph.count, graph.edges.T
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
    r = divergence(graph, graph.weights * step) - b
    return phi, 1, float(np.linalg.norm(r / root) / np.linalg.norm(b / root))


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
    goal = TOLERANCE * jnp.sqrt(b @ (inverse * b))

    def going(state):
        *_, best_size, since, steps = state
        return (best_size > goal) & (since < PATIENCE["cg"]) & (steps < limit)

    def step(state):
        x, r, p, rz, best, best_size, since, steps = state
        q = apply(p)
        alpha = rz / jnp.maximum(p @ q, jnp.finfo(p.dtype).tiny)
        x, r = x + alpha * p, r - alpha * q
        z = inverse * r
        new = r @ z
        size = jnp.sqrt(new)
        better = size < best_size
        best = jnp.where(better, x, best)
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
    start = (x, b, z, b @ z, x, jnp.sqrt(b @ z), jnp.int32(0), jnp.int32(0))
    *_, best, _, _, steps = jax.lax.while_loop(going, step, start)
    r = apply(best) - b
    return best, steps, jnp.sqrt((r @ (inverse * r)) / (b @ z))
