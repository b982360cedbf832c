"""Every projector keeps one list of truths. They are found by listing their folder, so a new file is tested too."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpml
from hpml.catalogue import list_projectors
from hpml.projection.projector import LocalSamples

# A projector that is slow by default may be quick here; the truths stay the same.
QUICK: dict[str, dict] = {
    "neural": {"width": 16, "steps": 400, "members": 2, "local_steps": 30},
}
PROJECTORS = {name: kind(**QUICK.get(name, {})) for name, kind in list_projectors().items()}
N = 48
TURN = np.array([[0.0, -1.0], [1.0, 0.0]])


@pytest.fixture(params=PROJECTORS, scope="module")
def projector(request):
    return PROJECTORS[request.param]


def disc(seed=0, n=N):
    return np.asarray(hpml.Ball(np.zeros(2)).sample(jax.random.key(seed), n), np.float64)


def gradient(X):
    """Of -|x|^2 / 2 + 0.3 cos(2 x_0)."""
    return -X - np.stack([0.6 * np.sin(2 * X[:, 0]), 0 * X[:, 0]], 1)


def relative(answer, truth):
    return np.linalg.norm(answer - truth) / np.linalg.norm(truth)


def finite(projection):
    arrays = (projection.direction, projection.residual, projection.potential)
    return all(np.isfinite(array).all() for array in arrays) and np.isfinite(projection.nonpotentiality)


def same(left, right, tolerance=1e-6):
    scale = np.abs(right.direction).max()
    np.testing.assert_allclose(left.direction, right.direction, atol=tolerance * scale)
    np.testing.assert_allclose(left.potential, right.potential, atol=tolerance * np.abs(right.potential).max())


@pytest.fixture(scope="module")
def mixed(projector):
    X = disc()
    F = gradient(X) + X @ TURN.T
    return X, F, hpml.project(X, F, projector, key=jax.random.key(0))


def test_shapes_and_the_split(mixed):
    X, F, p = mixed
    assert p.direction.shape == p.residual.shape == F.shape
    assert p.potential.shape == (N,)
    np.testing.assert_allclose(p.direction + p.residual, F, atol=1e-10)
    assert 0.0 <= p.nonpotentiality <= 1.0
    assert p.at(X[:5]).shape == (5, 2)
    assert p.potential_at(X[:5]).shape == (5,)
    assert finite(p)


def test_the_energy_has_three_parts_that_add_up(mixed):
    _, F, p = mixed
    assert min(p.energy.potential, p.energy.circulation, p.energy.noise) >= 0.0
    total = p.energy.potential + p.energy.circulation + p.energy.noise
    np.testing.assert_allclose(total, (F**2).sum(1).mean(), rtol=1e-6)


def test_the_potential_has_mean_zero(mixed):
    _, _, p = mixed
    assert abs(p.potential.mean()) <= 1e-6 * np.abs(p.potential).max()


@pytest.mark.parametrize("weighted", [False, True])
def test_the_potential_has_mean_zero_over_the_given_rows(projector, weighted):
    """Also where some points are given more than once, with weights and without."""
    X = disc()
    X = np.concatenate([X, X[:8], X[:8]])
    weights = np.random.default_rng(0).uniform(0.1, 1.0, len(X)) if weighted else np.ones(len(X))
    p = hpml.project(X, gradient(X) + X @ TURN.T, projector, weights=weights if weighted else None)
    assert abs(np.average(p.potential, weights=weights)) <= 1e-6 * np.abs(p.potential).max()


def test_the_direction_is_closer_to_the_gradient_part_than_the_field_is(mixed):
    X, F, p = mixed
    assert relative(p.direction, gradient(X)) < 0.7 * relative(F, gradient(X))
    assert p.nonpotentiality > 0.1


def test_the_same_key_gives_the_same_answer(projector, mixed):
    X, F, p = mixed
    again = hpml.project(X, F, projector, key=jax.random.key(0))
    np.testing.assert_array_equal(again.direction, p.direction)
    np.testing.assert_array_equal(again.potential, p.potential)


def test_a_zero_field_has_zero_parts(projector):
    X = disc()
    p = hpml.project(X, np.zeros_like(X), projector)
    np.testing.assert_allclose(p.direction, 0.0, atol=1e-12)
    np.testing.assert_allclose(p.residual, 0.0, atol=1e-12)
    np.testing.assert_allclose(p.potential, 0.0, atol=1e-12)
    assert p.nonpotentiality == 0.0


def test_a_gradient_is_recovered(projector):
    X = disc()
    p = hpml.project(X, gradient(X), projector)
    assert relative(p.direction, gradient(X)) < 0.15
    assert p.nonpotentiality < 0.05
    # The potential itself, up to its mean.
    truth = -(X**2).sum(1) / 2 + 0.3 * np.cos(2 * X[:, 0])
    assert np.corrcoef(p.potential, truth)[0, 1] > 0.98


def test_a_metric_gradient_is_recovered(projector):
    X, metric = disc(), hpml.Diagonal([4.0, 0.5])
    F = np.asarray(metric.raise_index(gradient(X)))
    p = hpml.project(X, F, projector, metric)
    assert relative(p.direction, F) < 0.15
    assert p.nonpotentiality < 0.05


def test_a_measure_is_taken(projector):
    X = disc()
    F = gradient(X) + X @ TURN.T
    p = hpml.project(X, F, projector, measure=hpml.Ball(np.zeros(2)), key=jax.random.key(0))
    assert finite(p)
    assert relative(p.direction, gradient(X)) < relative(F, gradient(X))


@pytest.mark.parametrize("dtype", [np.int64, np.float16, "list"])
def test_integers_half_floats_and_lists_are_taken(projector, dtype):
    X = np.round(disc() * 8)
    F = -X
    p = hpml.project(X.tolist(), F.tolist(), projector) if dtype == "list" else None
    p = p or hpml.project(X.astype(dtype), F.astype(dtype), projector)
    assert finite(p)
    same(p, hpml.project(X, F, projector))


def test_numpy_and_jax_input_agree(projector):
    X = disc().astype(np.float32)
    F = (gradient(X) + X @ TURN.T).astype(np.float32)
    host, device = hpml.project(X, F, projector), hpml.project(jnp.asarray(X), jnp.asarray(F), projector)
    same(device, host)


def test_repeated_points_are_averaged(projector):
    X = disc()
    F = gradient(X) + X @ TURN.T
    E = np.random.default_rng(0).normal(size=F.shape)
    once = hpml.project(X, F, projector)
    twice = hpml.project(np.concatenate([X, X]), np.concatenate([F + E, F - E]), projector)
    np.testing.assert_array_equal(twice.direction[:N], twice.direction[N:])
    assert twice.energy.noise > 0.0
    assert finite(twice)
    same_data = hpml.project(np.concatenate([X, X]), np.concatenate([F, F]), projector)
    assert relative(same_data.direction[:N], once.direction) < 0.1
    assert same_data.energy.noise == pytest.approx(once.energy.noise, abs=1e-6)  # copies say nothing of the noise


def test_two_estimates_tell_the_noise(projector):
    X, sigma = disc(), 0.3
    F = gradient(X) + sigma * np.random.default_rng(0).normal(size=(2, N, 2))
    p = hpml.project(X, F, projector)
    np.testing.assert_allclose(p.residual, F.mean(0) - p.direction, atol=1e-10)
    assert p.energy.noise == pytest.approx(2 * sigma**2 / 2, rel=0.35)  # two coordinates, the mean of two estimates
    assert p.nonpotentiality < 0.1  # a pure gradient: the noise must not pass for circulation


def test_a_weight_of_zero_leaves_a_sample_out(projector):
    X = disc()
    F = gradient(X) + X @ TURN.T
    F[:8] = 1e3
    weights = np.ones(N)
    weights[:8] = 0.0
    p, rest = hpml.project(X, F, projector, weights=weights), hpml.project(X[8:], F[8:], projector)
    np.testing.assert_allclose(p.direction[8:], rest.direction, atol=1e-6 * np.abs(rest.direction).max())
    np.testing.assert_allclose(p.direction[:8], rest.at(X[:8]), atol=1e-6 * np.abs(rest.direction).max())


def test_far_apart_clusters_give_numbers(projector):
    X = disc()
    X[N // 2 :] += 1e4
    p = hpml.project(X, gradient(X) + X @ TURN.T, projector)
    assert finite(p)
    assert np.isfinite(p.at(X[:3] + 50.0)).all()


def test_points_on_a_line_give_numbers(projector):
    X = np.stack([np.linspace(0, 1, N), np.linspace(0, 2, N)], 1)
    assert finite(hpml.project(X, X @ TURN.T, projector))
    column = X[:, :1]
    p = hpml.project(column, np.sin(3 * column), projector)  # in one dimension every field is a gradient
    assert finite(p)
    assert p.nonpotentiality < 0.1


def test_many_more_coordinates_than_samples(projector):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 60))
    F = -X + 0.1 * rng.normal(size=X.shape)
    p = hpml.project(X, F, projector)
    assert p.direction.shape == X.shape
    assert finite(p)
    assert p.at(X[:2]).shape == (2, 60)


def test_units_do_not_matter(projector):
    X = disc()
    F = gradient(X) + X @ TURN.T
    p = hpml.project(X, F, projector, key=jax.random.key(0))
    moved = hpml.project(1e3 * X + 5e3, 1e-4 * F, projector, key=jax.random.key(0))
    assert relative(1e4 * moved.direction, p.direction) < 1e-3


@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1e-6, 1.0, 1e6]), repeat=st.booleans(), flat=st.booleans())
@pytest.mark.parametrize("name", PROJECTORS)
def test_whatever_is_finite_gives_finite_answers(name, seed, size, repeat, flat):
    rng = np.random.default_rng(seed)
    X, F = rng.normal(size=(N, 2)) * size, rng.standard_cauchy(size=(N, 2))
    if repeat:
        X[1] = X[0]
    if flat:
        X[:, 1] = 1.0
    p = hpml.project(X, F, PROJECTORS[name])
    assert finite(p)
    assert 0.0 <= p.nonpotentiality <= 1.0


NAN = disc()
NAN[3, 1] = np.nan


@pytest.mark.parametrize(
    ("points", "field", "words"),
    [
        (NAN, disc(), "points has 1"),
        (disc(), NAN, "field has 1"),
        (disc(), np.where(np.isnan(NAN), np.inf, NAN), "field has 1"),
        (disc(), disc()[:-1], "shape"),
        (disc()[:, 0], disc()[:, 0], "shape"),
        (disc()[:1], disc()[:1], "two points"),
        (np.ones((N, 2)), disc(), "equal"),
    ],
)
def test_bad_samples_are_refused(projector, points, field, words):
    with pytest.raises(ValueError, match=words):
        hpml.project(points, field, projector)


def test_two_samples_are_enough_or_refused(projector):
    X = np.array([[0.0, 0.0], [1.0, 0.5]])
    try:
        p = hpml.project(X, -X, projector)
    except ValueError as error:
        words = str(error)
    else:
        assert finite(p)
        return
    assert "sample" in words or "point" in words


COUNT, RANK = 16, 8


def history(mask, seed=0):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(COUNT, RANK)).astype(np.float32)
    field = (-points + 2 * points[:, ::-1] * np.array([1, -1] * (RANK // 2))).astype(np.float32)
    mask = np.asarray(mask)
    return LocalSamples(jnp.asarray(points * mask[:, None]), jnp.asarray(field * mask[:, None]), jnp.asarray(mask))


MASKS = {
    "empty": np.zeros(COUNT, bool),
    "one": np.arange(COUNT) < 1,
    "two": np.arange(COUNT) < 2,
    "half": np.arange(COUNT) % 2 == 0,
    "full": np.ones(COUNT, bool),
}


@pytest.fixture(scope="module")
def compiled(projector):
    """Both local methods under jit, compiled once for all the tests below."""
    state = projector.local_init(COUNT, RANK, jax.random.key(0))
    return state, eqx.filter_jit(projector.local_fit), eqx.filter_jit(projector.local_residual)


@pytest.mark.parametrize("mask", MASKS)
def test_local_fit_keeps_its_shapes_and_gives_numbers(compiled, mask):
    state, fit, residual = compiled
    samples = history(MASKS[mask])
    new = fit(state, samples)
    assert jax.tree.structure(new) == jax.tree.structure(state)
    for old, leaf in zip(jax.tree.leaves(state), jax.tree.leaves(new), strict=True):
        assert jnp.shape(old) == jnp.shape(leaf)
        assert jnp.result_type(old) == jnp.result_type(leaf)
    for given_state in (new, fit(new, samples)):
        answer = residual(given_state, samples.points[0], samples.field[0])
        assert answer.shape == (RANK,)
        assert answer.dtype == samples.field.dtype
        assert jnp.isfinite(answer).all()


def test_a_local_fit_of_nothing_takes_nothing_for_circulation(compiled):
    state, fit, residual = compiled
    point = jnp.ones(RANK)
    np.testing.assert_allclose(residual(state, point, point), 0.0, atol=1e-6)
    np.testing.assert_allclose(residual(fit(state, history(MASKS["empty"])), point, point), 0.0, atol=1e-6)


def test_a_local_fit_of_a_zero_field_takes_nothing_for_circulation(compiled):
    state, fit, residual = compiled
    samples = history(MASKS["full"])
    still = LocalSamples(samples.points, jnp.zeros_like(samples.field), samples.mask)
    answer = residual(fit(state, still), samples.points[0], jnp.zeros(RANK))
    np.testing.assert_allclose(answer, 0.0, atol=1e-6)


def test_empty_rows_of_a_local_fit_do_not_count(compiled):
    state, fit, residual = compiled
    clean = history(MASKS["half"])
    litter = jnp.where(clean.mask[:, None], 0.0, 7.0)
    dirty = LocalSamples(clean.points + litter, clean.field - litter, clean.mask)
    point, field = clean.points[0], clean.field[0]
    np.testing.assert_allclose(
        residual(fit(state, dirty), point, field), residual(fit(state, clean), point, field), atol=1e-4
    )


def test_local_methods_run_under_vmap(projector):
    states = jax.vmap(lambda key: projector.local_init(COUNT, RANK, key))(jax.random.split(jax.random.key(0), 3))
    several = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(history(MASKS["full"], seed) for seed in range(3)))
    step = eqx.filter_jit(
        jax.vmap(lambda s, h: projector.local_residual(projector.local_fit(s, h), h.points[0], h.field[0]))
    )
    answer = step(states, several)
    assert answer.shape == (3, RANK)
    assert jnp.isfinite(answer).all()
