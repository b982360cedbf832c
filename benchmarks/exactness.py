"""How exact the graph split and the affine oracle are: orthogonality, and agreement with independent solves.

    python benchmarks/exactness.py

Orthogonality is the largest |<B psi, cyclic>_W| / (|B psi|_W |omega|_W) over rough and smooth psi (`lem:disc_orth`),
Pythagoras the relative defect of the energies (`cor:disc_pythag`), both to hold to 1e-9. On graphs small enough for
scipy's dense lstsq, potential and cyclic flow are compared with its answer, to hold to 1e-8.

The affine oracle is compared with scipy's Lyapunov solver. Its residual R must be orthogonal to the gradients of
quadratics under the Gaussian, by quadrature that is exact for them: the largest |<R, grad psi>_M| over the two lengths.
Both to hold to 1e-6.
"""

import numpy as np
import scipy.linalg
from rich.console import Console
from rich.table import Table

import hpml
from hpml.projection.discrete.graph import make_graph

CASES = [(300, 3, None), (1_000, 3, 16), (1_000, 10, None), (5_000, 2, 16), (20_000, 3, 16), (50_000, 6, 16)]
DENSE = 1_000  # most nodes for lstsq
DIMENSIONS = (2, 3, 5, 20)  # of affine fields


def main() -> None:
    table = Table(title="exactness of the graph split")
    for column in ("n", "d", "edges", "solver", "steps", "orthogonality", "Pythagoras", "lstsq: potential", "cyclic"):
        table.add_column(column, justify="right")
    worst = np.zeros(3)
    for n, d, k in CASES:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n, d))
        turn = rng.normal(size=(d, d))
        F = -X - np.sin(2 * X) + X @ (turn - turn.T)
        solvers = ("cholesky", "amg", "cg") if n <= 5_000 else ("amg", "cg")
        for solver in solvers:
            p = hpml.project(X, F, hpml.GraphProjector(neighbours=k, solver=solver))
            orthogonality, pythagoras = defects(p.flow, X, rng)
            agreement = least_squares(p.flow, n) if n <= DENSE else None
            worst = np.maximum(worst, [orthogonality, pythagoras, max(agreement or (0.0, 0.0))])
            shown = [f"{value:.1e}" for value in agreement] if agreement else ["", ""]
            table.add_row(
                f"{n:,}",
                str(d),
                f"{len(p.flow.edges):,}",
                solver,
                str(p.fit.solution.iterations),
                f"{orthogonality:.1e}",
                f"{pythagoras:.1e}",
                *shown,
            )
    console = Console(width=max(Console().width, 120))  # a pipe has 80 columns, too few for the table
    console.print(table)
    for name, value, target in zip(("orthogonality", "Pythagoras", "lstsq"), worst, (1e-9, 1e-9, 1e-8), strict=True):
        console.print(said(name, value, target))
    show_oracle(console)


def said(name: str, value: float, target: float) -> str:
    return f"{name}: {value:.1e} at worst ({'met' if value <= target else 'missed'}, target {target:g})"


def show_oracle(console: Console) -> None:
    table = Table(title="the affine oracle, anisotropic Gaussians")
    for column in ("d", "metric", "Lyapunov", "orthogonality"):
        table.add_column(column, justify="right")
    worst = np.zeros(2)
    for d in DIMENSIONS:
        rng = np.random.default_rng(d)
        J, root, factor = rng.normal(size=(3, d, d))
        C = root @ root.T / d + 0.1 * np.eye(d)
        for metric in (
            hpml.Euclidean(),
            hpml.Diagonal(rng.uniform(0.5, 2.0, d)),
            hpml.Dense(factor @ factor.T + np.eye(d)),
        ):
            found = oracle_defects(J, C, metric)
            worst = np.maximum(worst, found)
            table.add_row(str(d), type(metric).__name__, *(f"{value:.1e}" for value in found))
    console.print(table)
    console.print(said("affine oracle", worst.max(), 1e-6))


def oracle_defects(J: np.ndarray, C: np.ndarray, metric) -> tuple[float, float]:
    d = len(J)
    p = hpml.affine_projection(J, covariance=C, metric=metric)
    M = np.stack([np.asarray(metric.lower(e)) for e in np.eye(d)], 1)
    # M^-1 H C + C H M^-1 = J C + C J^T, from both sides with M: (M C) H + H (M C)^T.
    H = scipy.linalg.solve_continuous_lyapunov(M @ C, M @ (J @ C + C @ J.T) @ M)
    agreement = np.abs(p.hessian - H).max() / np.abs(H).max()

    # Sigma points +-sqrt(d) along the axes have a Gaussian's second moments, which are all that these products need.
    X = np.sqrt(d) * np.concatenate([np.eye(d), -np.eye(d)]) @ np.linalg.cholesky(C).T
    R, F = p.residual(X), X @ J.T
    size = np.sqrt(np.mean(np.asarray(metric.inner(F, F))))
    worst = 0.0
    for psi in np.random.default_rng(d).normal(size=(20, d, d)):
        gradient = np.asarray(metric.raise_index(X @ (psi + psi.T)))
        length = np.sqrt(np.mean(np.asarray(metric.inner(gradient, gradient))))
        worst = max(worst, abs(np.mean(np.asarray(metric.inner(R, gradient)))) / (size * length))
    return float(agreement), float(worst)


def defects(flow, X: np.ndarray, rng: np.random.Generator) -> tuple[float, float]:
    i, j, w = *flow.edges.T, flow.weights
    size = np.sqrt(w @ flow.omega**2)
    worst = 0.0
    for psi in (rng.normal(size=len(X)), X[:, 0], np.cos(X[:, 1]), flow.node_potential):
        gradient = psi[j] - psi[i]
        worst = max(worst, abs(gradient @ (w * flow.cyclic)) / (np.sqrt(w @ gradient**2) * size))
    energies = w @ flow.potential**2 + w @ flow.cyclic**2
    return worst, abs(energies - size**2) / size**2


def least_squares(flow, count: int) -> tuple[float, float]:
    graph = make_graph(flow.edges, flow.weights, count)
    root, B = np.sqrt(flow.weights), graph.incidence().toarray()
    phi = scipy.linalg.lstsq(root[:, None] * B, root * flow.omega, cond=1e-11)[0]
    phi -= (np.bincount(graph.labels, phi) / np.bincount(graph.labels))[graph.labels]
    cyclic = flow.omega - B @ phi
    return tuple(
        float(np.abs(ours - theirs).max() / np.abs(theirs).max())
        for ours, theirs in ((flow.node_potential, phi), (flow.cyclic, cyclic))
    )


if __name__ == "__main__":
    main()
