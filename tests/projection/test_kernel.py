"""The kernel projector: closed forms, independent solves, and the projection under measures of every shape."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import hpml
from hpml.geometry.metric import Euclidean
from hpml.geometry.samples import gather_samples
from hpml.projection.projectors.kernel import KernelProjector
from hpml.projection.smooth import dual, evidence, gradients, pair, spectral
from hpml.projection.smooth.pair import Hyper

HYPER = Hyper(1.3, 0.9, 0.7, 0.4, 1e-3)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def ball(rng, n, d):
    z = rng.normal(size=(n, d))
    return z / np.linalg.norm(z, axis=1, keepdims=True) * rng.uniform(size=(n, 1)) ** (1 / d)


def bowl(z):
    return -z - 0.6 * np.sin(2 * z)


def relative(found, exact):
    return np.linalg.norm(found - exact) / np.linalg.norm(exact)


def stretches(rng, n, d=2):
    """Positive definite matrices, one a sample."""
    roots = np.eye(d) + 0.5 * rng.normal(size=(n, d, d))
    return roots @ roots.swapaxes(1, 2)


def block_diagonal(stretch, n, d=2):
    return np.eye(n * d) if stretch is None else scipy.linalg.block_diag(*stretch)


varied = pytest.mark.parametrize("varies", [False, True], ids=["constant metric", "varying metric"])


# The prior.


@partial(jax.jit, static_argnums=3)
def derivatives(x, y, a, d):
    """The parts of the kernel pair at x, and the derivatives of each."""

    def parts(x):
        return pair.apply_pair(x[None], y, a, HYPER, d)

    curl = jax.jacobian(lambda x: parts(x).gradient[0])(x)
    divergence = jnp.trace(jax.jacobian(lambda x: parts(x).rotation[0])(x))
    return parts(x), curl, divergence, jax.grad(lambda x: parts(x).potential[0])(x)


@given(st.integers(0, 10_000), st.integers(2, 4))
def test_kernels_are_curl_free_and_divergence_free(seed, d):
    rng = np.random.default_rng(seed)
    y, a, x = rng.normal(size=(6, d)), rng.normal(size=(6, d)), rng.normal(size=d)
    with jax.enable_x64(True):
        parts, curl, divergence, slope = derivatives(x, y, a, d)
        np.testing.assert_allclose(curl, curl.T, atol=1e-10)
        assert abs(divergence) < 1e-10
        np.testing.assert_allclose(slope, parts.gradient[0], atol=1e-10)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_applied_kernels_equal_their_matrices_and_are_positive(rng, d):
    x, y, a = rng.normal(size=(5, d)), rng.normal(size=(7, d)), rng.normal(size=(7, d))
    with jax.enable_x64(True):
        parts = pair.apply_pair(x, y, a, HYPER, d)
        matrices = pair.pair_matrices(x, y, HYPER, d)
        for applied, matrix in zip((parts.gradient, parts.rotation), matrices, strict=True):
            np.testing.assert_allclose(applied.reshape(-1), matrix @ a.reshape(-1), atol=1e-12)
        for matrix in pair.pair_matrices(y, y, HYPER, d):
            np.testing.assert_allclose(matrix, matrix.T, atol=1e-14)
            assert np.linalg.eigvalsh(matrix).min() > -1e-10


@varied
def test_likelihood_agrees_with_scipy_and_its_derivative_with_differences(rng, varies):
    x, f, w = rng.normal(size=(12, 2)), rng.normal(size=(12, 2)), rng.uniform(0.5, 2, size=12)
    stretch = stretches(rng, 12) if varies else None
    logs = np.log(np.array(HYPER))
    with jax.enable_x64(True):
        value, slope = evidence._objective(logs, x, f, w, 2, stretch)
        P, D = (np.asarray(m) for m in pair.pair_matrices(x, x, HYPER, 2))
        C = block_diagonal(stretch, 12)
        K = C @ P @ C + D + np.diag(np.repeat(HYPER.noise * w, 2) + pair.JITTER * (HYPER.gradient + HYPER.rotation))
        reference = -scipy.stats.multivariate_normal(np.zeros(24), K).logpdf(f.reshape(-1))
        assert value == pytest.approx(reference - 12 * np.log(2 * np.pi), rel=1e-9)
        for i in range(5):
            step = np.eye(5)[i] * 1e-5
            up, down = (evidence._objective(logs + s, x, f, w, 2, stretch)[0] for s in (step, -step))
            assert slope[i] == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-6)


@varied
def test_left_out_residuals_equal_refits(rng, varies):
    x, f, w = rng.normal(size=(10, 2)), rng.normal(size=(10, 2)), np.ones(10)
    stretch = stretches(rng, 10) if varies else None
    with jax.enable_x64(True):
        whole = pair.condition(x, f, w, HYPER, 2, stretch)
        found = np.asarray(pair.left_out_residuals(whole, np.arange(10)))
        for i in range(10):
            keep, own = np.arange(10) != i, None if stretch is None else stretch[i : i + 1]
            rest = None if stretch is None else stretch[keep]
            parts = pair.condition(x[keep], f[keep], w[keep], HYPER, 2, rest).parts(x[i : i + 1], own)
            np.testing.assert_allclose(found[i], f[i] - parts.field(own)[0], atol=1e-8)


@varied
@pytest.mark.parametrize("form", ["exact", "features"])
def test_variances_are_those_of_gaussian_conditioning(rng, form, varies):
    """Of P and D at new points, from the covariances written out; the potential's falls to nothing it cannot know."""
    x, f, w, at = rng.normal(size=(12, 2)), rng.normal(size=(12, 2)), np.ones(12), rng.normal(size=(5, 2))
    stretch, hyper = stretches(rng, 12) if varies else None, HYPER._replace(noise=0.1)
    with jax.enable_x64(True):
        make = pair.condition if form == "exact" else spectral.condition_spectral
        posterior = make(x, f, w, hyper, 2 if form == "exact" else 512, stretch)
        potential, *found = (np.asarray(part) for part in posterior.variances(at))
        prior = [np.asarray(m) for m in pair.pair_matrices(at, at, hyper, 2)]
        P, D = (np.asarray(m) for m in pair.pair_matrices(at, x, hyper, 2))
        K = np.asarray(pair.log_system(np.log(np.array(hyper)), x, w, 2, stretch))
    for variance, own, cross in zip(found, prior, (P @ block_diagonal(stretch, 12), D), strict=True):
        wanted = np.diag(own - cross @ np.linalg.solve(K, cross.T)).reshape(5, 2)
        np.testing.assert_allclose(variance, wanted, atol=1e-6 if form == "exact" else 0.05)
    assert (potential > 0).all()


def test_the_fitted_noise_is_the_true_noise(rng):
    x = ball(rng, 600, 3)
    clean = bowl(x) + 2 * np.cross(np.array([0.0, 0.0, 1.0]), x)
    for size in (0.1, 0.5):
        noisy = clean + size * rng.normal(size=x.shape)
        energy = hpml.project(x, noisy).energy
        assert energy.noise == pytest.approx(3 * size**2, rel=0.15)
        assert energy.potential + energy.circulation + energy.noise == pytest.approx((noisy**2).sum(1).mean())


# The second step.


slopes = eqx.filter_jit(lambda basis, u: basis.gradients(u))
jacobians = eqx.filter_jit(lambda basis, u: jax.vmap(jax.jacobian(lambda v: basis.values(v[None])[0]))(u))


@given(st.integers(0, 10_000), st.integers(1, 5), st.booleans())
def test_gradients_of_the_basis_are_its_derivatives(seed, d, waves):
    basis = gradients.potentials(d, 1.2 if waves else None, 8, seed)
    u = np.random.default_rng(seed).normal(size=(3, d))
    with jax.enable_x64(True):
        assert jax.eval_shape(basis.values, u).shape == (3, basis.size)
        expected = jacobians(basis, u)
        np.testing.assert_allclose(slopes(basis, u).transpose(0, 2, 1), expected, atol=1e-10)


def test_penalised_regression_equals_least_squares(rng):
    u, target = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
    weights = rng.uniform(0.5, 1.5, size=40)
    weights /= weights.sum()
    target = target + 5 * u  # a clear gradient, so that it is not cross-validated away
    with jax.enable_x64(True):
        fit = gradients.regress_gradients(u, target, weights, (None,), 0)
        rows = np.asarray(fit.basis.gradients(u)).reshape(-1, fit.basis.size)
    root = np.sqrt(np.repeat(weights, 2))
    losses = []
    for penalty in gradients.PENALTIES:
        stacked = np.concatenate([rows * root[:, None], np.sqrt(penalty) * np.eye(rows.shape[1])])
        right = np.concatenate([target.reshape(-1) * root, np.zeros(rows.shape[1])])
        losses.append(np.abs(np.linalg.lstsq(stacked, right, rcond=None)[0] - fit.coefficients).max())
    assert min(losses) < 1e-9


def test_a_field_with_no_gradient_part_is_left_alone(rng):
    u = ball(rng, 300, 2)
    with jax.enable_x64(True):
        fit = gradients.regress_gradients(u, u @ np.array([[0, 1], [-1, 0.0]]), np.full(300, 1 / 300), (None, 2.0), 32)
    assert np.linalg.norm(fit.gradient(u)) < 0.2 * np.linalg.norm(u)


def swirls(d, n, seeds, weigh=np.ones):
    """How often a rotation, which no gradient resembles, passes for one."""
    J = np.zeros((d, d))
    J[0, 1], J[1, 0] = -1.0, 1.0
    taken = 0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        u, w = rng.normal(size=(n, d)), weigh(n)
        with jax.enable_x64(True):
            fit = gradients.regress_gradients(u, u @ J.T, w / w.sum(), (None, 2.0), 32)
        taken += np.any(np.asarray(fit.coefficients))
    return taken / seeds


@pytest.mark.parametrize(("d", "n"), [(2, 60), (2, 200), (3, 100)])
def test_chance_seldom_passes_for_a_gradient(d, n):
    assert swirls(d, n, 60) <= 0.1


def test_one_heavy_sample_proves_no_gradient():
    assert swirls(2, 100, 40, lambda n: np.where(np.arange(n) == 0, n, 1.0)) <= 0.1


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_one_heavy_sample_near_the_top_does_not_hide_a_clear_hill(share):
    n, seeds = 60, range(20)
    with jax.enable_x64(True):
        for seed in seeds:
            u = np.random.default_rng(seed).normal(size=(n, 2))
            u[0] *= 0.1
            w = np.where(np.arange(n) == 0, share, (1.0 - share) / (n - 1))
            assert np.any(np.asarray(gradients.regress_gradients(u, -u, w, (None, 2.0), 32).coefficients))


# The three forms agree.


def test_spectral_features_reproduce_the_kernels(rng):
    """With many frequencies the features' covariance is the kernel."""
    d, x = 3, rng.normal(size=(4, 3)) * 0.5
    with jax.enable_x64(True):
        basis = gradients.potentials(d, HYPER.length_gradient, 4096)
        rotations = gradients.potentials(d, HYPER.length_rotation, 4096, 1).frequencies
        amplitudes = spectral._orthogonal_amplitudes(rotations, HYPER)
        turning = np.asarray(spectral._rotation_features(rotations, amplitudes, x)).reshape(12, -1)
        waves = np.asarray(basis.gradients(x)).reshape(12, -1)
        variances = 1.0 / spectral._prior_precision(basis, len(rotations), d, HYPER)
        wanted_gradient, wanted_rotation = pair.pair_matrices(x, x, HYPER, d)
        k = basis.size
        np.testing.assert_allclose(waves * variances[:k] @ waves.T, wanted_gradient, atol=0.02)
        np.testing.assert_allclose(turning * variances[k:] @ turning.T, wanted_rotation, atol=0.02)


@varied
def test_spectral_normal_equations_equal_plain_ridge(rng, varies, monkeypatch):
    """The scalar Gram matrix and the table of combinations against the design matrix written out; rows in two parts."""
    x, f, w = rng.normal(size=(90, 3)), rng.normal(size=(90, 3)), rng.uniform(0.5, 2, size=90)
    hyper, stretch = HYPER._replace(noise=0.1), stretches(rng, 90, 3) if varies else None
    monkeypatch.setattr(spectral, "NUMBERS", 1)
    with jax.enable_x64(True):
        found = spectral.condition_spectral(x, f, w, hyper, 8, stretch, chunk=40)
        slopes = np.asarray(found.basis.gradients(x)).reshape(270, -1)
        turning = np.asarray(spectral._rotation_features(found.rotations, found.amplitudes, x)).reshape(270, -1)
        design = np.concatenate([block_diagonal(stretch, 90, 3) @ slopes, turning], axis=1)
        prior = spectral._prior_precision(found.basis, len(found.rotations), 3, hyper)
    weights = np.repeat(1 / (0.1 * w), 3)
    system = design.T * weights @ design + np.diag(prior)
    expected = np.linalg.solve(system, design.T @ (weights * f.reshape(-1)))
    np.testing.assert_allclose(found.coefficients, expected, rtol=1e-6, atol=1e-8)


def test_noise_is_averaged_by_features_and_clean_samples_are_fitted_exactly(rng):
    """Above the limit the better of two forms is used; all are near the truth."""
    x, test = ball(rng, 900, 3), ball(rng, 300, 3)
    clean = bowl(x) + np.cross(np.array([0.0, 0.0, 1.0]), x)
    noisy = clean + 0.3 * rng.normal(size=x.shape)
    exact = hpml.project(x, noisy)
    features = hpml.project(x, noisy, KernelProjector(exact=300))
    subset = hpml.project(x, clean, KernelProjector(exact=300))
    assert "exact)" in exact.method
    assert "Fourier" in features.method
    assert "100 of 900" in subset.method
    assert relative(exact.at(test), bowl(test)) < 0.12
    assert relative(features.at(test), bowl(test)) < 0.12
    assert relative(subset.at(test), bowl(test)) < 0.06


def test_bends_are_found_in_many_coordinates(rng):
    """A potential that no affine gradient comes near, under strong rotation: the likelihood needs enough samples."""
    d = 8
    frame = np.linalg.qr(rng.normal(size=(d, d)))[0]
    S = rng.normal(size=(d, d))
    S = (S - S.T) / np.linalg.norm(S - S.T, 2)

    def gradient(z):
        return -z + 1.5 * np.cos(1.2 * z @ frame.T) @ frame

    x, test = rng.normal(size=(250, d)), rng.normal(size=(300, d))
    turn = 11.0 / (1.0 + (x**2).sum(1, keepdims=True) / d) * (x @ S.T)
    p = hpml.project(x, gradient(x) + turn)
    assert relative(-0.7 * test, gradient(test)) > 0.5  # about the best bowl
    assert relative(p.at(test), gradient(test)) < 0.29  # with 480 numbers of the field it is .34


@pytest.mark.parametrize(("n", "d"), [(20, 1), (12, 30), (150, 3)])
def test_the_dual_forms_uncertainty_is_at_least_the_posteriors(rng, n, d):
    """In one dimension with few samples nothing is left out, and the bounds are the variances."""
    x = rng.normal(size=(n, d))
    field = -x + 0.1 * rng.normal(size=(n, d))
    asked = np.concatenate([x[:3], rng.normal(size=(5, d)), 10 * rng.normal(size=(2, d))])
    with jax.enable_x64(True):
        ambient = max(d, 2)
        fit = dual.fit_dual(jnp.asarray(x), jnp.asarray(field), jnp.ones(n), ambient, iterations=200)
        hyper = pair.Hyper(fit.length, fit.length, 1.0, dual.ROTATION, fit.noise)
        posterior = pair.condition(fit.points, field / fit.size, np.ones(n), hyper, ambient)
        exact = posterior.variances((asked - fit.centre) / fit.scale)
        units = ((fit.size * fit.scale) ** 2, fit.size**2, fit.size**2)
        bounds = [np.asarray(bound / unit) for bound, unit in zip(fit.variances(asked), units, strict=True)]
        likeliest, L, size = float(fit.evidence(field)), np.asarray(posterior.factor), float(fit.size)
    z, system = field.reshape(-1) / size, L @ L.T
    assert likeliest == pytest.approx(z @ np.linalg.solve(system, z) / z.size, rel=1e-4)
    for bound, variance in zip(bounds, exact, strict=True):
        assert (bound >= (1 - 1e-6) * np.asarray(variance)).all()
        assert (bound <= (1 + 1e-4 if d == 1 else 5.0) * np.asarray(variance) + 1e-6).all()


def test_the_dual_forms_uncertainty_covers_what_it_does_not_know():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 40))
    p = hpml.project(x, -x + 0.1 * rng.normal(size=x.shape))
    assert "dual" in p.method
    asked = rng.normal(size=(20, 40))
    found = p.predict(asked)
    np.testing.assert_allclose(found.direction, p.at(asked))
    np.testing.assert_allclose(found.potential, p.potential_at(asked))
    off = np.abs(found.direction + asked) / found.direction_std
    assert (off < 2).mean() > 0.9  # two deviations cover at least nine in ten
    assert np.median(off) > 0.05  # and are not beyond all measure


def test_dual_form_agrees_in_few_dimensions(rng):
    x, test = ball(rng, 300, 3), ball(rng, 200, 3)
    field = -x + 2 * np.cross(np.array([0.0, 0.0, 1.0]), x)
    with jax.enable_x64(True):
        fit = jax.jit(lambda x, f: dual.fit_dual(x, f, jnp.ones(300), 3))(x, field)
        potential, direction, residual = (np.asarray(part) for part in jax.jit(lambda z: fit.parts(z))(test))
        slope = np.asarray(jax.jit(jax.vmap(jax.grad(lambda z: fit.parts(z[None])[0][0])))(test))
    np.testing.assert_allclose(slope, direction, atol=1e-8)
    assert relative(direction, -test) < 0.3
    assert relative(residual, 2 * np.cross(np.array([0.0, 0.0, 1.0]), test)) < 0.2
    assert potential.shape == (200,)


@varied
@pytest.mark.parametrize("form", ["exact", "features"])
def test_balance_is_conditioning_on_orthogonal_moments(rng, form, varies):
    """The covariance and the gains against Gaussian conditioning written out; the whole field stays as it is."""
    x, f, w, at = rng.normal(size=(20, 2)), rng.normal(size=(20, 2)), np.ones(20), rng.normal(size=(9, 2))
    hyper = HYPER._replace(noise=0.1)
    stretch, there = (stretches(rng, 20), stretches(rng, 9)) if varies else (None, None)
    with jax.enable_x64(True):
        if form == "exact":
            posterior = pair.condition(x, f, w, hyper, 2, stretch)
        else:
            posterior = spectral.condition_spectral(x, f, w, hyper, 64, stretch)
        fields = np.asarray(gradients.potentials(2, None, 0).gradients(at)) / 9
        covariance, gains = posterior.rotation_moments(at, fields)
        before, step = posterior.parts(at, there), gains @ np.ones(fields.shape[2])
        after = posterior.moved_by(step).parts(at, there)
        whole = after.field(there), before.field(there)
        P, D = (np.asarray(m) for m in pair.pair_matrices(at, x, hyper, 2))
        prior = np.asarray(pair.pair_matrices(at, at, hyper, 2)[1])
        K = np.asarray(pair.log_system(np.log(np.array(hyper)), x, w, 2, stretch))
    P = P @ block_diagonal(stretch, 20)
    flat = fields.reshape(18, -1)
    loose = 1e-6 if form == "exact" else 0.02
    wanted = flat.T @ (prior - D @ np.linalg.solve(K, D.T)) @ flat
    np.testing.assert_allclose(covariance, wanted, atol=loose)
    moved = -P @ np.linalg.solve(K, D.T) @ flat.sum(1)
    np.testing.assert_allclose((after.gradient - before.gradient).reshape(-1), moved, atol=3 * loose)
    np.testing.assert_allclose(*whole, atol=1e-10)


def test_noise_does_not_move_constants_between_the_parts(rng):
    """A bowl with a swirl that carries four times its energy: P alone is off by .2 in its mean."""
    x, test = ball(rng, 600, 3), ball(rng, 500, 3)
    clean = bowl(x) + 8 / (1 + (x**2).sum(1, keepdims=True)) * np.cross(np.array([0.0, 0.6, 0.8]), x)
    noisy = clean + np.sqrt(0.1 * (clean**2).mean()) * rng.normal(size=x.shape)
    assert relative(hpml.project(x, noisy).at(test), bowl(test)) < 0.16


def test_many_dimensions_run_in_a_chart(rng):
    """d >> n: the bowl is seen along the samples' span and the answer is in the samples' span."""
    d, n = 2000, 60
    frame = np.linalg.qr(rng.normal(size=(d, 3)))[0]
    z = rng.normal(size=(n, 3))
    x, field = z @ frame.T + 5.0, (-z + np.cross(np.array([0.0, 0.0, 1.0]), z)) @ frame.T
    p = hpml.project(x, field)
    assert p.chart is not None
    assert relative(p.direction, -z @ frame.T) < 0.35
    assert relative(p.direction @ frame @ frame.T, p.direction) < 1e-6


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_few_samples_in_many_dimensions(rng, noise):
    """40 samples of 50 coordinates: a bowl and a rotation of the same size. Most of the bowl is found, noise or not."""
    n, d = 40, 50
    x, A = rng.normal(size=(n, d)), rng.normal(size=(d, d)) / np.sqrt(2 * d)
    field = -x + x @ (A - A.T)
    field = field + np.sqrt(noise * (field**2).mean()) * rng.normal(size=(n, d))
    p = hpml.project(x, field)
    assert ("dual" in p.method) == (noise > 0)
    assert relative(p.direction, -x) < 0.75 * relative(field, -x)
    assert 0.1 < p.nonpotentiality < 0.6
    assert np.isfinite(p.at(rng.normal(size=(5, d)))).all()


def test_few_samples_in_thousands_of_dimensions_settle_no_rotation(rng):
    """32 points in general position: a symmetric matrix explains any field there, so all of it is potential."""
    x, field = rng.normal(size=(2, 32, 3000))
    p = hpml.project(x, -x + field)
    assert np.isfinite(p.potential).all()
    assert relative(p.direction, -x + field) < 0.3
    assert p.nonpotentiality < 0.1


@given(st.integers(1, 80), st.integers(1, 400))
def test_the_basis_is_bounded_by_the_points(d, n):
    """At most an eighth of the numbers are spent on quadratic potentials, or a few."""
    basis = gradients.potentials(d, None, 0, count=n)
    assert basis.size <= d + max(n * d // gradients.SETTLE, gradients.FEW)
    assert basis.quadratic or d > 32


# The projection itself.


def test_potential_and_direction_belong_together(rng):
    x = ball(rng, 150, 3)
    p = hpml.project(x, bowl(x) + np.cross(np.array([0.0, 0.0, 1.0]), x))
    test, h = ball(rng, 20, 3), 1e-5
    for i in range(3):
        step = h * np.eye(3)[i]
        slope = (p.potential_at(test + step) - p.potential_at(test - step)) / (2 * h)
        np.testing.assert_allclose(slope, p.at(test)[:, i], atol=1e-5)
    np.testing.assert_allclose(p.direction, p.at(x), atol=1e-12)
    assert abs(p.potential.mean()) < 1e-10


@pytest.mark.parametrize("deviations", [(1.0, 1.0), (3.0, 1.0)])
def test_affine_oracle_under_gaussians_of_any_shape(rng, deviations):
    """Not sym(J) when the covariance is not isotropic: only a projection under the measure gets this right."""
    J = np.array([[-1.0, -1.5], [0.8, -0.5]])
    c = np.array(deviations)
    oracle = hpml.affine_projection(J, covariance=np.diag(c**2))
    x, test = rng.normal(size=(800, 2)) * c, rng.normal(size=(400, 2)) * c
    p = hpml.project(x, x @ J.T, measure=lambda key, n: np.random.default_rng(1).normal(size=(n, 2)) * c)
    assert relative(p.at(test), oracle.direction(test)) < 0.05
    assert p.nonpotentiality == pytest.approx(oracle.nonpotentiality, abs=0.02)
    symmetric = relative(test @ (0.5 * (J + J.T)), oracle.direction(test))
    assert (symmetric > 0.2) == (deviations != (1.0, 1.0))


def gradient_on_square(field, points):
    """The projection of a field on the square [-1, 1]^2, by quadrature: the gradient of a polynomial series."""
    from numpy.polynomial import legendre

    nodes, w = legendre.leggauss(40)
    X, Y = (a.ravel() for a in np.meshgrid(nodes, nodes, indexing="ij"))
    W = np.sqrt(np.outer(w, w).ravel())
    powers = [(i, j) for i in range(15) for j in range(15 - i) if i + j]

    def design(x, y):
        return np.concatenate(
            [
                np.stack([i * x ** max(i - 1, 0) * y**j for i, j in powers], 1),
                np.stack([j * x**i * y ** max(j - 1, 0) for i, j in powers], 1),
            ]
        )

    rows = design(X, Y) * np.tile(W, 2)[:, None]
    c = np.linalg.lstsq(rows, (field(np.stack([X, Y], 1)) * W[:, None]).T.ravel(), rcond=None)[0]
    return (design(points[:, 0], points[:, 1]) @ c).reshape(2, -1).T


def quarter_turn(points):
    return np.stack([-points[:, 1], points[:, 0]], 1)


def test_a_rotation_that_crosses_a_box_has_a_gradient_part(rng):
    test = rng.uniform(-1, 1, size=(300, 2))
    exact = gradient_on_square(quarter_turn, test)
    x = rng.uniform(-1, 1, size=(300, 2))
    p = hpml.project(x, quarter_turn(x), measure=hpml.Box([-1, -1], [1, 1]))
    assert np.linalg.norm(exact) > 0.2 * np.linalg.norm(test)
    assert relative(p.at(test), exact) < 0.15


@pytest.mark.parametrize("seed", range(6))
def test_noise_does_not_hide_the_gradient_part_of_a_swirl(seed):
    """A swirl that crosses the sides of a square beside a hill with waves, one tenth of the energy noise."""
    rng = np.random.default_rng(seed)
    test, x = rng.uniform(-1, 1, size=(500, 2)), rng.uniform(-1, 1, size=(600, 2))

    def hill(z):
        return np.cos(2.5 * z) - z

    def swirl(z):
        return 4 / (1 + (z**2).sum(1, keepdims=True)) * quarter_turn(z)

    clean = hill(x) + swirl(x)
    p = hpml.project(x, clean + np.sqrt(0.1 * (clean**2).mean()) * rng.normal(size=x.shape))
    exact = hill(test) + gradient_on_square(swirl, test)
    assert relative(p.at(test), exact) < 0.2


def test_metrics_are_changes_of_coordinates(rng):
    """Whitening by hand and projecting in Euclidean space gives the same split as the metric does."""
    A = rng.normal(size=(2, 2))
    metric = hpml.Dense(A @ A.T + np.eye(2))
    x = ball(rng, 120, 2)
    field = -x + x @ np.array([[0, 1], [-1, 0.0]])
    p = hpml.project(x, field, metric=metric)
    q = hpml.project(metric.whiten(x), metric.whiten(field))
    np.testing.assert_allclose(metric.whiten(p.direction), q.direction, atol=1e-8)
    assert p.nonpotentiality == pytest.approx(q.nonpotentiality, abs=1e-8)


def test_a_metric_that_varies_but_does_not_changes_nothing_much(rng):
    x = ball(rng, 150, 2)
    field = -x + x @ np.array([[0, 1], [-1, 0.0]])
    m = np.array([2.0, 0.5])
    fixed = hpml.project(x, field, metric=hpml.Diagonal(m))
    varying = hpml.project(x, field, metric=hpml.Varying(lambda _: hpml.Diagonal(m)))
    assert relative(varying.direction, fixed.direction) < 1e-6


def wave(z):
    """Of -|z|^2 / 2 + sin(2.5 z_0) / 2.5."""
    return -z + np.cos(2.5 * z) * np.array([1.0, 0.0])


def test_a_varying_metric_splits_as_well_as_a_constant_one(rng):
    """Rotation about the centre of a disc is orthogonal to M(x)^-1 grad psi in M(x), whatever M is."""
    x, test = ball(rng, 150, 2), ball(rng, 400, 2)
    metric = hpml.Varying(lambda z: hpml.Diagonal(1 + 3 * z[0] ** 2 * np.array([1.0, 0.0])))
    exact = metric.raise_index(wave(test), test)
    field = metric.raise_index(wave(x), x) + 2 * x @ np.array([[0, 1], [-1, 0.0]])
    p = hpml.project(x, field, metric=metric, measure=hpml.Ball(np.zeros(2)))
    assert "smooth" in p.method
    assert relative(p.at(test), exact) < 0.05
    step = 1e-4 * np.eye(2)
    slope = np.stack([(p.potential_at(test + e) - p.potential_at(test - e)) / 2e-4 for e in step], 1)
    assert relative(metric.raise_index(slope, test), p.at(test)) < 1e-5


@pytest.mark.parametrize(("projector", "most"), [(KernelProjector(), 0.01), (KernelProjector(exact=200), 0.02)])
def test_rock_paper_scissors_is_told_from_a_potential_by_replicators(rng, projector, most):
    """Its replicator field is orthogonal to every Shahshahani gradient under the uniform law of the simplex."""
    x, test = (rng.dirichlet(np.ones(3), n)[:, :2] for n in (300, 400))
    metric = hpml.Shahshahani(3)
    turn = lambda z: np.stack([1 - 3 * z[:, 1], 3 * z[:, 0] - 1], 1)  # noqa: E731
    exact = metric.raise_index(wave(3 * test), test)
    p = hpml.project(x, metric.raise_index(wave(3 * x) + turn(x), x), projector, metric)
    assert relative(p.at(test), exact) < most


def test_noise_under_a_varying_metric_has_its_energy_in_that_metric(rng):
    """Plain noise, which the metric makes forty times as large on one side as on the other."""
    x = ball(rng, 300, 2)
    metric = hpml.Varying(lambda z: hpml.Diagonal(jnp.exp(2 * z)))
    turn = 2 * x @ np.array([[0, 1.0], [-1, 0]])
    pull = metric.raise_index(-x, x)
    energy = lambda v: float(np.mean(metric.inner(v, v, x)))  # noqa: E731
    exact = energy(turn) / (energy(turn) + energy(pull))
    for copies in (1, 2):
        noise = rng.normal(size=(copies, *x.shape))
        p = hpml.project(x, (pull + turn + noise)[0] if copies == 1 else pull + turn + noise, metric=metric)
        assert p.energy.noise == pytest.approx(np.exp(2 * x).sum(1).mean() / copies, rel=0.2)
        assert p.nonpotentiality == pytest.approx(exact, abs=0.12)


@pytest.mark.parametrize("power", [1, -1])
def test_a_metric_that_is_nothing_or_all_in_the_middle_of_a_ring(power):
    """The samples' mean lies where the metric is like nowhere among them."""
    angle, radius = np.linspace(0, 2 * np.pi, 24, endpoint=False), np.linspace(0.5, 1, 4)
    x = np.concatenate([r * np.stack([np.cos(angle), np.sin(angle)], 1) for r in radius])
    metric = hpml.Varying(lambda z: hpml.Diagonal((z @ z) ** power * np.ones(2)))
    pull, turn = metric.raise_index(-x, x), metric.raise_index(x @ np.array([[0, 1.0], [-1, 0]]), x)
    for method in ("smooth", "direct"):
        projector = KernelProjector(method=method)
        assert hpml.project(x, pull, projector, metric).nonpotentiality < 1e-3
        p = hpml.project(x, pull + turn, projector, metric)
        assert p.nonpotentiality == pytest.approx(0.5, abs=0.02)
        assert relative(p.direction, pull) < 0.05


def test_deviations_under_a_varying_metric_are_those_of_its_gradients(rng):
    """In the caller's coordinates at each point: a field that a metric makes small somewhere is known well there."""
    x = ball(rng, 100, 2)
    metric = hpml.Varying(lambda z: hpml.Diagonal(np.array([1.0, 1.0]) * (1.0 if z[0] < 0 else 100.0)))
    noisy = metric.raise_index(bowl(x) + 0.2 * rng.normal(size=x.shape), x)
    for method in ("smooth", "direct"):
        said = hpml.project(x, noisy, KernelProjector(method=method), metric).predict(
            np.array([[-0.5, 0.0], [0.5, 0.0]])
        )
        assert np.all(said.direction_std[1] < 0.1 * said.direction_std[0])


def test_replicator_field_of_a_potential_is_a_shahshahani_gradient(rng):
    """x_i (h_i - sum x h), h the gradient of a potential, is all potential in this metric and not in the Euclidean."""
    x = rng.dirichlet([2.0, 2.0, 2.0], size=200)[:, :2]
    metric = hpml.Shahshahani(3)
    h = np.stack([-2 * x[:, 0] + x[:, 1], x[:, 0] - 3 * x[:, 1] ** 2], 1)
    field = metric.raise_index(h, x)
    assert hpml.project(x, field, metric=metric).nonpotentiality < 0.01
    assert hpml.project(x, field).nonpotentiality > 0.005


def test_uncertainty_covers_the_error(rng):
    x, test = ball(rng, 250, 2), ball(rng, 400, 2) * 0.9
    turn = np.array([[0, 1], [-1, 0.0]])
    field = bowl(x) + x @ turn + 0.2 * rng.normal(size=x.shape)
    p = hpml.project(x, field)
    said = p.predict(test)
    wrong = np.abs(said.direction - bowl(test)) > 2.5 * said.direction_std
    assert wrong.mean() < 0.25
    assert (said.direction_std < 1.0).mean() > 0.9
    np.testing.assert_allclose(said.direction, p.at(test), atol=1e-12)
    far = p.predict(test + 10.0)
    assert far.direction_std.mean() > 3 * said.direction_std.mean()


def test_two_estimates_take_the_noise_out(rng):
    x = ball(rng, 600, 3)
    clean = bowl(x) + 2 * np.cross(np.array([0.0, 0.0, 1.0]), x)
    truth = 1 - (bowl(x) ** 2).sum() / (clean**2).sum()
    noisy = clean + np.sqrt((clean**2).mean()) * rng.normal(size=(2, *x.shape))
    p = hpml.project(x, noisy)
    assert p.nonpotentiality == pytest.approx(truth, abs=0.1)
    assert p.energy.noise == pytest.approx((clean**2).sum(1).mean() / 2, rel=0.1)


@pytest.mark.parametrize("more", [1, 5])
def test_few_replicates_decide_little(more):
    """The spread of two estimates of one point says little about the noise, and a copy says nothing."""
    without, errors, copied = [], [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, test = rng.normal(size=(100, 2)), rng.normal(size=(300, 2))
        noisy = lambda Z, rng=rng: -Z + quarter_turn(Z) + 0.7 * rng.normal(size=Z.shape)  # noqa: E731
        F, twice = noisy(X), np.concatenate([X, X[:more]])
        for field, found in ((noisy(X[:more]), errors), (F[:more], copied)):
            found.append(relative(hpml.project(twice, np.concatenate([F, field])).at(test), -test))
        without.append(relative(hpml.project(X, F).at(test), -test))
    assert np.mean(errors) < 1.1 * np.mean(without)
    assert np.mean(copied) < 1.1 * np.mean(without)


def test_noise_alone_is_regressed_directly_or_found_to_be_noise(rng):
    x = rng.normal(size=(60, 2))
    p = hpml.project(x, rng.normal(size=(60, 2)))
    assert np.linalg.norm(p.direction) < 0.6 * np.linalg.norm(p.residual)


def test_the_method_can_be_forced_and_is_reported(rng):
    x = ball(rng, 80, 2)
    assert "direct" in hpml.project(x, -x, KernelProjector(method="direct")).method
    assert "smooth" in hpml.project(x, -x, KernelProjector(method="smooth")).method
    with pytest.raises(ValueError, match="method must be"):
        hpml.project(x, -x, KernelProjector(method="guess"))


def test_the_measure_is_part_of_the_question(rng):
    """The same samples, two measures, two projections: a rotation around a point away from the measure's centre."""
    x = rng.uniform(-1, 1, size=(300, 2))
    field = np.stack([-x[:, 1], x[:, 0]], 1)
    here = hpml.project(x, field, measure=hpml.Ball([0.0, 0.0], 0.5))
    there = hpml.project(x, field, measure=hpml.Ball([0.5, 0.0], 0.4))
    assert np.linalg.norm(here.at([[0.0, 0.0]])) < 0.1
    np.testing.assert_allclose(there.at([[0.5, 0.0]])[0], [0.0, 0.5], atol=0.05)


def test_fit_needs_no_global_x64_setting(rng):
    x = ball(rng, 60, 2)
    fit = KernelProjector().fit(gather_samples(x, -x), Euclidean())
    assert fit.direction(x).dtype == np.float64
    assert jnp.ones(1).dtype == jnp.float32
