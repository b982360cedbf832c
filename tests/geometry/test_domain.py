"""Domains: the retraction is the closest point, the maximiser maximises, the samples are uniform."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from hpml import Ball, Box, Simplices

SEEDS = st.integers(0, 2**32 - 1)
DOMAINS = {
    "box": Box([-1.0, 0.0, 2.0], [1.0, 0.5, 5.0]),
    "ball": Ball([1.0, -2.0, 0.5], 1.5),
    "simplex": Simplices(4),
    "simplices": Simplices((3, 2, 4)),
    "orthonormal": Simplices((3, 2, 4), coordinates="orthonormal"),
}
every_domain = pytest.mark.parametrize("domain", DOMAINS.values(), ids=DOMAINS)


def draw(domain, seed):
    """Two hundred samples: one count everywhere, so that the draws are compiled once."""
    return np.asarray(domain.sample(jax.random.key(seed), 200))


def inside(domain, points, slack=1e-5):
    if isinstance(domain, Box):
        return ((points >= domain.low - slack) & (points <= domain.high + slack)).all(-1)
    if isinstance(domain, Ball):
        return np.linalg.norm(points - domain.centre, axis=-1) <= domain.radius + slack
    return np.all([(np.asarray(x) >= -slack).all(-1) for x in domain.complete(points)], axis=0)


@every_domain
@given(seed=SEEDS)
def test_retraction_lands_inside_keeps_the_inside_and_is_idempotent(domain, seed):
    rng = np.random.default_rng(seed)
    wild = rng.normal(scale=4.0, size=(6, domain.dimension))
    once = np.asarray(domain.retract(wild))
    assert inside(domain, once).all()
    np.testing.assert_allclose(domain.retract(once), once, atol=2e-6)
    home = draw(domain, seed)
    np.testing.assert_allclose(domain.retract(home), home, atol=2e-6)


@pytest.mark.parametrize("name", ["box", "ball", "orthonormal"])
@given(seed=SEEDS)
def test_retraction_is_the_closest_point(name, seed):
    # <x - P x, u - P x> <= 0 for every u of the domain says that P x is closest; the maximiser gives the worst u.
    domain, rng = DOMAINS[name], np.random.default_rng(seed)
    x = rng.normal(scale=4.0, size=domain.dimension)
    p = np.asarray(domain.retract(x), float)
    worst = np.asarray(domain.maximise(x - p), float)
    assert (x - p) @ (worst - p) <= 1e-4


@given(seed=SEEDS)
def test_simplex_retraction_is_the_closest_probability_vector(seed):
    domain, rng = Simplices(4), np.random.default_rng(seed)
    x = rng.normal(size=3)
    full = np.append(x, 1.0 - x.sum())
    answer = scipy.optimize.minimize(
        lambda y: ((y - full) ** 2).sum(),
        np.full(4, 0.25),
        bounds=[(0.0, 1.0)] * 4,
        constraints={"type": "eq", "fun": lambda y: y.sum() - 1.0},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(domain.retract(x), answer.x[:-1], atol=1e-5)


@every_domain
@given(seed=SEEDS)
def test_maximiser_is_inside_and_beats_every_sample(domain, seed):
    h = np.random.default_rng(seed).normal(size=domain.dimension)
    best = np.asarray(domain.maximise(h))
    assert inside(domain, best[None]).all()
    assert best @ h >= (draw(domain, seed) @ h).max() - 1e-5


@every_domain
def test_no_two_points_are_further_apart_than_the_diameter(domain):
    rng = np.random.default_rng(0)
    ends = np.asarray(domain.maximise(rng.normal(size=(300, domain.dimension))))
    apart = np.linalg.norm(ends[:, None] - ends[None], axis=-1).max()
    assert apart <= domain.diameter * (1 + 1e-5)
    assert apart >= domain.diameter * 0.9  # and it is no loose bound


def test_samples_have_the_moments_of_the_uniform_law():
    key, count = jax.random.key(1), 40_000
    box = np.asarray(DOMAINS["box"].sample(key, count))
    width = DOMAINS["box"].high - DOMAINS["box"].low
    np.testing.assert_allclose(box.mean(0), DOMAINS["box"].low + width / 2, atol=0.02)
    np.testing.assert_allclose(box.var(0), width**2 / 12, rtol=0.03)

    ball = np.asarray(DOMAINS["ball"].sample(key, count)) - DOMAINS["ball"].centre
    assert np.linalg.norm(ball, axis=1).max() <= 1.5 + 1e-5
    np.testing.assert_allclose(ball.T @ ball / count, np.eye(3) * 1.5**2 / 5, atol=0.02)  # r^2 / (d + 2)

    simplex = np.asarray(DOMAINS["simplex"].sample(key, count))
    np.testing.assert_allclose(simplex.mean(0), 0.25, atol=0.01)
    np.testing.assert_allclose(np.cov(simplex.T), np.eye(3) / 20 - 1 / 80, atol=2e-3)  # Dirichlet(1, 1, 1, 1)


@every_domain
def test_spread_points_lie_inside_and_integrate_better_than_random_ones(domain):
    even = np.asarray(domain.spread(jax.random.key(0), 4096))
    assert even.shape == (4096, domain.dimension)
    assert inside(domain, even, 1e-9).all()
    np.testing.assert_array_equal(even, domain.spread(jax.random.key(0), 4096))
    assert not np.array_equal(even, domain.spread(jax.random.key(1), 4096))
    random = np.asarray(domain.sample(jax.random.key(0), 2**17), np.float64)
    truth, covariance = random.mean(0), np.cov(random.T)
    scale = np.sqrt(np.diag(covariance))
    # Independent points of this number would be off by 1/64 = 0.016 standard deviations.
    np.testing.assert_allclose((even.mean(0) - truth) / scale, 0.0, atol=0.009)
    np.testing.assert_allclose((np.cov(even.T) - covariance) / np.outer(scale, scale), 0.0, atol=0.012)


@given(seed=SEEDS)
def test_simplices_reduce_undoes_complete(seed):
    domain = DOMAINS["simplices"]
    x = draw(domain, seed)
    parts = domain.complete(x)
    assert [p.shape for p in parts] == [(200, 3), (200, 2), (200, 4)]
    for part in parts:
        np.testing.assert_allclose(np.asarray(part).sum(-1), 1.0, atol=1e-6)
    np.testing.assert_array_equal(domain.reduce(parts), x)


@every_domain
def test_retraction_runs_under_jit_and_vmap(domain):
    x = jnp.asarray(np.random.default_rng(3).normal(size=(4, domain.dimension)))
    out = jax.jit(jax.vmap(lambda p: domain.retract(p)))(x)
    np.testing.assert_allclose(out, domain.retract(x), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Box([0.0, 1.0], [1.0, 1.0]), "low < high"),
        (lambda: Box(np.nan, 1.0), "finite"),
        (lambda: Box([0.0, 1.0], [1.0, 2.0, 3.0]), "low"),
        (lambda: Ball([0.0, 0.0], 0.0), "positive radius"),
        (lambda: Ball([0.0, 0.0], np.inf), "radius"),
        (lambda: Ball([[0.0, 0.0]]), "centre"),
        (lambda: Simplices(1), "at least 2"),
        (lambda: Simplices(()), "at least 2"),
    ],
)
def test_what_is_no_domain_is_refused_with_words(make, words):
    with pytest.raises(ValueError, match=words):
        make()
