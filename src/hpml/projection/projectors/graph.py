"""The graph projector: nearest neighbours, edge flow, Poisson solve, lift (`sec:discrete`, `alg:hodge-proj`)."""

from dataclasses import replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from hpml.geometry.arrays import Array
from hpml.geometry.metric import Metric
from hpml.geometry.samples import Measure, Samples
from hpml.projection.discrete.flow import EdgeFlow, edge_flow, energy_share, split_flow
from hpml.projection.discrete.graph import (
    WEIGHTINGS,
    SampleGraph,
    check_neighbours,
    default_neighbours,
    neighbour_graph,
    weigh_samples,
)
from hpml.projection.discrete.insert import Insertion, fit_gradient, insert_points, interpolation_weights
from hpml.projection.discrete.lift import lift_flow
from hpml.projection.discrete.local import LocalGraph, empty_local, fit_local, local_covectors
from hpml.projection.discrete.poisson import SOLVERS, PoissonSolution, solve_poisson
from hpml.projection.measure import measure_weights
from hpml.projection.projector import Energy, Fit, LocalSamples, Projector, mean_zero

LIFTS = ("residual", "potential")

BATCH = 1 << 22  # numbers in one batch of inserted points
ROUNDING = 1e-12  # of a point's coordinates, as a share of the samples' spread: some thousand eps


class GraphFit(Fit):
    """The split of one sample set on its graph.

    The potential has mean zero in the samples' weights on each connected component (`mean_zero`); `solution` keeps the
    solver's own, of plain mean zero over the distinct samples.
    """

    samples: Samples
    metric: Metric
    graph: SampleGraph
    flow: EdgeFlow
    solution: PoissonSolution
    node_direction: Float[Array, "n d"]
    split_energy: Energy
    neighbours: int = eqx.field(static=True)
    weighting: str = eqx.field(static=True)
    lift: str = eqx.field(static=True)
    ridge: float = eqx.field(static=True)

    @property
    def method(self) -> str:
        """See `Projection.method`."""
        return f"graph, {self.solution.solver}"

    def at_samples(self):
        """See `Fit.at_samples`."""
        return self.flow.node_potential, self.node_direction

    def potential(self, points):
        """The potential at new points, relative to the component of the nearest sample (`rem:query_point_graph`).

        With the residual lift it follows the trapezoid rule along the edges to the neighbours, which is exact for a
        quadratic potential; with the potential lift it is the affine fit to the neighbours' potentials.
        """
        return self._inserted(points)[0]

    def direction(self, points):
        """The projected field at new points (`rem:query_point_graph`).

        With the residual lift it is the affine fit to the neighbours' directions; with the potential lift it is the
        gradient of the affine fit to the neighbours' potentials. At a sample it is the sample's own.
        """
        return self._inserted(points)[1]

    def energy(self):
        """The flow's NonPot as a share of E|F|_M^2, with the known noise taken out (`def:disc_nonpot`)."""
        return self.split_energy

    def _inserted(self, points: Any) -> tuple[np.ndarray, np.ndarray]:
        Q = np.asarray(points, np.float64)
        potential, direction = np.empty(len(Q)), np.empty(Q.shape)
        size = max(1, BATCH // (self.neighbours * Q.shape[1]))
        for start in range(0, len(Q), size):
            piece = slice(start, start + size)
            potential[piece], direction[piece] = self._insert(Q[piece])
        return potential, direction

    def _insert(self, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X, phi = np.asarray(self.samples.points), np.asarray(self.flow.node_potential)
        new = insert_points(Q, X, self.metric, self.neighbours, self.weighting)
        labels = self.graph.labels[new.index]
        near = replace(new, weights=new.weights * (labels == labels[:, :1]))  # components have their own constants
        values = phi[new.index]
        if self.lift == "potential":
            direction = np.asarray(self.metric.unwhiten(fit_gradient(near, values, self.ridge), Q))
            potential = (interpolation_weights(near, self.ridge) * values).sum(1)
        else:
            direction = np.einsum("qk,qkd->qd", interpolation_weights(new, self.ridge), self.node_direction[new.index])
            potential = self._along_edges(Q, near, values, direction)
        known = self._known(new)
        return np.where(known, values[:, 0], potential), np.where(
            known[:, None], self.node_direction[new.index[:, 0]], direction
        )

    def _known(self, new: Insertion) -> Bool[np.ndarray, " q"]:
        """Which new points are samples, up to the rounding of a chart or of whitening.

        That rounding is relative to the samples' spread; among samples as close as this to one another, a new point is
        one of them only where it is much closer to that one than to the next.
        """
        X = np.asarray(self.samples.points)
        spread = np.max(self.metric.distance(X, np.broadcast_to(X.mean(0), X.shape)))
        closest = np.asarray(new.distance[:, :1])
        others = np.asarray(new.distance[:, 1:2])  # none where a point has one neighbour
        return (closest[:, 0] <= ROUNDING * spread) & (closest <= 1e-3 * others).all(1)

    def _along_edges(self, Q: np.ndarray, new: Insertion, values: np.ndarray, direction: np.ndarray) -> np.ndarray:
        here = np.asarray(self.metric.lower(direction, Q))
        there = np.asarray(self.metric.lower(self.node_direction, self.samples.points))[new.index]
        rise = 0.5 * np.einsum("qkd,qkd->qk", here[:, None] + there, new.steps)
        return (new.weights * (values - rise)).sum(1) / new.weights.sum(1)


class GraphProjector(Projector):
    """Split a field on the nearest-neighbour graph of its samples.

    - `neighbours`: k, or None to choose it from n and d (`discrete.graph.default_neighbours`).
    - `weighting`: "unit", "inverse_square" (the edge energies then stand for E|F|_M^2) or "gaussian". Sample weights
      multiply each edge weight by the mean of its ends; a measure becomes sample weights by the share of it that is
      closest to each sample.
    - `lift`: "residual" takes the lifted cyclic flow from the field, which keeps a pure potential field as it is and
      leaves alone what the graph cannot see; "potential" lifts the potential (`eq:lifting_metric`).
    - `ridge`: lambda of `eq:lifting_ls_h`.
    - `solver`: "cholesky", "amg", "cg", or None to choose.
    """

    neighbours: int | None = eqx.field(static=True, default=None)
    weighting: str = eqx.field(static=True, default="inverse_square")
    lift: str = eqx.field(static=True, default="residual")
    ridge: float = eqx.field(static=True, default=1e-3)
    solver: str | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        """Reject hyperparameters that no data could make valid."""
        if self.neighbours is not None and self.neighbours < 1:
            raise ValueError(f"neighbours must be a whole number of at least 1, got {self.neighbours}.")
        for name, allowed in (("weighting", WEIGHTINGS), ("lift", LIFTS), ("solver", (*SOLVERS, None))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}; got {getattr(self, name)!r}.")
        if not 0 <= self.ridge < np.inf:
            raise ValueError(f"ridge must be a finite number of at least 0, got {self.ridge}.")

    @classmethod
    def paper(cls) -> "GraphProjector":
        """The paper's recipe: k = 4, unit weights, the potential lifted with ridge 1e-4."""
        return cls(neighbours=4, weighting="unit", lift="potential", ridge=1e-4)

    def fit(self, samples: Samples, metric: Metric, measure: Measure = None, key: Any = None) -> GraphFit:
        """See `Projector.fit`."""
        X, F = np.asarray(samples.points), np.asarray(samples.field)
        n, d = X.shape
        k = check_neighbours(default_neighbours(n, d) if self.neighbours is None else self.neighbours, n)
        weights = measure_weights(samples, metric, measure, key)
        graph = weigh_samples(neighbour_graph(X, metric, k, self.weighting), weights)
        solution = solve_poisson(graph, omega := edge_flow(graph, X, F, metric), self.solver)
        phi = mean_zero(solution.potential, samples.weights, graph.labels)
        flow = split_flow(graph, omega, phi)
        lifted = lift_flow(
            graph, X, flow.cyclic if self.lift == "residual" else flow.potential, self.ridge, metric=metric
        )
        direction = F - lifted if self.lift == "residual" else lifted
        energy = _energy(samples, metric, graph, flow, solution.solver)
        return GraphFit(
            samples, metric, graph, flow, solution, direction, energy, k, self.weighting, self.lift, self.ridge
        )

    def local_init(self, count: int, rank: int, key: jax.Array) -> LocalGraph:
        """See `Projector.local_init`."""
        return empty_local(count, rank, jnp.result_type(float))

    def local_fit(self, state: LocalGraph, samples: LocalSamples) -> LocalGraph:
        """See `Projector.local_fit`."""
        fitted = fit_local(samples, self._local_neighbours(samples.points.shape), self.weighting)
        return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), fitted, state)

    def local_residual(self, state: LocalGraph, point: Float[Array, " r"], field: Float[Array, " r"]):
        """See `Projector.local_residual`."""
        k = min(self._local_neighbours(state.points.shape) + 1, state.points.shape[0])  # the point may be a row itself
        cyclic, potential, seen = local_covectors(state, point, field, k, self.weighting, self.ridge)
        return cyclic if self.lift == "residual" else jnp.where(seen, field - potential, jnp.zeros_like(field))

    def _local_neighbours(self, shape: tuple[int, ...]) -> int:
        n, r = shape[-2:]
        return max(1, min(default_neighbours(n, r) if self.neighbours is None else self.neighbours, n - 1))


def _energy(samples: Samples, metric: Metric, graph: SampleGraph, flow: EdgeFlow, solver: str) -> Energy:
    """E|F|_M^2 in three parts. The flow says which share is cyclic; the noise's part in that share is taken out.

    With two estimates a, b of the field the cyclic energy without noise is <cyclic_a, cyclic_b>_W. With repeated points
    only, the share of the noise that looks cyclic is found by passing drawn noise through the same graph.
    """
    X, F = np.asarray(samples.points), np.asarray(samples.field)
    total = float(samples.weights @ np.asarray(metric.inner(F, F, X)))
    noise = min(samples.noise or 0.0, total)
    share = flow.nonpotentiality
    if samples.noise:
        w = flow.weights
        other = samples.halves[0] if samples.halves is not None else _noise_like(samples)
        omega = edge_flow(graph, X, np.asarray(other), metric)
        cyclic = split_flow(graph, omega, np.asarray(solve_poisson(graph, omega, solver).potential)).cyclic
        if samples.halves is not None:
            share = energy_share(w, cyclic, 2.0 * flow.cyclic - cyclic, flow.omega)
        else:
            share -= energy_share(w, cyclic, cyclic, omega) * (noise / total if total > 0 else 0.0)
    circulation = float(np.clip(share * total, 0.0, total - noise))
    return Energy(total - noise - circulation, circulation, noise)


def _noise_like(samples: Samples) -> np.ndarray:
    draw = np.random.default_rng(0).standard_normal(samples.points.shape)
    return draw / np.sqrt(np.asarray(samples.replicates))[:, None]
