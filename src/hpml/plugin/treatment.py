"""One update of the plug-in: look at the field, fit the history where that is due, treat the residual.

The history's buffers never go through a conditional. What may be skipped reads them and gives products, coefficients
or one vector of length d; the buffers are written outside, in place when they are donated.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Int

from hpml.geometry.arrays import Array
from hpml.geometry.history import (
    History,
    Products,
    as_rows,
    buffer_dtype,
    check_like,
    combine_rows,
    empty_row,
    lock_kept,
    no_products,
    products_with,
    push_products,
    row_products,
)
from hpml.geometry.leaves import Leaves, Tree, check_shapes, leaf_metric
from hpml.geometry.sketch import Sketched, flat_sketches, sketch, worth_sketching
from hpml.geometry.span import SpanChart, encode, encode_gap, on_steps, path_return, row_coefficients, span_of
from hpml.plugin.adjust import rotate_field
from hpml.plugin.crossfit import Fits, cross_fitted, fitted, residual_at, share_of
from hpml.plugin.probes import Probes, push_probes
from hpml.plugin.safeguard import angle_between, blend_weight
from hpml.plugin.when import when
from hpml.projection.identifiability import ENOUGH, NOTHING
from hpml.projection.projector import LocalSamples, Projector

Scalar = Float[Array, ""]


class Diagnostics(NamedTuple):
    """What the transformation saw when it last looked.

    - `step`, `refreshes`: how many updates and refreshes there were.
    - `nonpotentiality`: the share of the history's field energy that the fit takes for circulation, in-sample, at the
      last refresh; with "adjust" the share of |J F|^2 that is |A F|^2, here and now.
    - `held_out`: the same share cross-fitted, where asked for: half of the rows say what circulates, and <R, F> over
      |F|^2 is taken at the other half, so that noise, which does not repeat, adds nothing on average.
    - `residual_energy`: |R|_M^2 at the newest point; with "adjust" |A F|_M^2.
    - `angle`: between the raw and the changed update, in radians, at every update.
    - `identifiable`: how much the history can say about circulation, in [0, 1]. Near 0 it is a path and says nothing,
      whatever `nonpotentiality` reads; with "adjust" always 1.
    - `noise`, `clean_energy`: with `halves`, the share of noise in |F|_M^2 and the residual energy without it,
      <R_a, R_b>_M. With `cross_fit` R_a and R_b are of fits to different samples; else a fit's own noise is in both. It
      stays 0 with "adjust".
    - `energy`: |F|_M^2 at the newest point.
    """

    step: Int[Array, ""]
    refreshes: Int[Array, ""]
    nonpotentiality: Scalar
    residual_energy: Scalar
    angle: Scalar
    identifiable: Scalar
    noise: Scalar
    clean_energy: Scalar
    held_out: Scalar
    energy: Scalar


class HodgeState(NamedTuple):
    """The history, its chart, the projector's fits, the change held since the last look, and diagnostics.

    With "adjust" none of the first three. `change` is None where every update looks anew. `lengths`, where asked for:
    of each agent's part of the last update, raw and changed.
    """

    history: History | None
    chart: SpanChart | None
    fits: Fits | None
    change: Tree
    diagnostics: Diagnostics
    lengths: Float[Array, "2 agents"] | None = None


class Treatment(NamedTuple):
    """The settings of one transformation, and its update; see `hodge_projection`."""

    projector: Projector
    refresh: int
    residual: str
    share: float | jax.Array
    cautious: bool
    metric: Any
    safeguard: float | jax.Array | None
    lookahead: float | None
    stride: float | None
    strength: float | jax.Array
    every: int
    probes: Probes
    cross_fit: bool
    flat: bool
    sketch: int | None
    agents: bool
    seed: int

    def packed(
        self, metric: Leaves, latest: Tree, params: Tree, grads: Tree, gap: Tree = None
    ) -> tuple[Tree, Tree, Tree, Tree]:
        """A point, the ascent field there and half the difference of its halves, as the history holds such.

        Where a history holds steps, the point is the step from its `latest`, and comes in full at the end.
        """
        given = (params, grads) if gap is None else (params, grads, gap)
        trees = [jax.tree.map(lambda leaf: leaf.astype(buffer_dtype(leaf)), tree) for tree in given]
        width = self.sketch if worth_sketching(params, self.sketch) else None
        out: list[Tree]
        if self.flat and width is not None:
            scales = (1.0, -1.0, 1.0)[: len(trees)]
            out, step = flat_sketches(trees, scales, 2, width, self.seed, latest)
            if latest is not None:
                latest, out[0] = out[0].whole, out[0]._replace(whole=step)
        else:
            out = [trees[0], jax.tree.map(jnp.negative, trees[1]), *trees[2:]]
            if self.flat:
                out = [ravel_pytree(tree)[0] for tree in out]
            elif width is not None:
                out = [Sketched(tree, sketch(tree, width, metric, self.seed)) for tree in out]
        return out[0], out[1], None if gap is None else out[2], latest

    def latest(self, params: Tree, keep: str) -> Tree:
        """What a history of steps begins with; None where points are held in full."""
        brief = self.flat and keep == "recent" and worth_sketching(params, self.sketch)
        flat = ravel_pytree(params)[0]
        return jnp.zeros(flat.shape, buffer_dtype(flat)) if brief else None

    def update(
        self, grads: Tree, state: HodgeState, params: Tree, field_fn: Any, halves: Any, hold: bool | None = None
    ) -> tuple[Tree, HodgeState]:
        """Gradients with the treated residual, and the next state."""
        metric = leaf_metric(self.metric, params)
        old = state.diagnostics
        turn: Any = True if self.every == 1 or hold is False else old.step % self.every == 0
        gap = None
        if halves is not None:  # a function, so that it costs nothing where nobody looks; of the ascent field: b - a
            both = halves if callable(halves) else (lambda: halves)
            gap = lambda: _half_difference(params, both())  # noqa: E731
        if hold is True and self.every > 1:
            history, chart, fits, change, seen, _ = state
        elif self.residual == "adjust":
            change, seen = self.adjust(turn, grads, gap, state, params, field_fn, metric)
            history, chart, fits = None, None, None
        else:
            history, chart, fits, change, seen = self.project(turn, grads, gap, state, params, field_fn, metric)

        # What is held from an earlier look may fit this update badly: the angle is checked at each.
        parts = jnp.stack((jax.vmap(metric.products) if self.agents else metric.products)(grads, change))
        energy, along, length = jnp.sum(parts, 1) if self.agents else parts
        along = -along
        w = blend_weight(energy, along, length, self.safeguard)
        blend = lambda g, u: jnp.where(w > 0, g - w.astype(u.dtype) * u, g).astype(g.dtype)  # noqa: E731
        changed = jax.tree.map(blend, grads, change)
        seen = seen._replace(step=old.step + 1, angle=_single(angle_between(energy, w * along, w**2 * length)))
        kept = None if self.every == 1 else change
        return changed, HodgeState(history, chart, fits, kept, seen, self.lengths(parts, w))

    def lengths(self, parts: Float[Array, "3 ..."], w: Scalar) -> Float[Array, "2 agents"] | None:
        """|g| and |g - w u| of each agent, from |g|^2, <g, u> and |u|^2."""
        if not self.agents:
            return None
        square, product, other = parts
        changed = jnp.maximum(square - 2.0 * w * product + w**2 * other, 0.0)
        return jnp.sqrt(jnp.stack([square, changed])).astype(jnp.float32)

    def adjust(
        self, turn: Any, grads: Tree, gap: Any, state: HodgeState, params: Tree, field_fn: Any, metric: Leaves
    ) -> tuple[Tree, Diagnostics]:
        """The change strength A F, and what was seen; no change where the field or its Jacobian is not a number."""
        old = state.diagnostics

        def look() -> tuple[Tree, Diagnostics]:
            rotated, stretched = rotate_field(field_fn, params, grads, metric)
            spread = None if gap is None else gap()
            turned = metric.inner(rotated, rotated)
            whole = turned + metric.inner(stretched, stretched)
            energy = metric.inner(grads, grads)
            noise = old.noise if spread is None else share_of(metric.inner(spread, spread), energy)
            seen = old._replace(
                nonpotentiality=share_of(turned, whole),
                residual_energy=_single(turned),
                identifiable=jnp.ones((), jnp.float32),
                noise=noise,
                energy=_single(energy),
            )
            fine = jnp.isfinite(whole) & jnp.isfinite(energy)
            seen = jax.tree.map(lambda new, before: jnp.where(fine, new, before), _finite(seen, old), old)
            change = lambda u, x: jnp.where(fine, self.strength * u, 0.0).astype(buffer_dtype(x))  # noqa: E731
            return jax.tree.map(change, rotated, params), seen

        return when(turn, look, lambda: (state.change, old))

    def project(
        self, turn: Any, grads: Tree, gap: Any, state: HodgeState, params: Tree, field_fn: Any, metric: Leaves
    ) -> tuple[History, SpanChart, Fits, Tree, Diagnostics]:
        """A change that lies in the span of the history."""
        assert state.history is not None
        assert state.chart is not None
        ring: History = state.history
        old = state.diagnostics
        field = jax.tree.map(jnp.negative, grads)
        pack = lambda ring, *sample: self.packed(metric, ring.latest, *sample)  # noqa: E731
        before, seen_before = ring.newest, ring.count > 0
        due = jnp.asarray(turn) & ((old.step // self.every + 1) % self.refresh == 0)
        if self.probes.number:
            key = jax.random.fold_in(jax.random.PRNGKey(self.seed), old.step)
            ring = push_probes(ring, self.probes, params, field, field_fn, pack, metric, key, due)

        def sample() -> tuple[Tree, Tree, Tree, Products, Scalar]:
            x, F, G, latest = pack(ring, params, grads, None if gap is None else gap())
            spread: Scalar = jnp.zeros((), jnp.float32)
            check_like(ring, x, "params")
            check_like(ring, F, "grads")
            if gap is not None and not (isinstance(G, Sketched) and G.whole is None):
                check_like(ring, G, "halves")
            x, F = as_rows(ring, x, F)
            if isinstance(G, Sketched):  # the metric is in the image
                spread = _single(Leaves(None, None).inner(G.image, G.image))
            elif gap is not None:
                spread = _single(metric.inner(G, G))
            return x, F, latest, products_with(ring, x, F, metric, G), spread

        def nothing() -> tuple[Tree, Tree, Tree, Products, Scalar]:
            return *empty_row(ring), no_products(len(ring.times), gap is not None), jnp.zeros((), jnp.float32)

        x, F, latest, products, spread = when(turn, sample, nothing)
        ring = push_products(ring, x, F, products, turn, latest)
        chart, fits, seen = self.fit_when(due, ring, state)
        ring = lock_kept(ring, due)

        def look() -> tuple[Tree, Diagnostics]:
            here = row_products(ring, ring.newest)
            point, f = encode(chart, ring, here)
            R, *halves = self.residuals_of(fits, point, f, None if gap is None else encode_gap(chart, products))
            if self.residual == "drop":
                change = -self.share * (self.told(seen.identifiable) if self.cautious else 1.0) * R
            elif self.residual == "optimistic":
                R_before = self.residual_at(fits.whole, *encode(chart, ring, row_products(ring, before)))
                change = jnp.where(seen_before, self.share * (R - R_before), 0.0)
            else:
                reach: Any = self.lookahead
                if self.stride is not None:
                    entries = sum(leaf.size for leaf in jax.tree.leaves(params))
                    size = metric.inner(field, field)
                    reach = jnp.where(size > 0, self.stride * (entries / jnp.where(size > 0, size, 1.0)) ** 0.5, 0.0)
                ahead = jax.tree.map(lambda p, v: (p + reach * v).astype(p.dtype), params, field)
                ahead, field_ahead, *_ = pack(ring, ahead, field_fn(ahead))
                check_like(ring, field_ahead, "The result of field_fn")
                R_ahead = self.residual_at(
                    fits.whole, *encode(chart, ring, products_with(ring, ahead, field_ahead, metric))
                )
                change = self.share * (R_ahead - R)
            now = seen._replace(residual_energy=_single(R @ R), energy=_single(here.energy))
            if gap is not None:
                R_a, R_b = halves
                now = now._replace(noise=share_of(spread, here.energy), clean_energy=_single(R_a @ R_b))
            on_points, on_field = row_coefficients(chart, change)
            if ring.latest is not None:
                on_points = on_steps(chart, ring.times, on_points)
            step = combine_rows(ring, chart.rows, on_points, on_field, x)
            if self.flat:
                step = ravel_pytree(params)[1](step)
            return jax.tree.map(lambda u, x: u.astype(buffer_dtype(x)), step, params), _finite(now, seen)

        change, seen = when(turn, look, lambda: (state.change, seen))
        return ring, chart, fits, change, seen

    @staticmethod
    def told(identifiable: Scalar) -> Scalar:
        """How much of a residual a history can answer for."""
        return jnp.clip((identifiable - NOTHING) / (ENOUGH - NOTHING), 0.0, 1.0)

    def fit_when(self, due: Array, ring: History, state: HodgeState) -> tuple[SpanChart, Fits, Diagnostics]:
        """A new chart and fit where they are due; no vector of length d goes through the conditional."""
        precise = all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(ring.points))
        long = lambda h: (h.points, h.field, h.latest)  # noqa: E731
        small = eqx.tree_at(long, ring, (None, None, None), is_leaf=lambda x: x is None)

        def renew(small: History, chart: SpanChart, fits: Fits, seen: Diagnostics) -> Any:
            chart, points, field = span_of(small, chart, precise)
            dtype = jnp.result_type(float)
            samples = LocalSamples(points.astype(dtype), field.astype(dtype), chart.mask)
            if self.cross_fit:
                fits, nonpotentiality, held_out = cross_fitted(self.projector, fits, samples, small.times[chart.rows])
            else:
                fits, nonpotentiality = fitted(self.projector, fits, samples)
                held_out = seen.held_out
            seen = seen._replace(
                refreshes=seen.refreshes + 1,
                nonpotentiality=nonpotentiality,
                identifiable=path_return(small, chart),
                held_out=held_out,
            )
            return chart, fits, seen

        return when(due, renew, lambda _, *rest: rest, small, state.chart, state.fits, state.diagnostics)

    def residual_at(self, fit: Any, point: Array, field: Array) -> Array:
        """See `residual_at`."""
        return residual_at(self.projector, fit, point, field)

    def residuals_of(self, fits: Fits, point: Array, field: Array, gap: Any) -> Array:
        """R of the field, and of its two halves where there are any, (1 or 3, r).

        The halves' come from fits to different samples where there are such: a fit's own noise would be in both.
        """
        f = field.astype(jnp.result_type(float))
        if gap is None:
            return self.residual_at(fits.whole, point, f)[None]
        g = gap.astype(f.dtype)
        fields = jnp.stack([f, f + g, f - g])
        if fits.folds is None:
            # All at once: what is near the point is looked for once.
            return jax.vmap(lambda f: self.residual_at(fits.whole, point, f))(fields)
        each = jax.tree.map(lambda whole, folds: jnp.concatenate([whole[None], folds]), *fits)
        return jax.vmap(lambda fit, f: self.residual_at(fit, point, f))(each, fields)


def _half_difference(params: Tree, halves: Any) -> Tree:
    if not isinstance(halves, tuple | list) or len(halves) != 2:
        raise ValueError("halves must be two trees of gradients, (a, b), whose mean the gradients are.")
    for half in halves:
        check_shapes(half, params, "halves")
    return jax.tree.map(lambda a, b: 0.5 * (b - a).astype(a.dtype), *halves)


def _single(value: Array) -> Scalar:
    return jnp.asarray(value).astype(jnp.float32)


def _finite(new: Diagnostics, old: Diagnostics) -> Diagnostics:
    """The new numbers where they are any."""
    return jax.tree.map(lambda a, b: jnp.where(jnp.isfinite(a), a, b), new, old)
