"""Edge flows: the sampled field as a 1-form, and its split (`eq:edge_flow`, `def:disc_proj`, `def:disc_nonpot`)."""

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from hpml.geometry.arrays import Array
from hpml.geometry.metric import Metric
from hpml.projection.discrete.chunks import in_chunks
from hpml.projection.discrete.graph import SampleGraph
from hpml.projection.discrete.hodge import CyclicSplit, split_cyclic
from hpml.projection.discrete.scale import power_of_two


class EdgeFlow(eqx.Module):
    """An edge flow omega = potential + cyclic, orthogonal in W = diag(weights) (`lem:disc_orth`).

    `edges` (m, 2) numbers the distinct samples; `node_potential` is phi, so that potential = phi[j] - phi[i], with
    the constants on the components that whoever split the flow chose; `cycle_rank` is how many independent cycles
    could have carried a cyclic flow.
    """

    edges: Int[Array, "m 2"]
    weights: Float[Array, " m"]
    omega: Float[Array, " m"]
    potential: Float[Array, " m"]
    cyclic: Float[Array, " m"]
    node_potential: Float[Array, " n"]
    cycle_rank: int = eqx.field(static=True)

    @property
    def nonpotentiality(self) -> float:
        """|cyclic|_W^2 / |omega|_W^2, in [0, 1]; 0 for a zero flow (`def:disc_nonpot`)."""
        return float(np.clip(energy_share(self.weights, self.cyclic, self.cyclic, self.omega), 0.0, 1.0))

    def split_cyclic(self) -> CyclicSplit:
        """The cyclic flow's curl and harmonic parts on the triangles of the graph (`rem:hodge_app`): a second solve."""
        return split_cyclic(self.edges, self.weights, self.cyclic)

    @property
    def curl(self) -> Float[Array, " m"]:
        """The part of the cyclic flow that circulates around triangles, solved for when asked; see `split_cyclic`."""
        return self.split_cyclic().curl

    @property
    def harmonic(self) -> Float[Array, " m"]:
        """The part of the cyclic flow that circulates around holes only, solved for when asked; see `split_cyclic`."""
        return self.split_cyclic().harmonic


def edge_flow(
    graph: SampleGraph, points: Float[Array, "n d"], field: Float[Array, "n d"], metric: Metric
) -> Float[Array, " m"]:
    """omega_e = <M (F_i + F_j) / 2, x^j - x^i> (`eq:edge_flow`); where M varies, each end is lowered with its own."""
    H = np.asarray(metric.lower(field, points))
    X, edges = np.asarray(points), np.asarray(graph.edges)
    omega = np.empty(len(edges))

    def measure(piece: slice) -> None:
        i, j = edges[piece].T
        step = X.take(j, 0) - X.take(i, 0)
        omega[piece] = 0.5 * np.einsum("ed,ed->e", H.take(i, 0) + H.take(j, 0), step)

    in_chunks(measure, len(edges), max(1, (1 << 17) // X.shape[1]))
    return omega


def energy_share(
    weights: Float[Array, " m"], left: Float[Array, " m"], right: Float[Array, " m"], whole: Float[Array, " m"]
) -> float:
    """<left, right>_W / |whole|_W^2, the same in all units; 0 where `whole` is zero.

    `def:disc_nonpot` adds an epsilon > 0 below the line for that last case alone.
    """
    w, size = weights / power_of_two(weights), power_of_two(whole)
    part, total = (np.einsum("e,e,e->", w, a / size, b / size) for a, b in ((left, right), (whole, whole)))
    return float(part / total) if total > 0 else 0.0


def split_flow(graph: SampleGraph, omega: Float[Array, " m"], potential: Float[Array, " n"]) -> EdgeFlow:
    """omega as B phi plus the rest, for the node potential phi that `solve_poisson` found."""
    B_phi = potential.take(graph.edges[:, 1]) - potential.take(graph.edges[:, 0])
    return EdgeFlow(graph.edges, graph.weights, omega, B_phi, omega - B_phi, potential, graph.cycle_rank)
