"""The graph projector: exact where the method is, honest about energy, and the same under jit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpml
from hpml.geometry.domain import Box
from hpml.geometry.metric import Dense, Diagonal, Euclidean, Shahshahani, Varying
from hpml.geometry.samples import gather_samples
from hpml.projection.projector import LocalSamples
from hpml.projection.projectors.graph import GraphProjector


def ball(rng, n, d):
    X = rng.normal(size=(n, d))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * rng.uniform(size=(n, 1)) ** (1 / d)


def fit(projector, X, F, metric=None, **options):
    metric = Euclidean() if metric is None else metric
    return projector.fit(gather_samples(X, F, options.pop("weights", None), metric), metric, **options)


def gradient(X):
    return -X - 0.5 * np.sin(2.0 * X)


def rotation(d, rng):
    S = rng.normal(size=(d, d))
    return (S - S.T) / np.linalg.norm(S - S.T, 2)


def error(found, exact):
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def test_the_residual_lift_leaves_a_gradient_alone():
    # To the trapezoid rule's third order in the edge length; the lifted potential is off by a third.
    rng = np.random.default_rng(0)
    X = ball(rng, 1000, 3)
    answer = fit(GraphProjector(neighbours=8), X, gradient(X))
    assert error(answer.at_samples()[1], gradient(X)) < 0.003
    assert answer.energy().nonpotentiality < 1e-4
    Q = ball(rng, 200, 3)
    assert error(answer.direction(Q), gradient(Q)) < 0.02
    assert error(fit(GraphProjector.paper(), X, gradient(X)).at_samples()[1], gradient(X)) > 0.1


@pytest.mark.parametrize("d", [2, 10])
def test_a_quadratic_potential_is_exact(d):
    rng = np.random.default_rng(1)
    X, Q = rng.normal(size=(150, d)), 0.5 * rng.normal(size=(20, d))
    A = rng.normal(size=(d, d))
    A = A + A.T
    answer = fit(GraphProjector(neighbours=20, ridge=0.0), X, X @ A)
    potential, direction = answer.at_samples()
    exact = 0.5 * np.einsum("nd,de,ne->n", X, A, X)
    np.testing.assert_allclose(direction, X @ A, atol=1e-7)
    np.testing.assert_allclose(potential, exact - exact.mean(), atol=1e-7)
    np.testing.assert_allclose(answer.direction(Q), Q @ A, atol=1e-6)
    np.testing.assert_allclose(answer.potential(Q), 0.5 * np.einsum("nd,de,ne->n", Q, A, Q) - exact.mean(), atol=1e-6)


def test_rotation_is_found_and_taken_out():
    rng = np.random.default_rng(2)
    X, S = ball(rng, 1000, 3), rotation(3, rng)
    swirl = 4.0 * X @ S.T
    answer = fit(GraphProjector(), X, gradient(X) + swirl)
    Q = ball(rng, 200, 3)
    assert error(answer.at_samples()[1], gradient(X)) < 0.35  # the raw field: 1.9
    assert error(answer.direction(Q), gradient(Q)) < 0.3
    true = (swirl**2).sum() / ((gradient(X) + swirl) ** 2).sum()
    assert answer.energy().nonpotentiality == pytest.approx(true, abs=0.06)


def test_at_a_sample_the_answer_is_the_samples_own():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2))
    for projector in (GraphProjector(), GraphProjector.paper()):
        answer = fit(projector, X, rng.normal(size=(60, 2)))
        potential, direction = answer.at_samples()
        np.testing.assert_array_equal(answer.direction(X), direction)
        np.testing.assert_array_equal(answer.potential(X), potential)


@pytest.mark.parametrize("projector", [GraphProjector(), GraphProjector.paper(), GraphProjector(neighbours=1)])
def test_in_a_chart_a_sample_is_known_too(projector):
    # The coordinates of one row round otherwise than those of all rows.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 500))
    p = hpml.project(X, -X + 0.1 * rng.normal(size=X.shape), projector)
    assert p.chart is not None
    for i in range(10):
        np.testing.assert_allclose(p.at(X[i : i + 1]), p.direction[i : i + 1], atol=1e-12)
        np.testing.assert_allclose(p.potential_at(X[i : i + 1]), p.potential[i : i + 1], atol=1e-10)
    # Any other point is no sample, also in a group of samples that is small beside the spread.
    A = 1e-13 * rng.normal(size=(10, 2))
    A = np.concatenate([A, [[1.0, 0.0]]])
    answer = fit(GraphProjector(neighbours=3, lift="potential"), A, rng.normal(size=(11, 2)))
    np.testing.assert_array_equal(answer.direction(A), answer.at_samples()[1])
    between = 0.5 * (A[:1] + A[1:2])
    assert (answer.direction(between) != answer.at_samples()[1]).any(1).all()


@pytest.mark.parametrize("projector", [GraphProjector(), GraphProjector.paper(), GraphProjector(weighting="gaussian")])
@pytest.mark.parametrize("noise", [None, "halves", "repeated"])
def test_no_units_change_the_shares(projector, noise):
    """Points and field up to 1e140 are accepted: their product is an edge flow, whose square float64 cannot hold."""
    rng = np.random.default_rng(0)
    X, S = rng.normal(size=(200, 3)), np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    F = -X + 2.0 * X @ S.T
    if noise:
        F = F + 0.5 * rng.normal(size=(2, 200, 3))
    if noise == "repeated":
        X, F = np.concatenate([X, X]), np.concatenate(F)
    one, *others = ((a, hpml.project(a * X, a * F, projector)) for a in (1.0, 1e80, 1e-90, 1e139, 1e-139))
    share, flow, energy, curl = one[1].nonpotentiality, one[1].flow.nonpotentiality, one[1].energy, one[1].flow.curl
    assert min(share, flow) > 0.1
    for a, p in others:
        assert p.nonpotentiality == pytest.approx(share, rel=1e-9)
        assert p.flow.nonpotentiality == pytest.approx(flow, rel=1e-9)
        for part in ("potential", "circulation", "noise"):
            assert getattr(p.energy, part) / a / a == pytest.approx(getattr(energy, part), rel=1e-9)
        np.testing.assert_allclose(p.flow.curl / a / a, curl, atol=1e-8)
        assert np.isfinite(p.direction).all()
        assert np.isfinite(p.at(a * (X[:3] + 0.1))).all()


def test_estimates_that_cancel_have_no_circulation():
    rng = np.random.default_rng(0)
    X, F = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    energy = fit(GraphProjector(), X, 1e60 * np.stack([F, -F])).energy()
    assert (energy.potential, energy.circulation) == (0.0, 0.0)


def test_the_gauge_is_the_samples_mean_on_each_component():
    rng = np.random.default_rng(14)
    A, B = rng.normal(size=(30, 2)), rng.normal(size=(20, 2)) + 50.0
    X = np.concatenate([A, B, A[:7], A[:7], B[:5]])
    F, near = rng.normal(size=X.shape), X[:, 0] < 25.0
    for weights in (None, rng.uniform(0.0, 1.0, len(X))):
        p = hpml.project(X, F, GraphProjector(neighbours=5), weights=weights)
        assert p.fit.graph.components == 2
        w = np.ones(len(X)) if weights is None else weights
        for part in (near, ~near):
            assert abs(np.average(p.potential[part], weights=w[part])) < 1e-12 * np.abs(p.potential).max()
        # The edge flow and new points have the same potential.
        np.testing.assert_array_equal(p.flow.node_potential[p.fit.samples.rows], p.potential)
        i, j = p.flow.edges.T
        np.testing.assert_allclose(p.flow.potential, p.flow.node_potential[j] - p.flow.node_potential[i], atol=1e-12)
        np.testing.assert_array_equal(p.potential_at(X), p.potential)


def test_whitening_the_space_changes_nothing():
    # With M = W^T W the problem in coordinates W x is Euclidean, and its answer is W g.
    rng = np.random.default_rng(4)
    X, F, A = rng.normal(size=(120, 3)), rng.normal(size=(120, 3)), rng.normal(size=(3, 3))
    dense, Q = Dense(A @ A.T + 0.5 * np.eye(3)), rng.normal(size=(20, 3))
    for metric in (dense, Varying(lambda x: dense)):
        for projector in (GraphProjector(), GraphProjector(neighbours=6, ridge=0.0), GraphProjector.paper()):
            inside = fit(projector, dense.whiten(X), dense.whiten(F))
            outside = fit(projector, X, F, metric)
            np.testing.assert_allclose(outside.at_samples()[0], inside.at_samples()[0], atol=1e-9)
            np.testing.assert_allclose(dense.whiten(outside.at_samples()[1]), inside.at_samples()[1], atol=1e-7)
            np.testing.assert_allclose(dense.whiten(outside.direction(Q)), inside.direction(dense.whiten(Q)), atol=1e-7)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_metrics_unit_changes_nothing(unit):
    rng = np.random.default_rng(4)
    X, F, Q = rng.normal(size=(120, 2)), rng.normal(size=(120, 2)), rng.normal(size=(20, 2))
    plain, scaled = fit(GraphProjector(), X, F), fit(GraphProjector(), X, F, Diagonal(np.full(2, unit)))
    np.testing.assert_allclose(scaled.at_samples()[1], plain.at_samples()[1], atol=1e-8)
    np.testing.assert_allclose(scaled.direction(Q), plain.direction(Q), atol=1e-8)


def test_a_replicator_field_of_a_potential_is_a_metric_gradient():
    rng = np.random.default_rng(5)
    X = rng.dirichlet(np.full(4, 6.0), size=400)[:, :3]
    metric = Shahshahani(4)
    F = np.asarray(metric.raise_index(np.cos(3 * X), X))
    answer = fit(GraphProjector(neighbours=10), X, F, metric)
    assert error(answer.at_samples()[1], F) < 0.05
    assert answer.energy().nonpotentiality < 1e-3


def test_energy_adds_up_and_uses_the_weights():
    rng = np.random.default_rng(6)
    X, F, s = rng.normal(size=(80, 2)), rng.normal(size=(80, 2)), rng.uniform(0.1, 1, 80)
    metric = Diagonal([2.0, 0.5])
    energy = fit(GraphProjector(), X, F, metric, weights=s).energy()
    total = (s / s.sum()) @ np.asarray(metric.inner(F, F))
    assert energy.potential + energy.circulation + energy.noise == pytest.approx(total)
    assert energy.noise == 0.0


@pytest.mark.parametrize("repeated", [False, True])
def test_known_noise_does_not_count_as_circulation(repeated):
    rng = np.random.default_rng(7)
    X = ball(rng, 600, 3)
    noisy = gradient(X) + 2.0 * rng.normal(size=(2, 600, 3)) * np.sqrt((gradient(X) ** 2).mean())
    points, field = (np.concatenate([X, X]), np.concatenate(noisy)) if repeated else (X, noisy)
    energy = fit(GraphProjector(), points, field).energy()
    assert fit(GraphProjector(), X, noisy.mean(0)).energy().nonpotentiality > 0.4
    assert energy.nonpotentiality < 0.15
    assert min(energy.potential, energy.circulation, energy.noise) >= 0.0


def test_a_measure_moves_the_split():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(500, 2)) * 0.5
    X = X[np.abs(X).max(1) < 1.0]
    F = -X + 2.0 * X[:, ::-1] * [1.0, -1.0] * (X[:, :1] > 0)
    plain, moved = (
        fit(GraphProjector(neighbours=10), X, F, measure=mu, key=jax.random.key(0))
        for mu in (None, Box([-1, -1], [1, 1]))
    )
    s = np.asarray(moved.flow.weights / plain.flow.weights)
    edge = np.linalg.norm(X[moved.flow.edges].mean(1), axis=1)
    assert s[edge > 0.8].mean() > 2.0 * s[edge < 0.3].mean()


def test_hyperparameters_are_checked():
    for options in ({"neighbours": 0}, {"weighting": "x"}, {"lift": "x"}, {"solver": "x"}, {"ridge": -1.0}):
        with pytest.raises(ValueError, match="must"):
            GraphProjector(**options)
    with pytest.raises(ValueError, match="neighbours=4"):
        fit(GraphProjector.paper(), np.eye(4), np.eye(4))
    paper = GraphProjector.paper()
    assert (paper.neighbours, paper.weighting, paper.lift, paper.ridge) == (4, "unit", "potential", 1e-4)


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 5), st.sampled_from([0.0, 1e-20, 1.0, 1e20]))
@settings(max_examples=40, deadline=None)
def test_never_a_nan(seed, n, d, scale):
    rng = np.random.default_rng(seed)
    X, F = rng.integers(-3, 4, (n, d)).astype(float), scale * rng.integers(-2, 3, (n, d))
    if len(np.unique(X, axis=0)) < 2:
        return
    answer = fit(GraphProjector(), X, F)
    Q = np.concatenate([X, 10.0 * rng.normal(size=(3, d))])
    for part in (*answer.at_samples(), answer.direction(Q), answer.potential(Q)):
        assert np.isfinite(part).all()
    assert 0.0 <= answer.energy().nonpotentiality <= 1.0


# The same split under jit, for a trainer's history.


def local(projector, X, F, count=None, dtype=jnp.float32):
    n, r = X.shape
    count = count or n
    points, field = np.full((2, count, r), np.nan)
    points[:n], field[:n] = X, F
    state = projector.local_init(count, r, jax.random.key(0))
    rows = LocalSamples(jnp.asarray(points, dtype), jnp.asarray(field, dtype), jnp.arange(count) < n)
    return jax.jit(projector.local_fit)(state, rows), state


@pytest.mark.parametrize("weighting", ["unit", "inverse_square", "gaussian"])
def test_the_local_potential_is_the_hosts(weighting):
    rng = np.random.default_rng(9)
    X = np.concatenate([rng.normal(size=(30, 4)), rng.normal(size=(20, 4)) + 20.0])
    F = rng.normal(size=X.shape)
    projector = GraphProjector(neighbours=5, weighting=weighting)
    state, before = local(projector, X, F, count=64)
    host = fit(projector, X, F)
    assert host.graph.components == 2
    np.testing.assert_allclose(
        state.potential[:50], host.at_samples()[0], atol=2e-4 * np.abs(host.at_samples()[0]).max()
    )
    assert not state.potential[50:].any()
    assert jax.tree.map(lambda x: (x.shape, x.dtype), state) == jax.tree.map(lambda x: (x.shape, x.dtype), before)


@pytest.mark.parametrize("r", [3, 40])
def test_the_local_residual_is_the_lifted_cyclic_flow(r):
    rng = np.random.default_rng(10)
    X, S = rng.normal(size=(60, r)), rotation(r, rng)
    F = -X + 2.0 * X @ S.T
    projector = GraphProjector(neighbours=59)
    state, _ = local(projector, X, F)
    residual = jax.jit(jax.vmap(projector.local_residual, (None, 0, 0)))(
        state, X.astype(np.float32), F.astype(np.float32)
    )
    host = fit(projector, X, F)
    # With every row a neighbour, inserting a row again finds its own edges.
    np.testing.assert_allclose(residual, F - host.at_samples()[1], atol=2e-3)


def test_the_local_residual_of_a_gradient_is_zero():
    rng = np.random.default_rng(11)
    X = rng.normal(size=(40, 5))
    projector = GraphProjector(neighbours=8)
    state, _ = local(projector, X, -X, count=50)
    x = rng.normal(size=5).astype(np.float32)
    np.testing.assert_allclose(jax.jit(projector.local_residual)(state, x, -x), 0.0, atol=1e-4)


def test_the_papers_local_residual_is_the_field_less_the_lifted_potential():
    rng = np.random.default_rng(12)
    X = rng.normal(size=(80, 2))
    slope = np.array([1.0, -2.0])
    projector = GraphProjector.paper()
    state, _ = local(projector, X, np.tile(slope, (80, 1)))
    field = jnp.asarray([5.0, 5.0])
    # Five edges agree with the slope to the ridge; the given field moves only the point's own potential.
    residual = jax.jit(projector.local_residual)
    np.testing.assert_allclose(residual(state, jnp.zeros(2), jnp.asarray(slope, jnp.float32)), 0.0, atol=0.02)
    assert residual(state, jnp.zeros(2), field).shape == (2,)


@pytest.mark.parametrize("projector", [GraphProjector(), GraphProjector.paper()])
@pytest.mark.parametrize("rows", [0, 1])
def test_too_few_rows_leave_nothing_to_see(projector, rows):
    state, _ = local(projector, np.ones((rows, 3)), np.ones((rows, 3)), count=8)
    residual = jax.jit(projector.local_residual)(state, jnp.ones(3), jnp.ones(3))
    np.testing.assert_array_equal(residual, 0.0)


def test_repeated_rows_and_a_path_make_no_nan():
    X = np.repeat(np.linspace(0, 1, 5)[:, None] * np.ones(3), 3, axis=0)
    projector = GraphProjector(neighbours=3)
    state, _ = local(projector, X, np.ones_like(X), count=20)
    residual = jax.jit(projector.local_residual)(state, jnp.asarray(X[0]), jnp.ones(3))
    assert np.isfinite(residual).all()
    assert np.isfinite(state.potential).all()


def test_seeds_are_one_vmap():
    rng = np.random.default_rng(13)
    X, F = rng.normal(size=(2, 3, 30, 4)).astype(np.float32)
    projector = GraphProjector(neighbours=6)
    state = projector.local_init(30, 4, jax.random.key(0))

    @jax.jit
    @jax.vmap
    def fit_all(points, field):
        return projector.local_fit(state, LocalSamples(points, field, jnp.ones(30, bool)))

    states = fit_all(jnp.asarray(X), jnp.asarray(F))
    for s in range(3):
        one, _ = local(projector, X[s], F[s])
        np.testing.assert_allclose(states.potential[s], one.potential, atol=1e-5)
