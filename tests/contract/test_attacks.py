"""Nasty but legal input, through every projector: finite numbers, the right symmetries, or a refusal in words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hpml
from hpml.catalogue import list_projectors

QUICK: dict[str, dict] = {"neural": {"width": 16, "steps": 100, "members": 2}}
PROJECTORS = {name: kind(**QUICK.get(name, {})) for name, kind in list_projectors().items()}
TURN = np.array([[0.0, -1.0], [1.0, 0.0]])
X = np.random.default_rng(0).normal(size=(32, 2))
F = -X - 0.6 * np.sin(2 * X) + X @ TURN.T


@pytest.fixture(params=PROJECTORS, scope="module")
def projector(request):
    return PROJECTORS[request.param]


@pytest.fixture(scope="module")
def plain(projector):
    return hpml.project(X, F, projector)


def relative(answer, truth):
    return np.linalg.norm(answer - truth) / np.linalg.norm(truth)


def well_formed(p, points, energy=None):
    """Finite, split, in agreement with itself at new points, and with energies that are shares of the whole."""
    assert all(np.isfinite(part).all() for part in (p.direction, p.residual, p.potential))
    assert 0.0 <= p.nonpotentiality <= 1.0
    np.testing.assert_allclose(p.at(points[:3]), p.direction[:3], atol=1e-6 * np.abs(p.direction).max() + 1e-300)
    parts = (p.energy.potential, p.energy.circulation, p.energy.noise)
    assert min(parts) >= 0.0
    if energy is not None:
        np.testing.assert_allclose(sum(parts), energy, rtol=1e-6)


LOPSIDED = np.where(np.arange(32) < 2, 1.0, 1e-14)
OUTLIER, NEAR = X.copy(), X.copy()
OUTLIER[0] = 1e8
NEAR[1] = NEAR[0] + 1e-12
INPUTS = {
    "two points": (X[:2], F[:2], None),
    "three points": (X[:3], F[:3], None),
    "one coordinate": (X[:, :1], np.sin(X[:, :1]), None),
    "a line": (X[:, :1] * np.array([[1.0, 2.0]]), np.random.default_rng(1).normal(size=(32, 2)), None),
    "a constant coordinate": (X * np.array([1.0, 0.0]) + 3.0, F, None),
    "a constant field": (X, np.ones_like(X), None),
    "a far and narrow cloud": (1e6 + 1e-6 * X, F, None),
    "lopsided weights": (X, F, LOPSIDED),
    "a far point": (OUTLIER, F, None),
    "close points with other fields": (NEAR, F, None),
}


@pytest.mark.parametrize("name", INPUTS)
def test_legal_input_gets_numbers(projector, name):
    points, field, weights = INPUTS[name]
    p = hpml.project(points, field, projector, weights=weights)
    share = np.full(len(points), 1.0) if weights is None else weights
    well_formed(p, points, share @ (field**2).sum(1) / share.sum())


@pytest.mark.parametrize(("length", "size"), [(1e-6, 1e12), (1e6, 1e-12), (np.pi, np.e)])
def test_units_change_nothing_but_units(projector, plain, length, size):
    p = hpml.project(length * X, size * F, projector)
    assert relative(p.direction / size, plain.direction) < 1e-6
    assert relative(p.potential / size / length, plain.potential) < 1e-6
    assert p.nonpotentiality == pytest.approx(plain.nonpotentiality, abs=1e-6)


def test_where_the_origin_is_changes_nothing(projector, plain):
    p = hpml.project(X + 1e3, F, projector)
    assert relative(p.direction, plain.direction) < 1e-6
    assert relative(p.potential, plain.potential) < 1e-6


@pytest.mark.parametrize("name", ["graph", "kernel"])
def test_turned_axes_turn_the_answer(name):
    """In two dimensions, by a matrix that mixes both; a network's weights see axes."""
    turn = np.array([[np.cos(1.0), -np.sin(1.0)], [np.sin(1.0), np.cos(1.0)]])
    p, turned = hpml.project(X, F, PROJECTORS[name]), hpml.project(X @ turn.T, F @ turn.T, PROJECTORS[name])
    # The second step's Fourier features have axes too, but only where that step finds something.
    assert relative(turned.direction @ turn, p.direction) < 1e-2
    assert turned.nonpotentiality == pytest.approx(p.nonpotentiality, abs=1e-2)


@pytest.mark.parametrize("name", ["graph", "kernel"])
def test_the_order_of_rows_hardly_matters(name):
    """Folds are drawn by row; a network's batches are too, so it is not in this list."""
    order = np.random.default_rng(1).permutation(len(X))
    p, shuffled = hpml.project(X, F, PROJECTORS[name]), hpml.project(X[order], F[order], PROJECTORS[name])
    assert relative(shuffled.direction, p.direction[order]) < 0.05


@pytest.mark.parametrize("name", ["kernel", "neural"])
def test_the_direction_is_the_gradient_of_the_potential(name):
    p, at, step = hpml.project(X, F, PROJECTORS[name]), 0.7 * X[:8], 1e-3
    slopes = [(p.potential_at(at + step * e) - p.potential_at(at - step * e)) / (2 * step) for e in np.eye(2)]
    assert relative(np.stack(slopes, 1), p.at(at)) < 1e-3


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.int8])
def test_small_dtypes_of_jax_are_taken(projector, dtype):
    points, field = (jnp.asarray(np.round(8 * part)).astype(dtype) for part in (X, F))
    p = hpml.project(points, field, projector)
    same = hpml.project(np.asarray(points, np.float64), np.asarray(field, np.float64), projector)
    np.testing.assert_array_equal(p.direction, same.direction)


def test_probabilities_at_the_boundary_get_numbers(projector):
    metric = hpml.Shahshahani(3)
    logits = np.random.default_rng(0).uniform(-25, 0, size=(32, 3))
    points = (np.exp(logits) / np.exp(logits).sum(1, keepdims=True))[:, :2]
    points[:3] = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    for field in (metric.raise_index(points + 1.0, points), np.ones_like(points)):
        well_formed(hpml.project(points, field, projector, metric), points)


def test_two_estimates_of_many_coordinates(projector):
    """In a chart, between 2n and 3n coordinates, where two estimates span the whole space."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(6, 15))
    field = -points + 0.3 * rng.normal(size=(2, 6, 15))
    p = hpml.project(points, field, projector)
    assert p.chart is not None
    well_formed(p, points, (field.mean(0) ** 2).sum(1).mean())
    assert p.energy.noise > 0.0


@pytest.mark.parametrize(
    ("points", "field", "words"),
    [(1e-170 * X, F, "units"), (1e170 * X, F, "units"), (X, 1e-170 * F, "units"), (X, 1e170 * F, "units")],
)
def test_numbers_whose_squares_vanish_are_refused(projector, points, field, words):
    with pytest.raises(ValueError, match=words):
        hpml.project(points, field, projector)


@pytest.mark.parametrize("name", ["graph", "kernel"])
@pytest.mark.parametrize(
    ("sampler", "words"),
    [
        (lambda key, count: np.zeros((0, 2)), "drew 0"),
        (lambda key, count: np.zeros((1, 2)), "drew 1"),
        (lambda key, count: np.zeros(count), "shape"),
        (lambda key, count: np.zeros((count, 3)), "dimension 3"),
        (lambda key, count: np.full((count, 2), np.nan), "finite"),
    ],
)
def test_samplers_that_return_something_else_are_named(name, sampler, words):
    with pytest.raises(ValueError, match=words):
        hpml.project(X, F, PROJECTORS[name], measure=sampler)


# What only the kernel projector has.


@pytest.mark.parametrize("method", ["smooth", "direct"])
def test_predictions_have_shapes_and_deviations(method):
    p = hpml.project(X, F, hpml.KernelProjector(method=method)).predict(X[:5] + 0.1)
    for part in ("potential", "direction", "residual"):
        mean, deviation = getattr(p, part), getattr(p, part + "_std")
        assert mean.shape == deviation.shape == ((5,) if part == "potential" else (5, 2))
        assert np.isfinite(mean).all()
        assert (deviation > 0).all()


def test_nothing_found_is_not_certain():
    """A turn about the centre of a ring has no gradient part; how sure that is depends on the samples."""
    angle = np.linspace(0, 2 * np.pi, 40, endpoint=False)
    ring = np.stack([np.cos(angle), np.sin(angle)], 1)
    p = hpml.project(ring, ring @ TURN.T, hpml.KernelProjector(method="direct"))
    assert np.abs(p.direction).max() < 0.1
    assert (p.predict(ring[:4]).direction_std > 1e-4).all()


@pytest.mark.parametrize("method", ["smooth", "direct"])
def test_the_noise_of_repeated_points_is_no_circulation(method):
    rng = np.random.default_rng(0)
    points = rng.normal(size=(60, 2))
    noisy = [-points + rng.normal(size=points.shape) for _ in range(2)]
    p = hpml.project(np.concatenate([points] * 2), np.concatenate(noisy), hpml.KernelProjector(method=method))
    assert p.nonpotentiality < 0.1


RNG = np.random.default_rng(0)
MANY = RNG.normal(size=(36, 34))
TURNED = -MANY + np.roll(MANY, 1, 1) * np.where(np.arange(34) % 2, 1.0, -1.0)
FEW = hpml.KernelProjector(exact=600, folds=2, measure_points=48)  # the dual form already for 36 samples


def test_the_dual_form_takes_weights():
    """Under a measure that lies along half of the coordinates, rotation between the halves is a gradient there."""
    skewed = MANY * np.where(np.arange(34) % 2, 0.1, 1.0)
    field = np.roll(skewed, 1, 1) * np.where(np.arange(34) % 2, 1.0, -1.0)
    near = np.where(np.arange(36) < 18, 1.0, 1e-6)
    p, weighted = hpml.project(skewed, field, FEW), hpml.project(skewed, field, FEW, weights=near)
    assert "dual" in p.method
    assert "dual" in weighted.method
    error, even = (np.sum((part.direction - field)[:18] ** 2) for part in (weighted, p))
    assert error < even


def test_the_dual_form_is_surer_at_its_samples_than_far_away():
    p = hpml.project(MANY, TURNED, FEW)
    assert "dual" in p.method
    near, far = p.predict(MANY[:2]), p.predict(MANY[:2] + 30)
    for name in ("potential_std", "direction_std", "residual_std"):
        assert np.all(np.isfinite(getattr(far, name)))
        assert np.all(getattr(near, name) < getattr(far, name))


def test_a_measure_is_not_ignored_in_many_coordinates():
    box = hpml.Box(-np.ones(34), np.ones(34))
    p = hpml.project(MANY, TURNED, FEW, measure=box)
    assert "dual" not in p.method
    well_formed(p, MANY, (TURNED**2).sum(1).mean())


def test_a_varying_metric_is_not_frozen_in_many_coordinates():
    metric = hpml.Shahshahani((18, 18))
    points = np.asarray(hpml.Simplices((18, 18)).sample(jax.random.key(0), 36), np.float64)
    field = np.asarray(metric.raise_index(points, points))
    p = hpml.project(points, field, FEW, metric)
    well_formed(p, points, np.mean(metric.inner(field, field, points)))
    step, at = 1e-4, points[:2]
    slopes = [(p.potential_at(at + step * e) - p.potential_at(at - step * e)) / (2 * step) for e in np.eye(34)]
    assert relative(np.asarray(metric.raise_index(np.stack(slopes, 1), at)), p.at(at)) < 1e-4


@pytest.mark.parametrize(
    "settings", [{"exact": 0}, {"folds": 1}, {"frequencies": 0}, {"measure_points": 0}, {"method": "best"}]
)
def test_settings_are_checked_when_they_are_made(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        hpml.KernelProjector(**settings)
