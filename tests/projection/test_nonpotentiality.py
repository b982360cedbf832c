"""Held-out non-potentiality: right for known fields, deaf to noise and replicates, open about what it cannot see."""

import warnings

import equinox as eqx
import jax
import numpy as np
import pytest

from hpml.geometry.domain import Ball
from hpml.geometry.metric import Dense, Diagonal, Euclidean, Metric
from hpml.geometry.samples import Samples
from hpml.projection.affine import affine_projection
from hpml.projection.amortised.network import least_squares_bowl
from hpml.projection.nonpotentiality import IdentifiabilityWarning, nonpotentiality
from hpml.projection.projector import Energy, Fit, Projector
from hpml.projection.projectors.graph import GraphProjector
from hpml.projection.projectors.neural import NeuralProjector

TURN = np.array([[0.0, -1.0], [1.0, 0.0]])


class PlainFit(Fit):
    samples: Samples
    metric: Metric

    def at_samples(self):
        return self.potential(self.samples.points), self.direction(self.samples.points)

    def potential(self, points):
        return np.zeros(len(points))

    def energy(self):
        F, X = self.samples.field, self.samples.points
        R, w = F - self.direction(X), self.samples.weights
        total, left = w @ self.metric.inner(F, F, X), w @ self.metric.inner(R, R, X)
        noise = min(self.samples.noise or 0.0, left)
        return Energy(float(total - left), float(left - noise), float(noise))


class BowlFit(PlainFit):
    """The best quadratic potential: quick, and exact for affine fields."""

    def direction(self, points):
        s = self.samples
        y, U = self.metric.whiten(s.points), self.metric.whiten(s.field)
        slope, curvature = least_squares_bowl(y, U, s.weights, 0.0)
        return self.metric.unwhiten(slope + self.metric.whiten(points) @ curvature)


class NearestFit(PlainFit):
    """The nearest sample's field: perfect in-sample, whatever the field is."""

    def direction(self, points):
        gaps = np.sum((points[:, None] - self.samples.points[None]) ** 2, -1)
        return self.samples.field[np.argmin(gaps, 1)]


class TestProjector(Projector):
    __test__ = False
    kind: type = eqx.field(static=True)

    def fit(self, samples, metric, measure=None, key=None):
        return self.kind(samples, metric)

    def local_init(self, count, rank, key):
        raise NotImplementedError

    def local_fit(self, state, samples):
        raise NotImplementedError

    def local_residual(self, state, point, field):
        raise NotImplementedError


BOWL, NEAREST = TestProjector(BowlFit), TestProjector(NearestFit)


def gaussian(n, seed=0, sd=(2.0, 1.0)):
    return np.random.default_rng(seed).normal(size=(n, 2)) * sd


@pytest.mark.parametrize("metric", [Euclidean(), Diagonal([3.0, 1.0]), Dense([[2.0, 0.8], [0.8, 1.0]])])
def test_it_agrees_with_the_affine_oracle(metric):
    X, J = gaussian(1500), np.array([[-1.0, 1.5], [-0.5, -0.3]])
    exact = affine_projection(J, covariance=np.diag([4.0, 1.0]), metric=metric).nonpotentiality
    result = nonpotentiality(X, X @ J.T, BOWL, metric)
    assert result.estimate == pytest.approx(exact, abs=0.03)
    assert result.low <= result.estimate <= result.high
    assert result.in_sample == pytest.approx(exact, abs=0.03)
    assert result.identifiable > 0.9
    assert result.warning == ""
    assert result.noise is None or result.noise < 1e-6


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    J = np.array([[-1.0, 1.5], [-0.5, -0.3]])
    exact = affine_projection(J, covariance=np.diag([4.0, 1.0])).nonpotentiality
    hits = 0
    for seed in range(20):
        X = gaussian(150, seed)
        result = nonpotentiality(X, X @ J.T, BOWL, key=jax.random.key(seed), resamples=300)
        hits += result.low <= exact <= result.high
    assert hits >= 16


def test_held_out_sees_what_in_sample_cannot():
    X = gaussian(200)
    F = np.random.default_rng(1).normal(size=X.shape)
    result = nonpotentiality(X, F, NEAREST)
    assert result.in_sample == 0.0
    assert result.estimate > 0.9


def test_replicates_stay_in_one_fold():
    X = np.repeat(gaussian(40), 5, axis=0)
    F = np.repeat(np.random.default_rng(1).normal(size=(40, 2)), 5, axis=0)
    assert nonpotentiality(X, F, NEAREST).estimate > 0.9  # a replicate in the training set would give it away


def test_two_estimates_take_the_noise_out():
    X = gaussian(2000, sd=(1.0, 1.0))
    noise = np.random.default_rng(1).normal(size=(2, *X.shape))  # as strong as the field -X
    result = nonpotentiality(X, -X + noise, BOWL)
    assert result.estimate < 0.06
    assert result.high < 0.2
    assert result.noise == pytest.approx(1 / 3, abs=0.03)  # the mean of two keeps half of the noise
    assert nonpotentiality(X, -X + noise[0], BOWL).estimate == pytest.approx(0.5, abs=0.05)
    swirling = nonpotentiality(X, -X + X @ TURN.T + noise, BOWL)
    assert swirling.estimate == pytest.approx(0.5, abs=0.08)


def test_repeated_points_take_the_noise_out():
    X = np.repeat(gaussian(500, sd=(1.0, 1.0)), 4, axis=0)
    F = -X + np.random.default_rng(1).normal(size=X.shape)
    result = nonpotentiality(X, F, BOWL)
    assert result.estimate < 0.06
    assert result.noise == pytest.approx(0.2, abs=0.03)


def test_a_trajectory_gets_a_plain_warning():
    t = np.linspace(0, 1, 60)[:, None]
    X = np.concatenate([np.cos(2 * t), np.sin(2 * t)], 1)
    with pytest.warns(IdentifiabilityWarning, match="off-path"):
        result = nonpotentiality(X, X @ TURN.T, BOWL)
    assert result.identifiable < 0.05
    assert "off-path" in result.warning
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nonpotentiality(gaussian(100), gaussian(100) @ TURN.T, BOWL)


def test_the_witness_comes_along():
    X = gaussian(300)
    assert nonpotentiality(X, X @ TURN.T, BOWL).witness.size > 0.7
    assert nonpotentiality(X, -X, BOWL).witness.size < 1e-10


def test_two_and_three_points_get_the_whole_interval():
    for n in (2, 3):
        with pytest.warns(IdentifiabilityWarning):
            result = nonpotentiality(gaussian(n), gaussian(n), NEAREST)
        assert (result.low, result.high) == (0.0, 1.0)


def test_a_still_field_and_one_drowned_in_noise():
    X = gaussian(100)
    still = nonpotentiality(X, np.zeros_like(X), BOWL)
    assert (still.estimate, still.low, still.high) == (0.0, 0.0, 0.0)
    drowned = nonpotentiality(X, np.random.default_rng(0).normal(size=(2, 100, 2)), BOWL)
    assert 0.0 <= drowned.low <= drowned.estimate <= drowned.high <= 1.0
    assert drowned.high - drowned.low > 0.5


def test_weights_of_zero_leave_samples_out_and_the_key_decides():
    X = gaussian(200)
    F = -X + 0.5 * X @ TURN.T + 0.1 * X**2
    w = np.ones(200)
    w[:50] = 0.0
    wild = F.copy()
    wild[:50] = 1e6
    key = jax.random.key(3)
    left_out, gone = nonpotentiality(X, wild, BOWL, weights=w, key=key), nonpotentiality(X[50:], F[50:], BOWL, key=key)
    assert left_out.estimate == pytest.approx(gone.estimate, rel=1e-9)
    again = nonpotentiality(X[50:], F[50:], BOWL, key=key)
    assert (again.estimate, again.low, again.high) == (gone.estimate, gone.low, gone.high)


def test_a_network_sees_a_non_linear_swirl():
    X = np.asarray(Ball(np.zeros(2)).sample(jax.random.key(0), 250), np.float64)
    swirl = 2 / (1 + (X**2).sum(1, keepdims=True)) * X @ TURN.T
    G = -X - 0.6 * np.sin(2 * X)
    result = nonpotentiality(X, G + swirl, NeuralProjector(steps=400, members=2), folds=3)
    assert result.estimate == pytest.approx(np.sum(swirl**2) / np.sum(swirl**2 + G**2), abs=0.08)


def test_a_measure_says_where_the_share_is_asked():
    """A rotation that is strong only far out, seen from samples most of which lie near the centre."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, size=600)
    X = rng.uniform(size=(600, 1)) ** 1.5 * np.stack([np.cos(angle), np.sin(angle)], 1)
    swirl = lambda z: 2 * (z**2).sum(1, keepdims=True) * z @ TURN.T  # noqa: E731
    disc = Ball(np.zeros(2))
    F, Z = swirl(X) - X, np.asarray(disc.sample(jax.random.key(1), 20_000), np.float64)
    for where, measure in ((Z, disc), (X, None)):
        exact = np.sum(swirl(where) ** 2) / np.sum(swirl(where) ** 2 + where**2)
        result = nonpotentiality(X, F, BOWL, measure=measure)
        assert result.low <= exact <= result.high + 0.01
        assert result.estimate == pytest.approx(exact, abs=0.02)
    assert nonpotentiality(X, F, BOWL, measure=disc).estimate > nonpotentiality(X, F, BOWL).estimate + 0.05


@pytest.mark.parametrize("wrong", [{"folds": 1}, {"level": 1.0}, {"resamples": 0}, {"weights": -np.ones(50)}])
def test_bad_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        nonpotentiality(gaussian(50), gaussian(50), BOWL, **wrong)


@pytest.mark.parametrize("again", [0, 1, 3])
def test_a_few_replicates_and_copies_leave_the_share_where_it_was(again):
    """Half of the field circulates, a third of what is seen is noise; a few replicates alone say hardly anything."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(100, 2))
        rows = [*range(100), *range(again)]
        F = (X @ TURN.T - X)[rows] + rng.normal(size=(len(rows), 2))
        plain = nonpotentiality(X[:100], F[:100])
        more = nonpotentiality(X[rows], F if again else np.stack([F, F]))
        assert more.estimate == pytest.approx(plain.estimate, abs=0.1 if again else 1e-6)
        assert more.noise == pytest.approx(1 / 3, abs=0.12)


def test_estimates_that_cancel_are_all_noise():
    X, F = gaussian(40), gaussian(40) @ TURN.T
    assert nonpotentiality(np.concatenate([X, X]), np.concatenate([F, -F]), BOWL).noise == 1.0
    assert nonpotentiality(np.concatenate([X, X]), np.zeros((80, 2)), BOWL).noise is None  # copies say nothing


@pytest.mark.parametrize("projector", [None, GraphProjector()])
@pytest.mark.parametrize("turning", [False, True])
def test_few_samples_of_many_coordinates_give_an_upper_bound(turning, projector):
    """Beside the span of the other samples a hill and a rotation look alike."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 400))
    F = X @ np.kron(np.eye(200), [[0.0, -1.0], [1.0, 0.0]]) if turning else -X * rng.uniform(0.2, 3.0, 400)
    with pytest.warns(IdentifiabilityWarning, match="too few of the coordinates"):
        found = nonpotentiality(X, F, projector)
    assert found.low == 0.0
    assert found.high > 0.9
    assert found.identifiable < 0.1
    assert found.beside > 0.9
    assert found.loops > 0.9


def test_probes_around_one_point_span_the_field_whatever_the_dimension():
    """The field is nearly the same everywhere, so that the others tell what it is."""
    rng = np.random.default_rng(0)
    X = 5.0 + 0.1 * rng.normal(size=(16, 400))
    noisy = np.stack([-X + 3.0 * rng.normal(size=X.shape) for _ in "ab"])
    found = nonpotentiality(X, noisy)
    assert found.high < 0.05
    assert found.identifiable > 0.9
    assert not found.warning
