"""`hpml.hodge_projection`: the projection as an optax transformation (`alg:ctde-hpml`).

It goes into a chain before the optimiser and acts on gradients of a loss; the ascent field is F = -gradients. Each
update pushes (params, F) into a history, every few updates a projector is fitted to it inside its chart, and the fitted
residual R at the newest point is treated. What the history cannot see is left as it is: g = F - R.

The conditional refresh sees n x n matrices only. The buffers stay outside it, and are updated in place when donated.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Float, Int

from hpml.geometry.arrays import Array
from hpml.geometry.history import (
    KEEP,
    History,
    Products,
    check_like,
    combine_rows,
    history_init,
    lock_kept,
    products_with,
    push_products,
    row_products,
)
from hpml.geometry.leaves import Leaves, Tree, leaf_metric
from hpml.geometry.span import SpanChart, empty_span, encode, encode_field, path_return, row_coefficients, span_of
from hpml.plugin.adjust import rotate_field
from hpml.plugin.safeguard import angle_between, blend_weight
from hpml.projection.projector import LocalSamples, Projector
from hpml.projection.projectors.kernel import KernelProjector

RESIDUAL = ("drop", "extragradient", "optimistic", "adjust")

Scalar = Float[Array, ""]


class Diagnostics(NamedTuple):
    """What the transformation saw at the last update.

    - `step`, `refreshes`: how many updates and refreshes there were.
    - `nonpotentiality`: the share of the history's field energy that the fit takes for circulation, in-sample, at the
      last refresh; with "adjust" the share of |J F|^2 that is |A F|^2, here and now.
    - `residual_energy`: |R|_M^2 at the newest point; with "adjust" |A F|_M^2.
    - `angle`: between the raw and the changed update, in radians.
    - `identifiable`: how much the history can say about circulation, in [0, 1]. Near 0 it is a path and says nothing,
      whatever `nonpotentiality` reads; with "adjust" always 1.
    - `noise`, `clean_energy`: with `halves`, the share of noise in |F|_M^2 and the residual energy without it,
      <R_a, R_b>_M.
    """

    step: Int[Array, ""]
    refreshes: Int[Array, ""]
    nonpotentiality: Scalar
    residual_energy: Scalar
    angle: Scalar
    identifiable: Scalar
    noise: Scalar
    clean_energy: Scalar


class HodgeState(NamedTuple):
    """The history, its chart, the projector's fit, and the diagnostics; only the last with "adjust"."""

    history: History | None
    chart: SpanChart | None
    fit: Any
    diagnostics: Diagnostics


def hodge_projection(
    projector: Projector | None = None,
    history: int = 64,
    refresh: int = 8,
    residual: str = "drop",
    *,
    share: float = 1.0,
    keep: str = "recent",
    metric: Any = None,
    safeguard: float | None = 0.01,
    lookahead: float | None = None,
    strength: float = 1.0,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Treat the circulating part of a joint update.

    - `projector`: `KernelProjector()` unless given.
    - `history`, `keep`: how many samples are kept and which: "recent", "reservoir" or "thinned".
    - `refresh`: updates between two fits.
    - `residual`: what happens to the fitted residual R.
      "drop": g = F - share R.
      "extragradient": g = F + share (R(x + lookahead F) - R(x)); needs `update(..., field_fn=...)` and `lookahead`.
      "optimistic": g = F + share (R(x_t) - R(x_(t-1))); no second evaluation.
      "adjust": g = F + strength A F with A the antisymmetric part of the field's Jacobian, exact, from one jvp and one
      vjp of `field_fn`; it needs no history and no projector.
      The last three keep the fixed points of F.
    - `metric`: M; None, `hpml.Diagonal`, `hpml.LowRank` for one flat array, or a tree of weights like the parameters.
      Before Adam in a chain M = I.
    - `safeguard`: g is blended back towards F until its cosine with F in M is at least this; None switches it off.
    - `seed`: for the reservoir and for the projector's own draws.

    `field_fn(params)` returns gradients of the loss, like the ones given to `update`, from the same batch. `update(...,
    halves=(a, b))` takes two independent estimates of the gradients and reports noise in the diagnostics; it costs two
    more passes over the history.
    """
    _check(history, refresh, residual, share, keep, safeguard, lookahead)
    projector = KernelProjector() if projector is None else projector
    treat = _Treatment(projector, refresh, residual, share, metric, safeguard, lookahead, strength)

    def init(params: Tree) -> HodgeState:
        zero, none = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
        diagnostics = Diagnostics(none, none, zero, zero, zero, zero, zero, zero)
        if residual == "adjust":
            jax.eval_shape(lambda p: history_init(p, history), params)  # refuses what no mode can work with
            return HodgeState(None, None, None, diagnostics)
        # One more row where the sample before the newest is needed and may not be kept.
        spare = refresh + (residual == "optimistic" and keep != "recent")
        ring = history_init(params, history, keep, spare, seed)
        chart = empty_span(history, sum(leaf.size for leaf in jax.tree.leaves(params)))
        fit = projector.local_init(history, chart.basis.shape[-1], jax.random.key(seed))
        return HodgeState(ring, chart, fit, diagnostics)

    def update(
        updates: Tree,
        state: HodgeState,
        params: Tree = None,
        *,
        field_fn: Callable[[Tree], Tree] | None = None,
        halves: tuple[Tree, Tree] | None = None,
        **extra: Any,
    ) -> tuple[Tree, HodgeState]:
        if params is None:
            raise ValueError("hodge_projection needs the parameters: call update(grads, state, params).")
        if field_fn is None and residual in ("extragradient", "adjust"):
            raise ValueError(
                f'residual="{residual}" evaluates the field: call update(grads, state, params, field_fn=f) with '
                "f(params) -> gradients of the loss, from the same batch."
            )
        if residual == "adjust":
            return treat.adjust(updates, state, params, field_fn)
        return treat.project(updates, state, params, field_fn, halves)

    return optax.GradientTransformationExtraArgs(init, update)


class _Treatment(NamedTuple):
    """The settings of one transformation, and its update."""

    projector: Projector
    refresh: int
    residual: str
    share: float
    metric: Any
    safeguard: float | None
    lookahead: float | None
    strength: float

    def adjust(self, grads: Tree, state: HodgeState, params: Tree, field_fn: Any) -> tuple[Tree, HodgeState]:
        """g = F + strength A F."""
        metric = leaf_metric(self.metric, params)
        rotated, stretched = rotate_field(field_fn, params, grads, metric)
        energy = metric.inner(grads, grads)
        turned = metric.inner(rotated, rotated)
        along = -metric.inner(rotated, grads)  # zero up to rounding; F = -grads turns the sign
        w = self.strength * blend_weight(energy, self.strength * along, self.strength**2 * turned, self.safeguard)
        whole = turned + metric.inner(stretched, stretched)
        old = state.diagnostics
        diagnostics = old._replace(
            step=old.step + 1,
            nonpotentiality=_single(jnp.where(whole > 0, turned / jnp.where(whole > 0, whole, 1.0), 0.0)),
            residual_energy=_single(turned),
            angle=_single(angle_between(energy, w * along, w**2 * turned)),
            identifiable=jnp.ones((), jnp.float32),
        )
        changed = jax.tree.map(lambda g, u: (g - w.astype(g.dtype) * u).astype(g.dtype), grads, rotated)
        return changed, HodgeState(None, None, None, diagnostics)

    def project(
        self, grads: Tree, state: HodgeState, params: Tree, field_fn: Any, halves: Any
    ) -> tuple[Tree, HodgeState]:
        """g = F + a change that lies in the span of the history."""
        assert state.history is not None
        assert state.chart is not None
        check_like(state.history, params, "params")
        check_like(state.history, grads, "grads")
        metric = leaf_metric(self.metric, params)
        field = jax.tree.map(jnp.negative, grads)
        before, seen_before = state.history.newest, state.history.count > 0
        ring = push_products(state.history, params, field, products_with(state.history, params, field, metric))
        due = ring.count % self.refresh == 0
        chart, fit, nonpotentiality, identifiable = self.fit_when(due, ring, state)
        ring = lock_kept(ring, due)

        here = row_products(ring, ring.newest)
        point, f = encode(chart, ring, here)
        R = self.residual_at(fit, point, f)
        if self.residual == "drop":
            change = -self.share * R
        elif self.residual == "optimistic":
            R_before = self.residual_at(fit, *encode(chart, ring, row_products(ring, before)))
            change = jnp.where(seen_before, self.share * (R - R_before), 0.0)
        else:
            ahead = jax.tree.map(lambda x, v: (x + self.lookahead * v).astype(x.dtype), params, field)
            field_ahead = jax.tree.map(jnp.negative, field_fn(ahead))
            check_like(ring, field_ahead, "The result of field_fn")
            R_ahead = self.residual_at(fit, *encode(chart, ring, products_with(ring, ahead, field_ahead, metric)))
            change = self.share * (R_ahead - R)

        # The chart is isometric: lengths and angles need no vector of length d.
        f = f.astype(change.dtype)
        energy, along, length = here.energy.astype(change.dtype), change @ f, change @ change
        w = blend_weight(energy, along, length, self.safeguard)
        step = combine_rows(ring, *row_coefficients(chart, w * change, len(ring.times)), params)
        changed = jax.tree.map(lambda g, u: (g - u.astype(g.dtype)).astype(g.dtype), grads, step)

        old = state.diagnostics
        diagnostics = old._replace(
            step=old.step + 1,
            refreshes=old.refreshes + due.astype(jnp.int32),
            nonpotentiality=nonpotentiality,
            identifiable=identifiable,
            residual_energy=_single(R @ R),
            angle=_single(angle_between(energy, w * along, w**2 * length)),
        )
        if halves is not None:
            noise, clean = self.noise_of(halves, ring, chart, fit, params, point, here, metric)
            diagnostics = diagnostics._replace(noise=noise, clean_energy=clean)
        return changed, HodgeState(ring, chart, fit, diagnostics)

    def fit_when(self, due: Array, ring: History, state: HodgeState) -> tuple[SpanChart, Any, Scalar, Scalar]:
        """A new chart and fit where they are due; no vector of length d goes through the conditional."""
        precise = all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(ring.points))
        small = eqx.tree_at(lambda h: (h.points, h.field), ring, (None, None))

        def renew(operand: Any) -> Any:
            small, chart, fit, _, _ = operand
            chart, points, field = span_of(small, chart, precise)
            dtype = jnp.result_type(float)
            samples = LocalSamples(points.astype(dtype), field.astype(dtype), chart.mask)
            fit = self.projector.local_fit(fit, samples)
            R = jax.vmap(lambda y, f: self.residual_at(fit, y, f))(samples.points, samples.field)
            mask = chart.mask[:, None]
            whole = jnp.sum(jnp.where(mask, samples.field, 0.0) ** 2)
            share = jnp.sum(jnp.where(mask, R, 0.0) ** 2) / jnp.where(whole > 0, whole, 1.0)
            return chart, fit, _single(jnp.clip(share, 0.0, 1.0)), path_return(small, chart)

        old = state.diagnostics
        operand = (small, state.chart, state.fit, old.nonpotentiality, old.identifiable)
        return jax.lax.cond(due, renew, lambda operand: operand[1:], operand)

    def residual_at(self, fit: Any, point: Array, field: Array) -> Array:
        """The fitted residual, zero where a projector has no finite answer."""
        dtype = jnp.result_type(float)
        R = self.projector.local_residual(fit, point.astype(dtype), field.astype(dtype))
        return jnp.where(jnp.all(jnp.isfinite(R)), R, 0.0)

    def noise_of(
        self,
        halves: Any,
        ring: History,
        chart: SpanChart,
        fit: Any,
        params: Tree,
        point: Array,
        here: Products,
        metric: Leaves,
    ) -> tuple[Scalar, Scalar]:
        """The share of noise in the mean of two estimates, and <R_a, R_b>."""
        a, b = (jax.tree.map(jnp.negative, half) for half in halves)
        for half in (a, b):
            check_like(ring, half, "halves")
        R_a, R_b = (
            self.residual_at(fit, point, encode_field(chart, products_with(ring, params, half, metric)))
            for half in (a, b)
        )
        gap = jax.tree.map(lambda u, v: 0.5 * (u - v), a, b)
        energy = _single(here.energy)
        noise = _single(metric.inner(gap, gap)) / jnp.where(energy > 0, energy, 1.0)
        return jnp.clip(noise, 0.0, 1.0), _single(R_a @ R_b)


def _single(value: Array) -> Scalar:
    return jnp.asarray(value).astype(jnp.float32)


def _check(
    history: int,
    refresh: int,
    residual: str,
    share: float,
    keep: str,
    safeguard: float | None,
    lookahead: float | None,
) -> None:
    if history < 2:
        raise ValueError(f"history must be at least 2 samples, got {history}.")
    if refresh < 1:
        raise ValueError(f"refresh must be at least 1 update, got {refresh}.")
    if residual not in RESIDUAL:
        raise ValueError(f"residual must be one of {', '.join(RESIDUAL)}; got {residual!r}.")
    if keep not in KEEP:
        raise ValueError(f"keep must be one of {', '.join(KEEP)}; got {keep!r}.")
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share is the part of the residual that is treated, between 0 and 1; got {share}.")
    if safeguard is not None and not 0.0 <= safeguard < 1.0:
        raise ValueError(f"safeguard is a cosine between 0 and 1, or None; got {safeguard}.")
    if residual == "extragradient" and (lookahead is None or not lookahead > 0):
        raise ValueError('residual="extragradient" needs lookahead, the length of its first step: the learning rate.')
