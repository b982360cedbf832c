"""The neural projector: its loss, its accuracy, its metrics, its online form and its fit of a history."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from hpml.geometry.domain import Ball
from hpml.geometry.metric import Dense, Diagonal, Euclidean, LowRank, Shahshahani, Varying
from hpml.geometry.samples import gather_samples
from hpml.projection.amortised import train
from hpml.projection.amortised.network import PotentialNetwork, least_squares_bowl, projection_loss
from hpml.projection.amortised.train import STARTS
from hpml.projection.project import project
from hpml.projection.projector import LocalSamples
from hpml.projection.projectors.neural import NeuralProjector

QUICK = NeuralProjector(steps=400, members=2)
SWIRL = np.array([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])


def ball(n, seed=0, dimension=3):
    return np.asarray(Ball(np.zeros(dimension)).sample(jax.random.key(seed), n), np.float64)


def gradient(X):
    """Of -|x|^2 / 2 + 0.3 sum cos(2 x)."""
    return -X - 0.6 * np.sin(2 * X)


def swirl(X, rho):
    return rho * 2 / (1 + (X**2).sum(1, keepdims=True)) * X @ SWIRL.T


def relative(answer, truth):
    return np.linalg.norm(answer - truth) / np.linalg.norm(truth)


@pytest.mark.parametrize(("rho", "error"), [(0.0, 0.01), (1.0, 0.08), (4.0, 0.18)])
def test_it_finds_the_gradient_part_in_the_ball(rho, error):
    X, Q = ball(1000), ball(1000, seed=1)
    p = project(X, gradient(X) + swirl(X, rho), NeuralProjector())
    assert relative(p.at(Q), gradient(Q)) < error
    share = np.sum(swirl(Q, rho) ** 2) / np.sum(gradient(Q) ** 2 + swirl(Q, rho) ** 2)
    assert p.nonpotentiality == pytest.approx(share, abs=0.03)


def test_the_loss_is_the_papers():
    rng = np.random.default_rng(0)
    M = np.array([[2.0, 0.5], [0.5, 1.0]])
    metric = Dense(M)
    X, F = rng.normal(size=(2, 7, 2))
    network = PotentialNetwork(2, 5, 2, jax.random.key(0))
    last = jnp.asarray(rng.normal(size=(1, 5)), jnp.float32)
    network = eqx.tree_at(lambda net: (net.weights[-1], net.slope), network, (last, jnp.array([0.3, -0.2])))
    recipe = NeuralProjector(gauge=0.7, weight_decay=0.3).recipe
    y, U = (jnp.asarray(metric.whiten(part), jnp.float32) for part in (X, F))
    loss = float(eqx.filter_jit(projection_loss)(recipe, network, y, U, jnp.full(7, 1 / 7)))

    def potential(x):  # Phi(x) = phi(W x), so that its gradient is in the coordinates of x
        return network(jnp.asarray(metric.whiten(x), jnp.float32))

    values, slopes = map(np.asarray, jax.jit(jax.vmap(jax.value_and_grad(potential)))(jnp.asarray(X, jnp.float32)))
    g = slopes @ np.linalg.inv(M)
    theta = np.concatenate([np.ravel(leaf) for leaf in network.weights])
    by_hand = np.mean(np.einsum("nd,de,ne->n", F - g, M, F - g)) + 0.7 * values.mean() ** 2 + 0.3 * theta @ theta
    assert loss == pytest.approx(by_hand, rel=1e-5)


def test_training_starts_at_the_least_squares_bowl():
    rng = np.random.default_rng(0)
    H = np.array([[-2.0, 0.5], [0.5, 1.0]])
    z, w = rng.normal(size=(50, 2)) * [2.0, 0.5], rng.uniform(size=50)
    slope, curvature = least_squares_bowl(z, 0.3 + z @ H, w / w.sum(), 0.0)
    np.testing.assert_allclose(slope, 0.3, atol=1e-3)
    np.testing.assert_allclose(curvature, H, atol=5e-3)  # a ridge of 1e-5 is always there


def test_a_ridge_leaves_a_round_bowl():
    rng = np.random.default_rng(0)
    z, w = rng.normal(size=(50, 3)), np.full(50, 1 / 50)
    z -= z.mean(0)
    H = np.diag([-2.0, 0.5, 1.0])
    _, curvature = least_squares_bowl(z, z @ H, w, 1e6)
    best = np.sum(z * (z @ H)) / np.sum(z**2)  # of all t, the one that brings t z closest to H z
    np.testing.assert_allclose(curvature, best * np.eye(3), atol=1e-5)


def test_a_long_axis_has_room_for_bends():
    """Gaussian points with deviations (3, 1): four waves along the long axis, hardly one along the other."""
    rng = np.random.default_rng(0)
    X, Q = rng.normal(size=(2, 1000, 2)) * [3.0, 1.0]
    p = project(X, gradient(X), NeuralProjector())
    assert relative(p.at(Q) + Q, gradient(Q) + Q) < 0.15


def test_fine_bends_are_found_from_a_low_weight_decay():
    """Gaussian points over four waves: the units that a high decay has flattened do not come back."""
    X = 2.0 * np.random.default_rng(0).normal(size=(400, 2))
    stiff, soft = np.nanmin(NeuralProjector().fit(gather_samples(X, np.sin(3.0 * X)), Euclidean()).history, 0)
    assert soft < 0.3 < 0.9 < stiff


def test_the_ensemble_stops_before_it_fits_circulation():
    """Few rows and a swirl of nine times the gradient's energy: trained on, the network fits the swirl at its rows."""
    X, Q = ball(200), ball(1000, seed=1)
    fit = NeuralProjector().fit(gather_samples(X, gradient(X) + swirl(X, 6.0)), Euclidean())
    assert relative(fit.direction(Q), gradient(Q)) < 0.25
    last = fit.history[np.isfinite(fit.history[:, 0])][-1]
    assert (last > 1.0).all()  # further from unseen rows than no answer at all


def test_the_direction_is_the_metric_gradient_of_the_potential():
    metric, X = LowRank([1.0, 2.0, 0.5], [[1.0], [0.0], [1.0]]), ball(100)
    p = project(X, gradient(X), QUICK, metric)
    step = 1e-2
    slopes = [(p.potential_at(X + step * e) - p.potential_at(X - step * e)) / (2 * step) for e in np.eye(3)]
    assert relative(np.asarray(metric.raise_index(np.stack(slopes, 1))), p.direction) < 1e-3
    assert abs(p.potential.mean()) < 1e-6


def test_a_constant_metric_is_the_euclidean_problem_in_whitened_coordinates():
    metric, X = Dense([[2.0, 0.5, 0.0], [0.5, 1.0, 0.2], [0.0, 0.2, 0.7]]), ball(100)
    F = gradient(X) + swirl(X, 1.0)
    p = project(X, F, QUICK, metric)
    q = project(np.asarray(metric.whiten(X)), np.asarray(metric.whiten(F)), QUICK)
    assert relative(np.asarray(metric.whiten(p.direction)), q.direction) < 1e-4
    assert p.nonpotentiality == pytest.approx(q.nonpotentiality, abs=1e-4)


def test_a_varying_metric_that_does_not_vary_is_the_constant_one():
    X = ball(100)
    F = gradient(X) + swirl(X, 0.5)
    constant = Diagonal([2.0, 0.5, 1.0])
    p, q = project(X, F, QUICK, Varying(lambda _: constant)), project(X, F, QUICK, constant)
    assert relative(p.direction, q.direction) < 1e-3


def test_a_metric_that_is_nothing_in_the_middle_of_a_ring():
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    X = np.concatenate([r * np.stack([np.cos(angle), np.sin(angle)], 1) for r in (0.5, 0.75, 1.0)])
    metric = Varying(lambda z: Diagonal((z @ z) * np.ones(2)))
    p = project(X, metric.raise_index(-X, X), QUICK, metric)
    assert p.nonpotentiality < 0.02


def test_the_replicator_field_of_a_common_payoff_is_a_shahshahani_gradient():
    metric = Shahshahani((3, 3))
    rng = np.random.default_rng(0)
    A = rng.normal(size=(3, 3))
    x, y = rng.dirichlet([2.0] * 3, size=(2, 200))
    X = np.concatenate([x[:, :2], y[:, :2]], 1)
    row, column = y @ A.T, x @ A
    covector = np.concatenate([row[:, :2] - row[:, 2:], column[:, :2] - column[:, 2:]], 1)
    F = np.asarray(metric.raise_index(covector, X))
    p = project(X, F, QUICK, metric)
    assert relative(p.direction, F) < 0.05
    assert p.nonpotentiality < 0.01


def test_noise_is_not_fitted():
    X = ball(200)
    F = np.random.default_rng(0).normal(size=X.shape)
    p = project(X, F, NeuralProjector())
    assert np.sum(p.direction**2) < 0.1 * np.sum(F**2)


def test_the_best_parameters_are_kept():
    """A rate that diverges must leave the answer where it was best: at the bowl."""
    X = ball(100)
    F = gradient(X) + swirl(X, 1.0)
    calm = project(X, F, NeuralProjector(rate=1e-12, steps=20, members=2))
    wild = project(X, F, NeuralProjector(rate=30.0, steps=200, members=2))
    assert relative(wild.direction, calm.direction) < 1e-3


def test_the_history_ends_where_patience_does():
    fit = NeuralProjector(patience=2, interval=5, steps=1000, members=3).fit(
        gather_samples(ball(64), ball(64)), Euclidean()
    )
    assert fit.history.shape == (200, len(STARTS))
    assert np.isfinite(fit.history[0]).all()
    assert np.isnan(fit.history[-1]).all()
    assert fit.method == "neural"


def test_no_more_steps_are_taken_than_asked_for():
    """An interval longer than the steps is cut to them, and a rest that fills no interval is left out."""
    samples = gather_samples(ball(64), ball(64))
    assert NeuralProjector(steps=10, interval=20).fit(samples, Euclidean()).history.shape[0] == 1
    assert NeuralProjector(steps=50, interval=20).fit(samples, Euclidean()).history.shape[0] == 2


@pytest.mark.parametrize("seed", range(4))
def test_few_rows_of_nothing_but_circulation_give_next_to_nothing(seed):
    rng = np.random.default_rng(seed)
    X, A = rng.normal(size=(30, 3)), rng.normal(size=(3, 3))
    F = X @ (A - A.T)
    fit = NeuralProjector().fit(gather_samples(X, F), Euclidean())
    assert np.linalg.norm(fit.direction(X)) < 0.2 * np.linalg.norm(F)


def test_two_and_three_points_are_taken():
    for n in (2, 3):
        p = project(ball(n), gradient(ball(n)), QUICK)
        assert np.isfinite(p.direction).all()


@pytest.mark.parametrize(
    "wrong",
    [{"width": 0}, {"rate": 0.0}, {"held_out": 1.0}, {"weight_decay": -1.0}, {"members": 0}],
)
def test_bad_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        NeuralProjector(**wrong)


# The online schedule (alg:neural-hpml)


@pytest.mark.parametrize("metric", [Euclidean(), Diagonal([4.0, 1.0, 0.5])])
def test_online_updates_learn_the_projection_of_a_stream(metric):
    projector = NeuralProjector(schedule="online", inner_steps=5)
    state = projector.init(3, jax.random.key(0), metric)
    update = eqx.filter_jit(projector.update)
    Q = ball(300, seed=9)
    truth = np.asarray(metric.raise_index(gradient(Q)))
    errors = []
    for t in range(150):
        X = ball(128, seed=t)
        F = np.asarray(metric.raise_index(gradient(X))) + np.asarray(metric.unwhiten(swirl(X, 0.5)))
        state = update(state, X, F)
        if t in (0, 149):
            errors.append(relative(np.asarray(projector.direction(state, Q)), truth))
    assert errors[1] < 0.5 * errors[0]
    if isinstance(metric, Euclidean):  # the swirl is orthogonal to gradients in the ball's own coordinates only
        assert errors[1] < 0.12


def test_the_paper_preset():
    paper = NeuralProjector.paper()
    assert (paper.rate, paper.inner_steps, paper.schedule) == (1e-3, 2, "online")
    state = paper.init(2, jax.random.key(0))
    after = paper.update(state, np.ones((1, 2)), np.ones((1, 2)))  # one point in the buffer at first
    assert np.isfinite(np.asarray(paper.direction(after, np.ones((1, 2))))).all()
    with pytest.raises(ValueError, match="constant"):
        paper.init(2, jax.random.key(0), Shahshahani(3))


# Devices


def products(jaxpr):
    """All products in a program, those of its inner programs too."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from products(inner)


@pytest.mark.parametrize("schedule", ["periodic", "online"])
def test_no_product_is_left_to_a_devices_own_precision(schedule, monkeypatch):
    """A GPU multiplies float32 with ten bits unless it is told otherwise."""
    projector = NeuralProjector(schedule=schedule, steps=20, members=2, width=4)
    points, one = ball(16), np.zeros(3, np.float32)
    state, learner = projector.local_init(16, 3, jax.random.key(0)), projector.init(3, jax.random.key(0))
    samples = LocalSamples(np.float32(points), np.float32(gradient(points)), np.ones(16, bool))
    programs = {
        "local_fit": jax.make_jaxpr(projector.local_fit)(state, samples),
        "local_residual": jax.make_jaxpr(projector.local_residual)(state, one, one),
        "update": jax.make_jaxpr(projector.update)(learner, points, gradient(points)),
        "direction": jax.make_jaxpr(projector.direction)(learner, points),
    }
    whole = train._train

    def seen(*arguments):
        programs["fit"] = jax.make_jaxpr(whole, static_argnums=0)(*arguments)
        return whole(*arguments)

    monkeypatch.setattr(train, "_train", seen)
    projector.fit(gather_samples(points, gradient(points)), Euclidean())
    for name, program in programs.items():
        found = list(products(program.jaxpr))
        assert found, name
        assert all(set(product.params["precision"] or ()) == {jax.lax.Precision.HIGHEST} for product in found), name


def reordered(networks, seed):
    """The same functions, with the hidden units of each layer in another order: sums round otherwise."""
    rng = np.random.default_rng(seed)
    weights, biases = list(networks.weights), list(networks.biases)
    for layer in range(len(weights) - 1):
        order = rng.permutation(weights[layer].shape[1])
        weights[layer], biases[layer] = weights[layer][:, order], biases[layer][:, order]
        weights[layer + 1] = weights[layer + 1][:, :, order]
    return eqx.tree_at(lambda net: (net.weights, net.biases), networks, (tuple(weights), tuple(biases)))


@pytest.mark.parametrize("rho", [0.0, 2.0])
def test_training_does_not_amplify_rounding(rho, monkeypatch):
    """Devices add in different orders."""
    X = 2.5 * ball(600)
    U, starts = gradient(X) + swirl(X, rho), train._among_samples
    plain = project(X, U, NeuralProjector()).direction
    monkeypatch.setattr(train, "_among_samples", lambda *given: reordered(starts(*given), 1))
    assert 0 < relative(project(X, U, NeuralProjector()).direction, plain) < 1e-5  # 0: the bowls were kept


# A trainer's history

COUNT, RANK, SPAN = 64, 8, 4


def history(seed=0, rho=2.0):
    """Points that spread in the first SPAN of RANK coordinates; a bowl plus a rotation of the first two."""
    rng = np.random.default_rng(seed)
    points = np.zeros((COUNT, RANK))
    points[:, :SPAN] = rng.normal(size=(COUNT, SPAN))
    turn = np.zeros((RANK, RANK))
    turn[1, 0], turn[0, 1] = rho, -rho
    field = -points * np.array([0.2, 3.0, 0.5, 2.0, 1.0, 1.0, 1.0, 1.0]) + points @ turn.T + 0.1
    return points.astype(np.float32), field.astype(np.float32), (points @ turn.T).astype(np.float32)


def local(points, field, mask=None):
    return LocalSamples(
        jnp.asarray(points), jnp.asarray(field), jnp.asarray(np.ones(COUNT, bool) if mask is None else mask)
    )


@pytest.fixture(scope="module")
def periodic():
    projector = NeuralProjector()
    return (
        jax.jit(projector.local_fit),
        jax.jit(projector.local_residual),
        projector.local_init(COUNT, RANK, jax.random.key(0)),
    )


def residuals(residual, state, points, field):
    return np.stack([residual(state, x, f) for x, f in zip(points[:16], field[:16], strict=True)])


def test_a_history_shows_its_rotation(periodic):
    fit, residual, state = periodic
    points, field, rotation = history()
    answer = residuals(residual, fit(state, local(points, field)), points, field)
    assert relative(answer, rotation[:16]) < 0.25
    np.testing.assert_allclose(answer[:, SPAN:], 0.0, atol=1e-4)  # nothing is seen there, the field's 0.1 stays


def test_a_history_of_a_gradient_shows_none(periodic):
    fit, residual, state = periodic
    points, field, _ = history(rho=0.0)
    assert np.abs(residuals(residual, fit(state, local(points, field)), points, field)).max() < 0.3


def test_far_from_the_history_nothing_is_taken_for_circulation(periodic):
    fit, residual, state = periodic
    points, field, _ = history()
    trained = fit(state, local(points, field))
    far = 20 * points[0] / np.linalg.norm(points[0]) * np.linalg.norm(points, axis=1).max()
    np.testing.assert_allclose(residual(trained, jnp.asarray(far), jnp.asarray(field[0])), 0.0, atol=1e-6)


def test_a_periodic_refresh_forgets(periodic):
    fit, residual, state = periodic
    first, second = local(*history(0)[:2]), local(*history(1)[:2])
    x, f = second.points[0], second.field[0]
    once, again = fit(state, second), fit(fit(state, first), second)
    # Hidden weights are carried, so the answers agree as two fits do, not to the last digit.
    assert relative(residual(again, x, f), residual(once, x, f)) < 0.1


def test_an_online_history_learns_over_refreshes_and_follows_a_turning_chart():
    projector = NeuralProjector(schedule="online", inner_steps=5, rate=1e-2)
    fit, residual = jax.jit(projector.local_fit), jax.jit(projector.local_residual)
    points, field, rotation = history()
    state = projector.local_init(COUNT, RANK, jax.random.key(0))
    rng = np.random.default_rng(3)
    for refresh in range(30):
        turn = np.linalg.qr(rng.normal(size=(RANK, RANK)))[0].astype(np.float32)
        points[refresh], field[refresh], rotation[refresh] = (part[refresh] for part in history(7))  # a new row
        state = fit(state, local(points @ turn.T, field @ turn.T))
    answer = residuals(residual, state, points @ turn.T, field @ turn.T) @ turn
    assert relative(answer, rotation[:16]) < 0.25


def test_a_measure_becomes_weights_of_the_samples():
    """A field that is one gradient on the left and another on the right: the bowl follows the side of the measure."""
    X = ball(300, dimension=2)
    F = np.where(X[:, :1] > 0, -X, X)
    narrow = NeuralProjector(steps=40, members=1, width=2, depth=1)
    energies, agreement = [], []
    for side in (-0.5, 0.5):
        p = project(X, F, narrow, measure=Ball(np.array([side, 0.0]), 0.4), key=jax.random.key(0))
        there = np.linalg.norm(X - [side, 0.0], axis=1) < 0.4
        agreement.append(np.sum(p.direction[there] * F[there]) / np.sum(F[there] ** 2))
        energies.append(p.energy.potential + p.energy.circulation + p.energy.noise)
    assert min(agreement) > 0.8
    np.testing.assert_allclose(energies, np.mean(np.sum(F**2, 1)))  # the observed energy, whatever the measure
