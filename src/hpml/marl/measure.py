"""The instrument that every method carries, baselines too: how much of the actors' joint update circulates.

It keeps a history of its own, one sample an update: the actors' parameters and the mean of the two halves' fields at
the first minibatch. Nothing flows back: what it sees never changes training. Its samples lie on the path of training,
and along a path some potential explains any field, so `identifiable` says how far the other numbers can be trusted;
probes of the projection, which cost gradients, are what raise it.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from hpml.geometry.history import History, history_init, products_with, push_products, row_products
from hpml.geometry.leaves import Leaves
from hpml.geometry.span import SpanChart, empty_span, encode, encode_gap, path_return, span_of
from hpml.marl.learner import FieldSample
from hpml.plugin.safeguard import angle_between
from hpml.plugin.treatment import cross_fitted, residual_at
from hpml.projection.projector import LocalSamples, Projector
from hpml.projection.projectors.kernel import KernelProjector

EUCLIDEAN = Leaves(None, None)  # the field is what Adam receives

LOGS = (
    "nonpot",
    "nonpot_held_out",
    "residual_energy",
    "residual_clean",
    "potential_share",
    "noise_share",
    "angle",
    "identifiable",
)


class Seen(NamedTuple):
    """The instrument's state: its history, the chart and the fit of the update before."""

    history: History
    chart: SpanChart
    fit: Any


class Instrument:
    """Measures the field of each update. Pure: `observe` may be jitted, vmapped over seeds and scanned.

    - `history`: the most samples that are kept.
    - `numbers`: the most numbers that the history may hold for a seed; large actors get fewer samples, 4 at least.
    - `projector`: what splits the field, the kernel one unless given.
    """

    def __init__(self, history: int = 16, numbers: int = 1 << 26, projector: Projector | None = None) -> None:
        if history < 4:
            raise ValueError(f"The instrument needs a history of at least 4 samples, two in each fold; got {history}.")
        self.history, self.numbers = history, numbers
        self.projector = KernelProjector() if projector is None else projector

    def capacity(self, parameters: int) -> int:
        """How many samples are kept for so many parameters; there is one row more, in two buffers."""
        return max(4, min(self.history, self.numbers // (2 * parameters) - 1))

    def init(self, actors: Any) -> Seen:
        """The state before the first update."""
        flat, _ = ravel_pytree(actors)
        count = self.capacity(flat.size)
        chart = empty_span(count, flat.size)
        fit = self.projector.local_init(count, chart.basis.shape[-1], jax.random.key(0))
        return Seen(history_init(flat, count), chart, fit)

    def observe(self, state: Seen, sample: FieldSample) -> tuple[Seen, dict[str, Array]]:
        """Take one update's field in; logs are scalars with the names of `LOGS` (docs/projection_in_training.md)."""
        # The compiler must not fuse this with training, whose rounding would depend on it.
        sample = jax.lax.optimization_barrier(sample)
        point, _ = ravel_pytree(sample.point)
        a, b = (-ravel_pytree(jax.tree.map(lambda g, i=i: g[i], sample.halves))[0] for i in range(2))
        field, gap = 0.5 * (a + b), 0.5 * (a - b)
        ring, energy = state.history, jnp.vdot(field, field)
        noise = jnp.vdot(gap, gap)
        products = products_with(ring, point, field, EUCLIDEAN, gap)

        # Before the fit sees the sample: in-sample, noise that the fit has taken in would count against itself.
        raw, clean = self._ahead(state, products)
        ring = push_products(ring, point, field, products)
        small = eqx.tree_at(lambda h: (h.points, h.field), ring, (None, None))
        chart, points, values = span_of(small, state.chart)
        samples = LocalSamples(points.astype(jnp.float32), values.astype(jnp.float32), chart.mask)
        fit, circulating, held_out = cross_fitted(self.projector, state.fit, samples, ring.times[chart.rows])
        x, f = (part.astype(jnp.float32) for part in encode(chart, ring, row_products(ring, ring.newest)))
        R = residual_at(self.projector, fit, x, f)
        whole = jnp.sum(jnp.where(chart.mask[:, None], samples.field, 0.0) ** 2)
        one = jnp.where(energy > 0, energy, 1.0)
        logs = {
            "nonpot": jnp.clip(circulating / jnp.where(whole > 0, whole, 1.0), 0.0, 1.0),
            "nonpot_held_out": held_out,
            "residual_energy": raw,
            "residual_clean": clean,
            "potential_share": jnp.clip(1.0 - (noise + jnp.maximum(clean, 0.0)) / one, 0.0, 1.0),
            "noise_share": jnp.clip(noise / one, 0.0, 1.0),
            "angle": angle_between(energy, -(R @ f), R @ R),
            "identifiable": path_return(small, chart),
        }
        return Seen(ring, chart, fit), {name: jnp.asarray(logs[name], jnp.float32) for name in LOGS}

    def _ahead(self, state: Seen, products: Any) -> tuple[Array, Array]:
        """|R|^2 and <R_a, R_b> of a sample under the fit that has not seen it, in the span of the history."""
        x, f = (part.astype(jnp.float32) for part in encode(state.chart, state.history, products))
        g = encode_gap(state.chart, products).astype(jnp.float32)
        direction = self.projector.local_direction(state.fit, x, f)
        R = jnp.where(jnp.all(jnp.isfinite(direction)), f - direction, 0.0)
        return R @ R, R @ R - g @ g
