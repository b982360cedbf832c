"""Metrics: lowering and raising are inverse, whitening carries lengths, every form agrees with its dense matrix."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hpml
from hpml import Dense, Diagonal, Euclidean, LowRank, Shahshahani, Varying

SEEDS = st.integers(0, 2**32 - 1)
SIZES = (3, 2, 4)  # three simplices: d = 2 + 1 + 3
D = 6


def interior(rng, count, sizes=SIZES):
    """Reduced points well inside a product of simplices."""
    parts = [rng.dirichlet(np.full(K, 3.0), count)[:, :-1] for K in sizes]
    return np.concatenate(parts, axis=1) * 0.98 + 0.001


def build(name, rng):
    diagonal = rng.uniform(0.1, 5.0, D)
    A = rng.normal(size=(D, D))
    return {
        "euclidean": lambda: Euclidean(),
        "diagonal": lambda: Diagonal(diagonal),
        "dense": lambda: Dense(A @ A.T + 0.1 * np.eye(D)),
        "lowrank": lambda: LowRank(diagonal, rng.normal(size=(D, 2))),
        "lowrank, more columns than rows": lambda: LowRank(diagonal, rng.normal(size=(D, 9))),
        "shahshahani": lambda: Shahshahani(SIZES),
        "varying": lambda: Varying(lambda x: Diagonal(1.0 + x**2)),
    }[name]()


NAMES = [
    "euclidean",
    "diagonal",
    "dense",
    "lowrank",
    "lowrank, more columns than rows",
    "shahshahani",
    "varying",
]


@pytest.mark.parametrize("name", NAMES)
@given(seed=SEEDS)
def test_every_metric_is_an_inner_product_with_a_factor(name, seed):
    rng = np.random.default_rng(seed)
    metric, x = build(name, rng), interior(rng, 5)
    u, v = rng.normal(size=(2, 5, D))
    scale = {"rtol": 1e-8, "atol": 1e-8 * np.abs(np.asarray(metric.lower(u, x))).max()}

    np.testing.assert_allclose(metric.raise_index(metric.lower(u, x), x), u, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(metric.lower(metric.raise_index(u, x), x), u, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(metric.unwhiten(metric.whiten(u, x), x), u, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(metric.inner(u, v, x), metric.inner(v, u, x), **scale)
    # |W u| = |u|_M, and <W u, W v> = <u, v>_M
    np.testing.assert_allclose((metric.whiten(u, x) * metric.whiten(v, x)).sum(-1), metric.inner(u, v, x), **scale)
    np.testing.assert_allclose(np.linalg.norm(metric.whiten(u, x), axis=-1), metric.norm(u, x), rtol=1e-9)
    # |W^-T h| = |h| in M^-1, and <W^-T h, W u> = h(u)
    h = metric.whiten_covector(v, x)
    np.testing.assert_allclose((h * h).sum(-1), (v * metric.raise_index(v, x)).sum(-1), rtol=1e-8)
    np.testing.assert_allclose((h * metric.whiten(u, x)).sum(-1), (v * u).sum(-1), rtol=1e-7, atol=1e-7)


@given(seed=SEEDS)
def test_low_rank_equals_the_dense_metric_of_its_matrix(seed):
    rng = np.random.default_rng(seed)
    m, U = rng.uniform(0.1, 5.0, D), rng.normal(size=(D, 2))
    low, dense, u = LowRank(m, U), Dense(np.diag(m) + U @ U.T), rng.normal(size=(4, D))
    np.testing.assert_allclose(low.lower(u), dense.lower(u), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(low.raise_index(u), dense.raise_index(u), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(low.norm(u), dense.norm(u), rtol=1e-9)


@given(seed=SEEDS)
def test_shahshahani_equals_its_dense_matrix_at_each_point(seed):
    rng = np.random.default_rng(seed)
    x, u = interior(rng, 3), rng.normal(size=(3, D))
    metric = Shahshahani(SIZES)
    for i in range(3):
        M, start = np.zeros((D, D)), 0
        for K in SIZES:
            block = slice(start, start + K - 1)
            M[block, block] = np.diag(1 / x[i, block]) + 1 / (1 - x[i, block].sum())
            start += K - 1
        dense = Dense(M)
        np.testing.assert_allclose(metric.lower(u[i], x[i]), dense.lower(u[i]), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(metric.raise_index(u[i], x[i]), dense.raise_index(u[i]), rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(metric.norm(u[i], x[i]), dense.norm(u[i]), rtol=1e-9)


@given(seed=SEEDS)
def test_shahshahani_gradient_is_the_replicator_field(seed):
    rng = np.random.default_rng(seed)
    x = rng.dirichlet(np.full(4, 2.0)) * 0.99 + 0.0025
    payoff = rng.normal(size=4)
    gradient = payoff[:-1] - payoff[-1]  # of the mean payoff, in coordinates without the last
    replicator = x * (payoff - x @ payoff)
    np.testing.assert_allclose(Shahshahani(4).raise_index(gradient, x[:-1]), replicator[:-1], rtol=1e-9, atol=1e-12)


def test_shahshahani_stays_finite_on_the_boundary():
    metric, vertex, u = Shahshahani(3), np.array([[1.0, 0.0]]), np.array([[1.0, -2.0]])
    for verb in (metric.lower, metric.raise_index, metric.whiten, metric.unwhiten, metric.whiten_covector):
        assert np.isfinite(verb(u, vertex)).all()


def test_varying_that_is_constant_equals_the_constant():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(D, D))
    fixed = Dense(A @ A.T + np.eye(D))
    metric, u, x = Varying(lambda _: fixed), rng.normal(size=(4, D)), rng.normal(size=(4, D))
    for verb in ("lower", "raise_index", "whiten", "unwhiten", "whiten_covector"):
        np.testing.assert_allclose(getattr(metric, verb)(u, x), getattr(fixed, verb)(u), rtol=1e-12)
    np.testing.assert_allclose(metric.distance(x, x + u), fixed.distance(x, x + u), rtol=1e-12)


def test_varying_diagonals_are_found_at_once_and_equal_the_loop():
    rng, calls = np.random.default_rng(0), []

    def weights(x):
        calls.append(1)
        return Diagonal(1.0 + x**2)

    u, x = rng.normal(size=(50, D)), rng.normal(size=(50, D))
    at_once, one_by_one = Varying(weights), Varying(lambda x: Diagonal(np.add(1.0, np.square(x))))
    for verb in ("lower", "raise_index", "whiten", "unwhiten", "whiten_covector"):
        calls.clear()
        np.testing.assert_allclose(getattr(at_once, verb)(u, x), getattr(one_by_one, verb)(u, x), rtol=1e-14)
        assert len(calls) == 1
    with pytest.raises(ValueError, match="positive"):
        Varying(lambda x: Diagonal(x)).lower(u, x)


def test_a_varying_metric_is_asked_once_a_point_for_many_vectors_there():
    rng, calls = np.random.default_rng(0), []

    def metric_at(x):
        calls.append(1)
        return Dense(np.eye(D) + np.outer(x, x))

    u, x = rng.normal(size=(3, 6, D)), rng.normal(size=(6, D))
    for verb in ("lower", "raise_index", "whiten", "unwhiten", "whiten_covector"):
        calls.clear()
        found = getattr(Varying(metric_at), verb)(u, x)
        assert len(calls) <= 7  # one of them asks whether it is diagonal
        for vectors, row in zip(u, found, strict=True):
            np.testing.assert_allclose(row, getattr(Varying(metric_at), verb)(vectors, x), rtol=1e-13)
        one = getattr(Varying(metric_at), verb)(u[0], x[:1])
        np.testing.assert_allclose(one, getattr(metric_at(x[0]), verb)(u[0]), rtol=1e-12)


def test_a_projection_asks_a_varying_metric_once_a_point_and_anew_the_next_time():
    rng, asked, size = np.random.default_rng(0), [], [1.0]

    def metric_at(x):
        asked.append(x.tobytes())
        return Dense(size[0] * np.eye(2) + np.outer(x, x))

    X = rng.normal(size=(40, 2))
    metric = Varying(metric_at)
    field = metric.raise_index(-X, X)
    asked.clear()
    first = hpml.project(X, field, metric=metric)
    assert sum(point in {x.tobytes() for x in X} for point in asked) == len(X)
    size[0] = 4.0
    again = hpml.project(X, field, metric=metric)
    energy = np.mean(metric.inner(field, field, X))
    assert again.energy.potential + again.energy.circulation + again.energy.noise == pytest.approx(energy)
    assert first.energy.potential + first.energy.circulation + first.energy.noise < 0.5 * energy


@pytest.mark.parametrize("name", NAMES)
def test_distance_is_symmetric_and_zero_at_home(name):
    rng = np.random.default_rng(1)
    metric, x, y = build(name, rng), interior(rng, 4), interior(rng, 4)
    np.testing.assert_allclose(metric.distance(x, y), metric.distance(y, x), rtol=1e-12)
    assert (np.asarray(metric.distance(x, x)) == 0).all()


@pytest.mark.parametrize("name", ["euclidean", "diagonal", "dense", "lowrank", "shahshahani"])
def test_jax_and_numpy_agree_and_jit_works(name):
    rng = np.random.default_rng(2)
    metric, x, u = build(name, rng), interior(rng, 4), rng.normal(size=(4, D))
    for verb in ("lower", "raise_index", "whiten", "unwhiten", "whiten_covector"):
        host = getattr(metric, verb)(u, x)
        device = jax.jit(lambda u, x, verb=verb: getattr(metric, verb)(u, x))(jnp.asarray(u), jnp.asarray(x))
        assert isinstance(host, np.ndarray)
        np.testing.assert_allclose(device, host, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("kind", ["diagonal", "lowrank"])
def test_a_million_coordinates_need_no_matrix(kind):
    d = 10**6
    u = np.ones((2, d))
    metric = Diagonal(np.full(d, 2.0)) if kind == "diagonal" else LowRank(np.full(d, 2.0), np.full((d, 2), 1e-3))
    np.testing.assert_allclose(metric.raise_index(metric.lower(u)), u, rtol=1e-10)
    np.testing.assert_allclose(np.linalg.norm(metric.whiten(u), axis=-1), metric.norm(u), rtol=1e-10)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Diagonal([1.0, 0.0]), "positive"),
        (lambda: Diagonal([[1.0]]), "shape"),
        (lambda: Diagonal([1.0, np.nan]), "finite"),
        (lambda: Dense([[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (lambda: Dense([[1.0, 0.5], [0.0, 1.0]]), "symmetric"),
        (lambda: Dense([1.0, 2.0]), "square"),
        (lambda: LowRank([1.0, -1.0], [[1.0], [1.0]]), "positive"),
        (lambda: LowRank([1.0, 1.0], [[1.0], [1.0], [1.0]]), "shape"),
        (lambda: Shahshahani(1), "at least 2"),
        (lambda: Shahshahani(()), "actions"),
        (lambda: Shahshahani(3).lower(np.ones((1, 2))), "at"),
        (lambda: Varying(lambda x: Euclidean()).lower(np.ones((1, 2))), "at"),
        (lambda: Diagonal([1.0, 1.0]).check(3), "dimension"),
        (lambda: Shahshahani((2, 3)).check(5), "last probability out"),
        (
            lambda: Shahshahani((2, 3)).check_points(np.array([[0.5, 0.2, 0.2], [0.5, 0.9, 0.2]])),
            "row 1 .* the sum 1.1",
        ),
        (lambda: Shahshahani(3).check_points(np.array([[1.0, 0.0], [-0.01, 0.5]])), "probabilities.*row 1"),
    ],
)
def test_what_is_no_metric_is_refused_with_words(make, words):
    with pytest.raises(ValueError, match=words):
        make()
