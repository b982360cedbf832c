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
from jaxtyping import Float

from hpml.geometry.history import History, history_init, lock_kept, products_with, push_products, row_products
from hpml.geometry.leaves import Leaves
from hpml.geometry.sketch import WIDTH, flat_sketches, worth_sketching
from hpml.geometry.span import SpanChart, empty_span, encode, encode_gap, path_return, span_of
from hpml.marl.learner import FieldSample
from hpml.plugin.crossfit import Fits, cross_fitted, residual_at, unfitted
from hpml.plugin.safeguard import angle_between
from hpml.plugin.when import when
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


class Shares(NamedTuple):
    """What a fit says of the whole history: see `LOGS`."""

    nonpot: Any
    held_out: Any
    identifiable: Any


class Seen(NamedTuple):
    """The instrument's state: its history, and the chart, the fits and the shares of the last look."""

    history: History
    chart: SpanChart
    fits: Fits
    shares: Shares


class Flat(NamedTuple):
    """A sample of the field: the actors' parameters, the ascent field there, and half the difference of its halves.

    Inner products are all that the instrument needs of them, so large ones are short images of themselves.
    """

    point: Float[Array, " d"]
    field: Float[Array, " d"]
    gap: Float[Array, " d"]


class Instrument:
    """Measures the field of each update. Pure: `observe` may be jitted, vmapped over seeds and scanned.

    - `history`: the most samples that are kept.
    - `refresh`: updates from one fit to the next.
    - `sketch`: the entries of the short images that stand for the actors' vectors, where those are four times as long.
    - `projector`: what splits the field, the kernel one unless given.
    """

    def __init__(
        self, history: int = 12, refresh: int = 4, sketch: int = WIDTH, projector: Projector | None = None
    ) -> None:
        if history < 4:
            raise ValueError(f"The instrument needs a history of at least 4 samples, two in each fold; got {history}.")
        if refresh < 1:
            raise ValueError(f"refresh must be at least 1 update, got {refresh}.")
        self.history, self.refresh, self.sketch = history, refresh, sketch
        self.projector = KernelProjector() if projector is None else projector

    def init(self, actors: Any) -> Seen:
        """The state before the first update."""
        (image,) = self._images(actors)
        chart = empty_span(self.history, image.size)
        fits = unfitted(self.projector, self.history, chart.basis.shape[-1], jax.random.key(0))
        shares = Shares(*(jnp.zeros((), jnp.float32) for _ in range(3)))
        return Seen(history_init(image, self.history, spare=self.refresh), chart, fits, shares)

    def flatten(self, sample: FieldSample) -> Flat:
        """A sample of the field as vectors."""
        # The compiler must not fuse this with training, whose rounding would depend on it.
        sample = jax.lax.optimization_barrier(sample)
        field = jax.tree.map(lambda g: -0.5 * (g[0] + g[1]), sample.halves)
        gap = jax.tree.map(lambda g: -0.5 * (g[0] - g[1]), sample.halves)
        return Flat(*self._images(sample.point, field, gap))

    def observe(self, state: Seen, sample: Flat) -> tuple[Seen, dict[str, Array]]:
        """Take one update's field in; logs are scalars with the names of `LOGS` (docs/projection_in_training.md).

        Compiled apart from `flatten` it takes two thirds of the time: XLA's CPU backend would compute the vectors anew
        inside each of their products.
        """
        point, field, gap = sample
        ring, energy = state.history, jnp.vdot(field, field)
        noise = jnp.vdot(gap, gap)
        products = products_with(ring, point, field, EUCLIDEAN, gap)

        # Before a fit sees the sample: in-sample, noise that the fit has taken in would count against itself.
        raw, clean = self._ahead(state, products)
        ring = push_products(ring, point, field, products)
        due = ring.count % self.refresh == 0
        small = eqx.tree_at(lambda h: (h.points, h.field), ring, (None, None))
        chart, fits, shares = when(
            due, self._renew, lambda _, *rest: rest, small, state.chart, state.fits, state.shares
        )
        ring = lock_kept(ring, due)
        x, f = (part.astype(jnp.float32) for part in encode(chart, ring, row_products(ring, ring.newest)))
        R = residual_at(self.projector, fits.whole, x, f)
        one = jnp.where(energy > 0, energy, 1.0)
        logs = {
            "nonpot": shares.nonpot,
            "nonpot_held_out": shares.held_out,
            "residual_energy": raw,
            "residual_clean": clean,
            "potential_share": jnp.clip(1.0 - (noise + jnp.maximum(clean, 0.0)) / one, 0.0, 1.0),
            "noise_share": jnp.clip(noise / one, 0.0, 1.0),
            "angle": angle_between(energy, -(R @ f), R @ R),
            "identifiable": shares.identifiable,
        }
        return Seen(ring, chart, fits, shares), {name: jnp.asarray(logs[name], jnp.float32) for name in LOGS}

    def _images(self, *trees: Any) -> list[Array]:
        """Like trees as one vector each, of their own entries or short."""
        if not worth_sketching(trees[0], self.sketch):
            return [ravel_pytree(tree)[0] for tree in trees]
        return [each.image[0] for each in flat_sketches(trees, [1.0] * len(trees), 0, self.sketch)[0]]

    def _renew(self, small: History, chart: SpanChart, fits: Fits, _: Shares) -> tuple[SpanChart, Fits, Shares]:
        """A new chart and fit of the history, whose buffers are not needed."""
        chart, points, values = span_of(small, chart)
        samples = LocalSamples(points.astype(jnp.float32), values.astype(jnp.float32), chart.mask)
        fits, nonpot, held_out = cross_fitted(self.projector, fits, samples, small.times[chart.rows])
        return chart, fits, Shares(nonpot, held_out, path_return(small, chart))

    def _ahead(self, state: Seen, products: Any) -> tuple[Array, Array]:
        """|R|^2 and <R_a, R_b> of a sample under fits that have not seen it, in the span of the history.

        Each half is compared with a fit to other samples than the other's: noise that a fit has taken in is in one
        factor alone.
        """
        x, f = (part.astype(jnp.float32) for part in encode(state.chart, state.history, products))
        g = encode_gap(state.chart, products).astype(jnp.float32)

        def ahead(fit: Any, field: Any) -> Any:
            direction = self.projector.local_direction(fit, x, field)
            return jnp.where(jnp.all(jnp.isfinite(direction)), field - direction, 0.0)

        R = ahead(state.fits.whole, f)
        R_a, R_b = jax.vmap(ahead)(state.fits.folds, jnp.stack([f + g, f - g]))
        return R @ R, R_a @ R_b
