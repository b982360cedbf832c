"""`hpml.hodge_projection`: the projection as an optax transformation (`alg:ctde-hpml`).

It goes into a chain before the optimiser and acts on gradients of a loss; the ascent field is F = -gradients. Each
update pushes (params, F) into a history, every few updates a projector is fitted to it inside its chart, and the fitted
residual R at the newest point is treated. What the history cannot see is left as it is: g = F - R.

The conditional refresh sees n x n matrices only. The buffers stay outside it, and are updated in place when donated.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from hpml.geometry.history import buffer_dtype, history_init
from hpml.geometry.leaves import Tree, leaf_metric
from hpml.geometry.span import empty_span
from hpml.plugin.crossfit import unfitted
from hpml.plugin.probes import Probes
from hpml.plugin.settings import check_settings
from hpml.plugin.treatment import Diagnostics, HodgeState, Treatment
from hpml.projection.projector import Projector
from hpml.projection.projectors.kernel import KernelProjector


def hodge_projection(
    projector: Projector | None = None,
    history: int = 64,
    refresh: int = 8,
    residual: str = "drop",
    *,
    share: float | jax.Array = 1.0,
    cautious: bool = True,
    keep: str = "recent",
    metric: Any = None,
    safeguard: float | jax.Array | None = 0.01,
    lookahead: float | None = None,
    stride: float | None = None,
    strength: float | jax.Array = 1.0,
    every: int = 1,
    probes: int = 0,
    radius: float = 1e-3,
    probe_in: str = "plane",
    cross_fit: bool = False,
    flat: bool = False,
    sketch: int | None = None,
    agents: bool = False,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Treat the circulating part of a joint update.

    - `projector`: `KernelProjector()` unless given.
    - `history`, `keep`: how many samples are kept and which: "recent", "reservoir" or "thinned".
    - `refresh`: updates between two fits.
    - `residual`: what happens to the fitted residual R.
      "drop": g = F - share R.
      "extragradient": g = F + share (R(x + lookahead F) - R(x)); needs `update(..., field_fn=...)` and `lookahead`, or
      `stride`: then the first step has that root mean square over the parameters, however long F is, as under Adam.
      "optimistic": g = F + share (R(x_t) - R(x_(t-1))); no second evaluation.
      "adjust": g = F + strength A F with A the antisymmetric part of the field's Jacobian, exact, from one jvp and one
      vjp of `field_fn`; it needs no history and no projector.
      The last three keep the fixed points of F.
    - `cautious`: with "drop", nothing is taken off where `identifiable` of the diagnostics is below 0.1, all of it from
      0.5 on, and a share between. What a path tells of circulation is the projector's prior: taken off, it drove a game
      of two players apart that raw steps bring together. The paper's preset has it off.
    - `metric`: M; None, `hpml.Diagonal`, `hpml.LowRank` for one flat array, or a tree of weights like the parameters.
      Before Adam in a chain M = I.
    - `safeguard`: g is blended back towards F until its cosine with F in M is at least this; None switches it off.
    - `every`: updates from one look at the field to the next, where one batch serves several: the history grows and the
      change is formed at the first, and it is added to the others as it is. `refresh` then counts looks.
    - `probes`, `radius`, `probe_in`: so many samples off the path before each fit, on the same batch; needs `field_fn`.
      They make circulation identifiable. See `hpml.plugin.probes.Probes`.
    - `cross_fit`: fill `held_out` of the diagnostics, for two more fits a refresh. Not for a network trained online.
    - `flat`: the history holds the parameters as one vector: one loop over it in place of one a leaf. Faster for trees
      of many arrays; they need one dtype, and M = I.
    - `sketch`: take inner products from images of so many entries, an odd number such as 32,771, where the parameters
      have four times as many or more. A push then reads no history, only the direction does: half of the time. The
      products deviate by 0.8 % of the two lengths at that number, and the change by some per cent. With `flat` and
      "recent" rows have 16 bits a number. None: exact.
    - `agents`: the first axis of every leaf counts the agents: `lengths` of the state then has the length of each one's
      part, raw and changed, for a clip that follows. It comes with the angle, from one reading; M = I.
    - `seed`: for the reservoir, for probes, for sketches and for the projector's own draws.

    `share`, `strength` and `safeguard` may follow a schedule, by `optax.inject_hyperparams` with the rest as its
    `static_args`.

    `field_fn(params)` returns gradients of the loss, like the ones given to `update`, from the same batch. `update(...,
    halves=(a, b))` takes two independent estimates of the gradients, whose mean they are, or a function that gives
    them, and reports noise in the diagnostics. `update(..., hold=True)` is an update that does not look,
    and `hold=False` one that does, by a caller who keeps count of `every` as well: the first needs neither the history
    nor the fit, and neither needs a conditional.
    """
    treat = Treatment(
        KernelProjector() if projector is None else projector,
        refresh,
        residual,
        share,
        cautious,
        metric,
        safeguard,
        lookahead,
        stride,
        strength,
        every,
        Probes(probes, radius, probe_in),
        cross_fit,
        flat,
        sketch,
        agents,
        seed,
    )
    check_settings(treat, history, keep)
    projector = treat.projector
    needs_field = residual in ("extragradient", "adjust") or probes > 0

    def init(params: Tree) -> HodgeState:
        params = _arrays(params)
        zero, none = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
        diagnostics = Diagnostics(none, none, zero, zero, zero, zero, zero, zero, zero, zero)
        change = None if every == 1 else jax.tree.map(lambda x: jnp.zeros(x.shape, buffer_dtype(x)), params)
        lengths = jnp.zeros((2, _agents_of(params)), jnp.float32) if agents else None
        if residual == "adjust":
            jax.eval_shape(lambda p: history_init(p, history), params)  # refuses what no mode can work with
            return _apart(HodgeState(None, None, None, change, diagnostics, lengths))
        # A fit's rows and the kept ones are at most two histories. One more row where the sample before the newest is
        # needed and may not be kept.
        spare = min(refresh, history + 1) + probes + (residual == "optimistic" and (keep != "recent" or probes > 0))
        latest = treat.latest(params, keep)
        like = jax.eval_shape(lambda p: treat.packed(leaf_metric(metric, p), latest, p, p)[0], params)
        ring = history_init(like, history, keep, spare, seed, latest)
        chart = empty_span(history, sum(leaf.size for leaf in jax.tree.leaves(params)))
        fits = unfitted(projector, history, chart.basis.shape[-1], jax.random.key(seed), cross_fit)
        return _apart(HodgeState(ring, chart, fits, change, diagnostics, lengths))

    def update(
        updates: Tree,
        state: HodgeState,
        params: Tree = None,
        *,
        field_fn: Callable[[Tree], Tree] | None = None,
        halves: tuple[Tree, Tree] | Callable[[], tuple[Tree, Tree]] | None = None,
        hold: bool | None = None,
        **extra: Any,
    ) -> tuple[Tree, HodgeState]:
        if params is None:
            raise ValueError("hodge_projection needs the parameters: call update(grads, state, params).")
        if field_fn is None and needs_field:
            reason = f'residual="{residual}"' if not probes else "probes"
            raise ValueError(
                f"With {reason} the field is evaluated: call update(grads, state, params, field_fn=f) with "
                "f(params) -> gradients of the loss, from the same batch."
            )
        if field_fn is not None and not callable(field_fn):
            raise ValueError("field_fn must be a function of the parameters: pass gradients, not gradients(params).")
        return treat.update(_arrays(updates), state, _arrays(params), field_fn, halves, hold)

    return optax.GradientTransformationExtraArgs(init, update)


def _arrays(tree: Tree) -> Tree:
    """Numbers of Python as arrays too."""
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.result_type(leaf)), tree)


def _apart(state: HodgeState) -> HodgeState:
    """The same state with no array in two places: a caller who donates it must not donate a buffer twice."""
    seen: set[int] = set()

    def own(leaf: Any) -> Any:
        if id(leaf) in seen:
            return jnp.copy(leaf)
        seen.add(id(leaf))
        return leaf

    return jax.tree.map(own, state)


def _agents_of(params: Tree) -> int:
    sizes = {jnp.shape(leaf)[:1] for leaf in jax.tree.leaves(params)}
    if len(sizes) != 1 or () in sizes:
        raise ValueError("agents needs leaves whose first axis is as long as there are agents, the same for all.")
    return sizes.pop()[0]
