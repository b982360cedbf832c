"""The transformation drops or treats circulation and leaves the rest alone."""

import inspect
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from linear import LinearProjector

from hpml.geometry.metric import Diagonal, LowRank
from hpml.plugin import hodge
from hpml.plugin.hodge import hodge_projection
from hpml.plugin.preset import ctde_hpml
from hpml.plugin.safeguard import angle_between
from hpml.plugin.treatment import Treatment
from hpml.plugin.when import when
from hpml.projection.identifiability import ENOUGH, NOTHING
from hpml.projection.projectors.graph import GraphProjector
from hpml.projection.projectors.kernel import KernelProjector
from hpml.projection.projectors.neural import NeuralProjector

J = jnp.array([[0.0, 1.0], [-1.0, 0.0]])


def skew(d, seed=0):
    S = np.random.default_rng(seed).normal(size=(d, d))
    S = S - S.T
    return jnp.asarray(S / np.linalg.norm(S, 2), jnp.float32)


def spread(d, count, seed=0):
    """Points around zero in pairs x, -x, so that their mean is zero."""
    half = np.random.default_rng(seed).normal(size=(count // 2, d))
    return jnp.asarray(np.stack([half, -half], 1).reshape(count, d), jnp.float32)


def feed(transformation, grads_fn, points, **extra):
    """The updates along given points, under jit and scan."""

    def step(state, x):
        update, state = transformation.update(grads_fn(x), state, x, **extra)
        return state, update

    return jax.jit(lambda x: jax.lax.scan(step, transformation.init(x[0]), x))(points)


@pytest.mark.parametrize("projector", [LinearProjector(), GraphProjector()])
def test_a_pure_potential_is_left_alone(projector):
    curvature = jnp.linspace(0.5, 2.0, 5)
    points = spread(5, 48)
    _, updates = feed(hodge_projection(projector, 32, 4), lambda x: curvature * x, points)
    grads = curvature * points
    error = (np.linalg.norm(updates - grads, axis=1) / np.linalg.norm(grads, axis=1))[-16:]
    assert error.mean() < (1e-3 if isinstance(projector, LinearProjector) else 0.05)


@pytest.mark.parametrize("keep", ["recent", "thinned"])
def test_the_rotation_is_removed(keep):
    d = 6
    S = skew(d)
    points = spread(d, 64)
    state, updates = feed(
        hodge_projection(LinearProjector(), 64, 8, keep=keep), lambda x: 0.5 * x - 3.0 * S @ x, points
    )
    np.testing.assert_allclose(updates[-1], 0.5 * points[-1], atol=1e-3)
    assert state.diagnostics.refreshes == 8
    assert state.diagnostics.identifiable > 0.5
    want = float(np.sum((3.0 * points @ S.T) ** 2) / np.sum((0.5 * points - 3.0 * points @ S.T) ** 2))
    np.testing.assert_allclose(state.diagnostics.nonpotentiality, want, atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"flat": True},
        {"keep": "thinned", "metric": Diagonal(np.linspace(0.5, 2.0, 16_000))},
        {"metric": LowRank(np.ones(16_000), np.random.default_rng(1).normal(size=(16_000, 2)) / 100)},
        {"residual": "optimistic"},
        {"residual": "extragradient", "lookahead": 0.1},
        {"probes": 2, "radius": 1e-3},
    ],
    ids=["plain", "flat", "diagonal", "low rank", "optimistic", "extragradient", "probes"],
)
def test_sketched_inner_products_change_the_update_by_as_much_as_they_are_wrong(options):
    d = 16_000
    turn = lambda x: 0.5 * x + 3.0 * jnp.stack([-x[1::2], x[::2]], 1).reshape(d)  # noqa: E731
    points = spread(d, 24)
    settings = {"safeguard": None, **options}
    make = lambda sketch: hodge_projection(LinearProjector(), 16, 8, sketch=sketch, **settings)  # noqa: E731
    run = lambda sketch: feed(make(sketch), turn, points, field_fn=turn)  # noqa: E731
    exact, want = run(None)
    state, found = run(1999)
    raw = jax.vmap(turn)(points)
    change = np.linalg.norm(want[-1] - raw[-1])
    assert change > 0.05 * np.linalg.norm(raw[-1])
    assert np.linalg.norm(found[-1] - want[-1]) < 1.5 * (2 * 16 / 1999) ** 0.5 * change
    assert abs(state.diagnostics.nonpotentiality - exact.diagnostics.nonpotentiality) < 0.05
    np.testing.assert_allclose(run(4001)[1], want, atol=1e-6)  # too few parameters for that: exact


def test_a_share_of_the_residual_is_kept_and_what_the_history_cannot_see_is_untouched():
    d = 400
    S = skew(d)
    points = spread(d, 24)
    grads = lambda x: 0.5 * x - 3.0 * S @ x  # noqa: E731
    _, whole = feed(hodge_projection(LinearProjector(), 16, 8), grads, points)
    _, half = feed(hodge_projection(LinearProjector(), 16, 8, share=0.5), grads, points)
    raw = jax.vmap(grads)(points)
    np.testing.assert_allclose(half[-1] - raw[-1], 0.5 * (whole[-1] - raw[-1]), atol=1e-5)
    rows = np.concatenate([points[-16:], raw[-16:]])
    change = np.asarray(whole[-1] - raw[-1])
    inside = np.linalg.lstsq(rows.T, change, rcond=None)[0] @ rows
    np.testing.assert_allclose(change, inside, atol=1e-3 * np.linalg.norm(change))
    assert np.linalg.norm(change) > 0


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_lengths_of_each_agent_are_those_of_what_came_and_what_went(share):
    turn = lambda x: {"a": 0.3 * x["a"] + x["b"][:, None], "b": 0.3 * x["b"] - x["a"].sum(1)}  # noqa: E731
    transformation = hodge_projection(LinearProjector(), 8, 4, share=share, agents=True)
    rng = np.random.default_rng(0)
    x = {"a": jnp.asarray(rng.normal(size=(3, 2))), "b": jnp.asarray(rng.normal(size=3))}
    state = transformation.init(x)
    for _ in range(8):
        x = jax.tree.map(lambda v: v + rng.normal(size=v.shape), x)
        grads = turn(x)
        changed, state = jax.jit(transformation.update)(grads, state, x)
        for found, tree in zip(state.lengths, (grads, changed), strict=True):
            expected = np.linalg.norm(np.concatenate([tree["a"], tree["b"][:, None]], 1), axis=1)
            np.testing.assert_allclose(found, expected, rtol=1e-4)
    moved = np.abs(state.lengths[0] - state.lengths[1]).max()
    assert moved > 0.01 if share else moved == 0


@pytest.mark.parametrize("projector", [KernelProjector(), GraphProjector(), NeuralProjector()])
@pytest.mark.parametrize("options", [{}, {"residual": "adjust"}, {"every": 2, "agents": True, "cross_fit": True}])
def test_a_fresh_state_may_be_donated(projector, options):
    """JAX refuses a buffer that is donated twice."""
    x = {"a": jnp.ones((2, 3)), "b": jnp.ones(2)}
    state = hodge_projection(projector, 4, 2, **options).init(x)
    jax.block_until_ready(jax.jit(lambda state: jax.tree.map(lambda leaf: leaf + 1, state), donate_argnums=0)(state))


def test_a_straight_path_identifies_nothing():
    d = 50
    points = jnp.linspace(0, 1, 40)[:, None] * jnp.ones(d)
    state, _ = feed(hodge_projection(LinearProjector(), 16, 4), lambda x: -3.0 * skew(d) @ x, points)
    assert state.diagnostics.identifiable < 0.02


@pytest.mark.parametrize("kind", ["euclidean", "diagonal", "low rank"])
def test_adjust_is_the_matrix_formula(kind):
    d, strength = 5, 0.7
    rng = np.random.default_rng(0)
    A, x = rng.normal(size=(d, d)), rng.normal(size=d)
    m, U = rng.uniform(0.5, 2.0, d), rng.normal(size=(d, 2))
    M = {"euclidean": np.eye(d), "diagonal": np.diag(m), "low rank": np.diag(m) + U @ U.T}[kind]
    metric = {"euclidean": None, "diagonal": Diagonal(m), "low rank": LowRank(m, U)}[kind]
    field_fn = lambda x: -jnp.tanh(jnp.asarray(A, jnp.float32) @ x)  # noqa: E731
    transformation = hodge_projection(residual="adjust", strength=strength, metric=metric, safeguard=None)
    x = jnp.asarray(x, jnp.float32)
    update, state = transformation.update(field_fn(x), transformation.init(x), x, field_fn=field_fn)
    F = np.tanh(A @ np.asarray(x))
    jacobian = (1 - F**2)[:, None] * A
    rotated = 0.5 * (jacobian - np.linalg.solve(M, jacobian.T @ M)) @ F
    np.testing.assert_allclose(-update, F + strength * rotated, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(state.diagnostics.residual_energy, rotated @ M @ rotated, rtol=1e-3)


def play(transformation, rate, steps, **extra):
    """The bilinear game max_x min_y x y by gradient steps; the ascent field is (y, -x)."""

    def step(carry, _):
        x, state = carry
        update, state = transformation.update(-J @ x, state, x, field_fn=lambda x: -J @ x, **extra)
        x = x - rate * update
        return (x, state), jnp.linalg.norm(x)

    start = jnp.array([1.0, 0.0])
    return jax.jit(lambda x: jax.lax.scan(step, (x, transformation.init(x)), None, steps))(start)


@pytest.mark.parametrize("residual", ["extragradient", "optimistic", "adjust"])
def test_treated_residuals_converge_where_the_raw_game_diverges(residual):
    rate = 0.1
    raw = optax.GradientTransformationExtraArgs(lambda p: (), lambda u, s, p, **_: (u, s))
    _, raw_norms = play(raw, rate, 1000)
    _, norms = play(hodge_projection(LinearProjector(), 32, 4, residual, lookahead=rate), rate, 1000)
    assert raw_norms[-1] > 10
    assert norms[-1] < 0.1


def test_extragradient_is_f_plus_eta_a_f():
    d, eta = 6, 1e-2
    S = skew(d)
    points = spread(d, 64)
    grads = lambda x: 0.5 * x - 3.0 * S @ x  # noqa: E731
    transformation = hodge_projection(LinearProjector(), 64, 8, "extragradient", lookahead=eta)
    _, updates = feed(transformation, grads, points, field_fn=grads)
    F = -grads(points[-1])
    np.testing.assert_allclose(-updates[-1], F + eta * 3.0 * S @ F, atol=1e-4)


def test_optimistic_is_twice_the_residual_minus_the_one_before():
    d = 6
    S = skew(d)
    points = spread(d, 66)[1:65]
    _, updates = feed(hodge_projection(LinearProjector(), 64, 8, "optimistic"), lambda x: 0.5 * x - 3.0 * S @ x, points)
    R = 3.0 * points @ S.T
    np.testing.assert_allclose(-updates[-1], -0.5 * points[-1] + 2 * R[-1] - R[-2], atol=1e-3)


def test_safeguard_limits_the_angle():
    d = 4
    S = skew(d)
    grads = lambda x: 0.05 * x - 3.0 * S @ x  # noqa: E731
    points = spread(d, 64)
    _, free = feed(hodge_projection(LinearProjector(), 64, 8, safeguard=None), grads, points)
    state, limited = feed(hodge_projection(LinearProjector(), 64, 8, safeguard=0.5), grads, points)
    raw = grads(points[-1])
    cosine = lambda u: float(u @ raw / jnp.linalg.norm(u) / jnp.linalg.norm(raw))  # noqa: E731
    assert cosine(free[-1]) < 0.2
    np.testing.assert_allclose(cosine(limited[-1]), 0.5, atol=1e-2)
    np.testing.assert_allclose(state.diagnostics.angle, np.arccos(0.5), atol=1e-2)


@pytest.mark.parametrize(
    ("residual", "projector"),
    [
        ("drop", KernelProjector()),
        ("drop", NeuralProjector(local_steps=3)),
        ("extragradient", GraphProjector()),
        ("optimistic", GraphProjector()),
        ("adjust", None),
    ],
)
def test_nothing_is_ever_nan(residual, projector):
    params = {"w": jnp.ones((2, 2)), "b": jnp.zeros(3, jnp.bfloat16)}
    field_fn = lambda p: jax.tree.map(lambda x: jnp.sin(5 * x), p)  # noqa: E731
    transformation = hodge_projection(projector, 4, 2, residual, lookahead=0.1)
    state = transformation.init(params)
    update = jax.jit(lambda g, s, p: transformation.update(g, s, p, field_fn=field_fn))
    for grads in (jax.tree.map(jnp.zeros_like, params), field_fn(params), field_fn(params), field_fn(params)):
        changed, state = update(grads, state, params)  # the parameters never move
        for leaf, given in zip(jax.tree.leaves(changed), jax.tree.leaves(grads), strict=True):
            assert leaf.dtype == given.dtype
            assert np.isfinite(np.asarray(leaf, np.float32)).all()
        assert all(np.isfinite(np.asarray(value)).all() for value in state.diagnostics)


@pytest.mark.parametrize("every", [1, 3])
def test_an_adjustment_that_is_no_number_is_none(every):
    """Where the field's Jacobian is infinite, and after a gradient that was not a number."""
    params = {"a": jnp.array([0.0, 1.0]), "b": jnp.array([1.0, 2.0])}
    transformation = hodge_projection(residual="adjust", every=every)
    root = lambda p: {"a": jnp.sqrt(jnp.abs(p["a"])) + p["b"], "b": -p["a"]}  # noqa: E731
    changed, state = transformation.update(root(params), transformation.init(params), params, field_fn=root)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), changed, root(params)))
    assert all(np.isfinite(np.asarray(value)).all() for value in state.diagnostics)

    turn = lambda p: {"a": p["b"], "b": -p["a"]}  # noqa: E731
    none = jax.tree.map(lambda leaf: leaf * jnp.nan, params)
    state = transformation.update(none, transformation.init(params), params, field_fn=turn)[1]
    for _ in range(every):
        changed, state = transformation.update(turn(params), state, params, field_fn=turn)
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(changed))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a != b).any()), changed, turn(params)))


@pytest.mark.parametrize(
    ("options", "slopes"),
    [
        ({"every": 2, "probes": 2}, "float32"),
        ({"every": 2, "probes": 2}, "bfloat16"),
        ({"every": 2, "residual": "adjust"}, "float32"),
    ],
)
def test_parameters_of_any_precision_and_size(options, slopes):
    """Half precision, an empty array, a number of Python; gradients in a precision of their own."""
    params = {
        "a": jnp.arange(4.0, dtype=jnp.bfloat16),
        "b": 1.0,
        "c": jnp.zeros((0, 3)),
        "d": jnp.ones((), jnp.float16),
    }
    field_fn = lambda p: jax.tree.map(lambda x: (0.5 * jnp.asarray(x)).astype(slopes), p)  # noqa: E731
    transformation = hodge_projection(GraphProjector(), 4, 2, **options)
    state = transformation.init(params)
    update = jax.jit(lambda g, s, p: transformation.update(g, s, p, field_fn=field_fn))
    for _ in range(3):
        params = jax.tree.map(lambda x: 0.9 * x, params)
        changed, state = update(field_fn(params), state, params)
        assert all(leaf.dtype == slopes and jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(changed))


@pytest.mark.parametrize("residual", ["drop", "adjust"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_gradients_whose_squares_half_precision_does_not_hold(residual, scale):
    """The same change as in float32, which has room for the squares."""
    J = jnp.array([[0.0, 1.0], [-1.0, 0.0]])
    changes = []
    for dtype in (jnp.float16, jnp.float32):
        field_fn = lambda p, dtype=dtype: (J @ p.astype(jnp.float32)).astype(dtype)  # noqa: E731
        transformation = hodge_projection(GraphProjector(), 8, 2, residual, cautious=False)
        update = jax.jit(lambda g, s, p, t=transformation, f=field_fn: t.update(g, s, p, field_fn=f))
        circle = [jnp.array([np.cos(t), np.sin(t)]) * scale for t in np.linspace(0, 6, 12)]
        state = transformation.init(circle[0].astype(dtype))
        for x in circle:
            changed, state = update(field_fn(x.astype(dtype)), state, x.astype(dtype))
        changes.append(np.asarray(changed, float) / scale)
        assert state.diagnostics.energy > 0
        assert state.diagnostics.angle > 0.1
    np.testing.assert_allclose(*changes, atol=0.02)


@pytest.mark.parametrize("residual", ["drop", "optimistic", "extragradient"])
@pytest.mark.parametrize("spike", [1e16, 3e18, 1e19, 3e37, float("inf"), float("nan")])
def test_one_huge_gradient_leaves_no_trace_that_is_no_number(residual, spike):
    S = skew(6)
    field_fn = lambda p: p - 0.5 * S @ p  # noqa: E731
    transformation = hodge_projection(history=8, refresh=2, residual=residual, lookahead=0.05)
    update = jax.jit(lambda g, s, p: transformation.update(g, s, p, field_fn=field_fn, halves=(1.1 * g, 0.9 * g)))
    x = jnp.ones(6)
    state = transformation.init(x)
    for step in range(40):
        changed, state = update((spike if step == 20 else 1.0) * field_fn(x), state, x)
        assert all(np.isfinite(np.asarray(value)).all() for value in state.diagnostics)
        if step != 20:
            assert jnp.isfinite(changed).all()
            x = x - 0.05 * changed


def test_vmap_over_seeds_equals_each_seed():
    d, S = 6, skew(6)
    transformation = hodge_projection(LinearProjector(), 8, 4, keep="reservoir")
    grads = lambda x: 0.5 * x - 3.0 * S @ x  # noqa: E731

    def run(points):
        def step(state, x):
            update, state = transformation.update(grads(x), state, x)
            return state, update

        return jax.lax.scan(step, transformation.init(points[0]), points)[1]

    seeds = jnp.stack([spread(d, 24, seed) for seed in range(3)])
    together = jax.jit(jax.vmap(run))(seeds)
    for points, updates in zip(seeds, together, strict=True):
        np.testing.assert_allclose(updates, jax.jit(run)(points), atol=2e-5)


def test_chain_with_adam_under_scan_and_no_second_trace():
    traces = []
    loss = lambda p: jnp.sum((p["a"] - 1.0) ** 2) + jnp.sum(p["b"] ** 2)  # noqa: E731
    chain = optax.chain(hodge_projection(GraphProjector(), 8, 4), optax.adam(0.05))
    params = {"a": jnp.zeros((2, 3)), "b": jnp.ones(4)}

    @jax.jit
    def step(carry):
        traces.append(1)
        params, state = carry
        update, state = chain.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, update), state

    carry = (params, chain.init(params))
    for _ in range(12):
        carry = step(carry)
    assert len(traces) == 1
    carry = jax.lax.scan(lambda c, _: (step(c), None), carry, None, 100)[0]
    assert loss(carry[0]) < 0.1 * loss(params)


def conditionals(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name == "cond":
            yield equation
        for value in equation.params.values():
            inner = value if isinstance(value, list | tuple) else [value]
            for part in inner:
                if hasattr(part, "jaxpr"):
                    yield from conditionals(part.jaxpr)
                elif hasattr(part, "eqns"):
                    yield from conditionals(part)


def test_the_history_is_never_copied_to_decide_whether_to_refresh():
    d, n, refresh = 400_009, 16, 4  # well above one step of the CPU's loop
    transformation = hodge_projection(GraphProjector(), n, refresh)
    x = jnp.zeros(d)
    state = transformation.init(x)
    jaxpr = jax.make_jaxpr(transformation.update)(x, state, x)
    found = list(conditionals(jaxpr.jaxpr))
    assert found
    refreshes = [e for e in found if any(v.aval.shape == (2, 2 * n, 2 * n) for v in e.outvars)]
    assert refreshes
    assert all(v.aval.size < d for e in refreshes for v in (*e.invars, *e.outvars))
    compiled = jax.jit(transformation.update, donate_argnums=1).lower(x, state, x).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < (n + refresh) * d * 4
    copies = [line for line in compiled.as_text().splitlines() if f"[{n + refresh},{d}]" in line and " copy(" in line]
    assert not copies


def test_halves_report_the_noise():
    d = 6
    S = skew(d)
    points = spread(d, 64)
    transformation = hodge_projection(LinearProjector(), 64, 8)
    grads = lambda x: 0.5 * x - 3.0 * S @ x  # noqa: E731
    state, _ = feed(transformation, grads, points)
    x = points[-1]
    noise = 0.1 * jnp.ones(d)
    g = grads(x)
    halves = (g + noise, g - noise)
    before, (_, state) = state, jax.jit(transformation.update)(g, state, x, halves=halves)
    given = jax.jit(lambda g, state, x: transformation.update(g, state, x, halves=lambda: halves))(g, before, x)[1]
    assert jax.tree.all(jax.tree.map(jnp.allclose, given.diagnostics, state.diagnostics))
    np.testing.assert_allclose(state.diagnostics.noise, float(noise @ noise / (g @ g)), rtol=1e-3)
    np.testing.assert_allclose(state.diagnostics.clean_energy, float(jnp.sum((3.0 * S @ x) ** 2)), rtol=1e-2)


def test_noise_that_a_fit_has_taken_in_is_not_in_the_clean_energy():
    """A hill without circulation, with as much noise as signal in each half."""
    transformation = hodge_projection(history=16, refresh=2, cross_fit=True)
    points = spread(6, 120)
    noise = jnp.asarray(np.random.default_rng(1).normal(size=(120, 2, 6)), jnp.float32)

    def step(state, given):
        x, noise = given
        halves = (0.7 * x + noise[0], 0.7 * x + noise[1])
        _, state = transformation.update(0.5 * (halves[0] + halves[1]), state, x, halves=halves)
        return state, state.diagnostics

    seen = jax.jit(lambda p, n: jax.lax.scan(step, transformation.init(p[0]), (p, n)))(points, noise)[1]
    raw, clean = (np.asarray(part[20:]).mean() for part in (seen.residual_energy, seen.clean_energy))
    assert abs(clean) < 0.25 * raw


@pytest.mark.parametrize("flat", [False, True])
def test_sketches_report_the_noise_nearly_and_refuse_halves_of_another_shape(flat):
    rng = np.random.default_rng(0)
    x, g, noise = ({"a": jnp.asarray(rng.normal(size=(60, 40))), "b": jnp.asarray(rng.normal(size=9))} for _ in "xgn")
    transformation = hodge_projection(history=4, flat=flat, sketch=513)
    both = lambda sign: jax.tree.map(lambda u, v: u + sign * 0.5 * v, g, noise)  # noqa: E731
    _, state = jax.jit(transformation.update)(g, transformation.init(x), x, halves=(both(1), both(-1)))
    lengths = [sum(float(jnp.vdot(leaf, leaf)) for leaf in tree.values()) for tree in (noise, g)]
    assert float(state.diagnostics.noise) == pytest.approx(0.25 * lengths[0] / lengths[1], rel=0.2)
    other = {"a": jnp.ones((60, 41)), "b": jnp.ones(9)}
    with pytest.raises(ValueError, match="shape"):
        transformation.update(g, state, x, halves=(other, other))


@pytest.mark.parametrize("kind", ["graph", "neural"])
def test_the_papers_settings(kind):
    chain = optax.chain(ctde_hpml(kind, history=8), optax.sgd(0.1))
    params = jnp.ones(3)
    state = chain.init(params)
    update = jax.jit(chain.update)
    for _ in range(9):
        changes, state = update(params, state, params)
        params = optax.apply_updates(params, changes)
    assert np.isfinite(np.asarray(params)).all()
    assert int(state[0].diagnostics.refreshes) == (1 if kind == "graph" else 9)


def test_the_papers_direction_is_followed_wherever_it_leads():
    """Rotation that carries nearly all of the field: the lifted potential turns by more than the safeguard allows."""
    angles = {}
    for name, options in {"paper": {}, "guarded": {"safeguard": 0.9}}.items():
        transformation = ctde_hpml("graph", history=16, refresh=1, **options)
        state, update, rng = transformation.init(jnp.ones(3)), jax.jit(transformation.update), np.random.default_rng(0)
        for _ in range(16):
            x = jnp.asarray(rng.normal(size=3))
            _, state = update(jnp.asarray([x[1], -x[0], 0.1 * x[2]]), state, x)
            angles.setdefault(name, []).append(float(state.diagnostics.angle))
    assert max(angles["guarded"]) < np.arccos(0.9) + 1e-3
    assert max(angles["paper"]) > np.arccos(0.01)


@pytest.mark.parametrize("projector", [None, GraphProjector()])
def test_a_path_that_says_nothing_takes_nothing_off(projector):
    """A game that raw steps bring together: what such a path is fitted with drove it apart."""
    turn = lambda p: {"one": p["two"] + 0.1 * p["one"], "two": 0.1 * p["two"] - p["one"]}  # noqa: E731
    lengths = {}
    for cautious in (True, False):
        optimiser = optax.chain(hodge_projection(projector, cautious=cautious), optax.sgd(0.05))
        params = {"one": jnp.ones(2), "two": jnp.ones(2)}

        def step(carry, _, optimiser=optimiser):
            params, state = carry
            updates, state = optimiser.update(turn(params), state, params)
            return (optax.apply_updates(params, updates), state), state[0].diagnostics.identifiable

        start = params, optimiser.init(params)
        (params, _), seen = jax.jit(lambda start, step=step: jax.lax.scan(step, start, length=100))(start)
        assert max(seen) < NOTHING
        lengths[cautious] = float(optax.global_norm(params))
    raw = 2.0 * np.abs(1 - 0.05 * (0.1 + 1j)) ** 100
    assert lengths[True] == pytest.approx(raw, rel=1e-4)
    assert lengths[False] > 1.1 * raw


def test_what_is_taken_off_grows_with_what_the_history_can_tell():
    told = [float(Treatment.told(jnp.asarray(share))) for share in (0.0, NOTHING, 0.3, ENOUGH, 1.0)]
    np.testing.assert_allclose(told, [0.0, 0.0, 0.5, 1.0, 1.0], atol=1e-6)


@pytest.mark.parametrize("keep", ["recent", "reservoir", "thinned"])
def test_a_rare_refresh_needs_no_more_than_two_histories(keep):
    """The rows of the last fit stay as they were until the next one, and the kept ones beside them."""
    transformation = hodge_projection(GraphProjector(), 4, 30, keep=keep, safeguard=None)
    x = jnp.arange(3.0)
    state, update = transformation.init(x), jax.jit(transformation.update)
    assert len(state.history.times) <= 2 * 4 + 2
    rng, seen = np.random.default_rng(0), None
    for step in range(1, 90):
        x = jnp.asarray(rng.normal(size=3))
        _, state = update(x, state, x)
        rows = np.asarray(state.chart.rows)[np.asarray(state.chart.mask)]
        if step % 30 == 0:
            seen = np.asarray(state.history.points)[rows]
        elif seen is not None:
            np.testing.assert_array_equal(np.asarray(state.history.points)[rows], seen)
        kept = np.asarray(state.history.times)[np.asarray(state.history.kept)]
        assert len(set(kept)) == min(step, 4)


@pytest.mark.parametrize("refresh", [3, 30])
def test_many_probes_leave_the_sample_before_where_it_was(refresh, monkeypatch):
    """With more probes than the history has room for, and with rows to spare: the same updates."""
    turn = lambda x: jnp.array([x[1] + 0.1 * x[0], 0.1 * x[1] - x[0], 0.2 * x[2]])  # noqa: E731
    points = jnp.asarray(np.random.default_rng(0).normal(size=(40, 3)))
    settings = {"residual": "optimistic", "probes": 6, "radius": 0.1, "safeguard": None}
    run = lambda: feed(hodge_projection(GraphProjector(), 4, refresh, **settings), turn, points, field_fn=turn)[1]  # noqa: E731
    few = run()
    made = hodge.history_init
    roomy = lambda like, count, keep, spare, *rest: made(like, count, keep, spare + 50, *rest)  # noqa: E731
    monkeypatch.setattr(hodge, "history_init", roomy)
    np.testing.assert_allclose(few, run(), atol=1e-5)


def adjusted(grads=None, field_fn=lambda x: x, **given):
    """One update of "adjust" where something may not fit two parameters."""
    x = jnp.ones(2)
    transformation = hodge_projection(residual="adjust")
    grads = x if grads is None else grads
    return inspect.unwrap(transformation.update)(grads, transformation.init(x), x, field_fn=field_fn, **given)


untyped = inspect.unwrap(hodge_projection)  # as those have it who do not check types


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: hodge_projection(history=1), "history"),
        (lambda: hodge_projection(refresh=0), "refresh"),
        (lambda: hodge_projection(residual="forget"), "residual"),
        (lambda: hodge_projection(keep="newest"), "keep"),
        (lambda: hodge_projection(share=1.5), "share"),
        (lambda: hodge_projection(safeguard=1.0), "safeguard"),
        (lambda: hodge_projection(residual="extragradient"), "lookahead"),
        (lambda: untyped("kernel"), "projector must be made"),
        (lambda: untyped(KernelProjector), "the class KernelProjector"),
        (lambda: untyped(history=8.5), "history must be a whole number of at least 2"),
        (lambda: untyped(refresh=2.5), "refresh must be a whole number"),
        (lambda: untyped(every=1.5), "every must be a whole number"),
        (lambda: hodge_projection(probes=-1), "probes must be a whole number of at least 0"),
        (lambda: hodge_projection(probes=2, radius=np.inf), "radius is a positive number"),
        (lambda: hodge_projection(probe_in="line"), "probe_in"),
        (lambda: untyped(seed="x"), "seed must be a whole number, got 'x'"),
        (lambda: untyped(history=jnp.array(8)), "static"),
        (lambda: hodge_projection(share=np.nan), "share"),
        (lambda: hodge_projection(residual="adjust", strength=-1.0), "strength"),
        (lambda: hodge_projection(residual="adjust", strength=np.nan), "strength"),
        (lambda: hodge_projection(residual="extragradient", lookahead=np.inf), "lookahead"),
        (lambda: hodge_projection(residual="extragradient", lookahead=0.1, stride=0.1), "give one of them"),
        (lambda: hodge_projection(sketch=1000), "odd"),
        (lambda: untyped(sketch=1000.5), "sketch"),
        (lambda: hodge_projection(cross_fit=True, projector=NeuralProjector(schedule="online")), "cross_fit"),
        (lambda: hodge_projection().init({}), "empty tree"),
        (lambda: hodge_projection(agents=True, metric=Diagonal(np.ones(2))), "agents"),
        (lambda: hodge_projection(agents=True).init({"a": jnp.ones((2, 3)), "b": jnp.ones(3)}), "first axis"),
        (lambda: hodge_projection(residual="adjust").init({}), "empty tree"),
        (lambda: hodge_projection().init(jnp.zeros(2, int)), "floating"),
        (lambda: hodge_projection().update(jnp.zeros(2), hodge_projection().init(jnp.zeros(2))), "params"),
        (
            lambda: hodge_projection(residual="adjust").update(
                jnp.zeros(2), hodge_projection(residual="adjust").init(jnp.zeros(2)), jnp.zeros(2)
            ),
            "field_fn",
        ),
        (lambda: ctde_hpml("kernel"), "kind"),
        (lambda: adjusted(field_fn=jnp.ones(2)), "pass gradients, not"),
        (lambda: adjusted(grads=jnp.zeros(3)), r"grads has a leaf of shape \(3,\)"),
        (lambda: adjusted(grads={"a": jnp.zeros(2)}), "grads must have the tree structure"),
        (lambda: adjusted(field_fn=lambda x: jnp.zeros(3)), "result of field_fn has a leaf of shape"),
        (lambda: adjusted(halves=jnp.zeros(2)), "halves must be two trees"),
        (lambda: adjusted(halves=(jnp.zeros(3), jnp.zeros(3))), "halves has a leaf of shape"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_the_angle_does_not_depend_on_units(scale):
    F, u = np.array([3.0, 1.0]), np.array([-1.0, 2.0])
    sizes = (scale * jnp.float32(part) for part in (F @ F, u @ F, u @ u))
    expected = np.arccos(F @ (F + u) / np.linalg.norm(F) / np.linalg.norm(F + u))
    assert float(angle_between(*(size * jnp.float32(scale) for size in sizes))) == pytest.approx(expected, abs=1e-5)


def test_one_look_serves_several_updates():
    d, every = 6, 3
    S = skew(d)
    points = jnp.repeat(spread(d, 24), every, 0)
    grads = lambda x: 0.5 * x - 3.0 * S @ x  # noqa: E731
    state, updates = feed(hodge_projection(LinearProjector(), 16, 4, every=every, safeguard=None), grads, points)
    change = np.asarray(updates - jax.vmap(grads)(points)).reshape(-1, every, d)
    np.testing.assert_allclose(change, np.broadcast_to(change[:, :1], change.shape), atol=1e-6)
    assert np.abs(change[-1]).max() > 0.1
    assert state.history.count == 24
    assert state.diagnostics.refreshes == 6


@pytest.mark.parametrize("residual", ["drop", "optimistic", "adjust"])
def test_a_caller_who_counts_the_looks_gets_what_counting_gives(residual):
    d, every = 5, 3
    S = skew(d)
    grads = lambda x: 0.5 * x - 3.0 * S @ x  # noqa: E731
    points = spread(d, 24)
    transformation = hodge_projection(LinearProjector(), 6, 2, residual, every=every)
    counted_state, counted = feed(transformation, grads, points, field_fn=grads)
    state, told = transformation.init(points[0]), []
    look, wait = (jax.jit(partial(transformation.update, field_fn=grads, hold=hold)) for hold in (False, True))
    for i, x in enumerate(points):
        changed, state = (wait if i % every else look)(grads(x), state, x)
        told.append(changed)
    np.testing.assert_allclose(told, counted, rtol=1e-5, atol=1e-5)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(counted_state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_probes_identify_circulation_where_the_path_says_nothing():
    d = 4
    S = skew(d)
    grads = lambda x: 0.3 * x - 1.0 * S @ x  # noqa: E731
    points = 0.05 * jnp.arange(8.0)[:, None] * jnp.eye(d)[0]
    path, _ = feed(hodge_projection(history=8, refresh=8), grads, points, field_fn=grads)
    probed = hodge_projection(history=24, refresh=8, probes=16, radius=1.0, probe_in="space", cross_fit=True)
    found, _ = feed(probed, grads, points, field_fn=grads)
    assert path.diagnostics.identifiable < 0.01
    assert path.diagnostics.nonpotentiality < 0.05
    # At the samples themselves the rotation about their mean is what no potential explains.
    x = np.asarray(found.history.points)[np.asarray(found.history.kept)]
    assert len(x) == 24
    F = -np.asarray(jax.vmap(grads)(jnp.asarray(x)))
    R = (x - x.mean(0)) @ np.asarray(S).T
    known = np.sum(R**2) / np.sum(F**2)
    assert found.diagnostics.identifiable > 0.5
    np.testing.assert_allclose(found.diagnostics.nonpotentiality, known, atol=0.1)
    np.testing.assert_allclose(found.diagnostics.held_out, known, atol=0.25)


def test_probes_in_the_plane_lie_on_a_circle_around_the_parameters():
    d, radius = 400, 0.01
    S = skew(d)
    grads = lambda x: 0.3 * x - S @ x  # noqa: E731
    transformation = hodge_projection(history=8, refresh=1, probes=4, radius=radius)
    x = jnp.ones(d)
    _, state = jax.jit(lambda s: transformation.update(grads(x), s, x, field_fn=grads))(transformation.init(x))
    away = np.asarray(state.history.points)[np.asarray(state.history.kept)] - np.asarray(x)
    length = np.linalg.norm(away, axis=1)
    np.testing.assert_allclose(length, [radius * d**0.5] * 4 + [0.0], rtol=1e-3, atol=1e-6)
    values = np.linalg.svd(away, compute_uv=False)
    assert values[2] < 1e-3 * values[1]
    F = -np.asarray(grads(x))
    np.testing.assert_allclose(away[0] / length[0], F / np.linalg.norm(F), atol=1e-3)


def test_a_conditional_stays_one_under_vmap():
    """No lane pays for a branch that none asked for, and each gets its own answer."""

    def lane(asked, x):
        return when(asked, lambda y: y + x.sum(), lambda y: y, x)

    asked, x = jnp.array([True, False]), jnp.arange(6.0).reshape(2, 3)
    got = jax.jit(jax.vmap(lane))(asked, x)
    np.testing.assert_array_equal(got, np.stack([x[0] + 3.0, x[1]]))
    jaxpr = jax.make_jaxpr(jax.vmap(lane))(asked, x)
    (found,) = conditionals(jaxpr.jaxpr)
    assert found.invars[0].aval.shape == ()


@pytest.mark.parametrize("name", ["share", "strength"])
def test_what_is_treated_may_follow_a_schedule(name):
    residual = "adjust" if name == "strength" else "drop"
    static = ("history", "refresh", "every", "probes", "seed", "residual", "lookahead", "radius", "cautious")
    static += ("cross_fit", "flat", "agents")
    settings = {"history": 8, "refresh": 2, "residual": residual, "cautious": False}
    scheduled = optax.inject_hyperparams(hodge_projection, static_args=static)(
        projector=LinearProjector(), **settings, **{name: lambda count: 0.1 * (count > 20)}
    )
    x, field_fn = jnp.array([1.0, 0.5]), lambda x: jnp.array([x[1] + 0.1 * x[0], 0.1 * x[1] - x[0]])
    state, changed = scheduled.init(x), []
    update = jax.jit(lambda x, state: scheduled.update(field_fn(x), state, x, field_fn=field_fn))
    for _ in range(40):
        grads, state = update(x, state)
        changed.append(bool(jnp.any(jnp.abs(grads - field_fn(x)) > 1e-6)))
        x = x - 0.1 * grads
    assert not any(changed[:20])
    assert all(changed[-10:])
