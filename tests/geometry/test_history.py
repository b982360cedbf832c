"""The history's rolling matrices are those of its rows, whatever is kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml.geometry import history as module
from hpml.geometry.history import FEW_LANES, FEW_ROWS, History, combine_rows, history_init, history_push, lock_kept
from hpml.geometry.metric import Dense, Diagonal, LowRank


@pytest.fixture(scope="module", params=["C", "XLA"], autouse=True)
def means(request):
    """Everything holds with what is in C and with what stands in for it."""
    if request.param == "C":
        if not module.available():
            pytest.skip("this machine has no C compiler")
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "available", lambda: False)
        yield


def flat_rows(tree, rows):
    return np.concatenate([np.asarray(leaf, np.float64).reshape(rows, -1) for leaf in jax.tree.leaves(tree)], 1)


def direct(history: History, weights=1.0, columns=None):
    """D, A, Q of the rows, from scratch in float64; zero where a row is empty."""
    rows = len(history.times)
    X, F = flat_rows(history.points, rows), flat_rows(history.field, rows)
    W = np.concatenate([np.eye(X.shape[1]) * np.sqrt(weights), columns.T]) if columns is not None else None
    lift = (lambda v: v * np.sqrt(weights)) if W is None else (lambda v: v @ W.T)  # |lift(u)| = |u|_M
    dx = lift(X[None] - X[:, None])
    written = np.asarray(history.times) >= 0
    both = written[:, None] & written[None]
    return (dx**2).sum(-1) * both, np.einsum("ik,ijk->ij", lift(F), dx) * both, lift(F) @ lift(F).T


def run(params, fields, history, metric=None):
    def step(h, sample):
        return history_push(h, *sample, metric), h.newest

    return jax.jit(lambda h, samples: jax.lax.scan(step, h, samples))(history, (params, fields))[0]


def sequence(tree, steps, seed, scale=1.0, offset=0.0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: jnp.asarray(offset + scale * rng.normal(size=(steps, *leaf.shape)), leaf.dtype), tree
    )


shapes = st.lists(st.lists(st.integers(1, 3), max_size=2).map(tuple), min_size=1, max_size=3)


@pytest.mark.parametrize("keep", ["recent", "reservoir", "thinned"])
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 2**31), shapes=shapes, capacity=st.integers(2, 9), spare=st.integers(1, 4))
def test_rolling_matrices_equal_direct_ones_after_wrapping_around(keep, seed, shapes, capacity, spare):
    with jax.enable_x64(True):
        params = {str(i): jnp.zeros(shape, jnp.float64) for i, shape in enumerate(shapes)}
        history = history_init(params, capacity, keep, spare, key=seed)
        history = run(sequence(params, 200, seed, offset=3.0), sequence(params, 200, seed + 1), history)
        assert int(history.kept.sum()) == capacity
        for got, want in zip(np.asarray(history.matrices), direct(history), strict=True):
            used = np.asarray(history.times) >= 0
            np.testing.assert_allclose(got[used][:, used], want[used][:, used], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("keep", ["recent", "reservoir", "thinned"])
@pytest.mark.parametrize("kind", ["euclidean", "diagonal", "tree", "low rank"])
def test_metrics_and_float32(kind, keep):
    rng = np.random.default_rng(3)
    m, U = rng.uniform(0.1, 4.0, 7), rng.normal(size=(7, 2))
    params = jnp.zeros(7) if kind == "low rank" else {"a": jnp.zeros(4), "b": jnp.zeros((1, 3))}
    tree = {"a": jnp.asarray(m[:4]), "b": jnp.asarray(m[4:].reshape(1, 3))}
    metric = {"euclidean": None, "diagonal": Diagonal(m), "tree": tree, "low rank": LowRank(m, U)}[kind]
    history = run(sequence(params, 300, 0), sequence(params, 300, 1), history_init(params, 6, keep), metric)
    want = direct(history, 1.0 if kind == "euclidean" else m, U if kind == "low rank" else None)
    for got, exact in zip(np.asarray(history.matrices), want, strict=True):
        np.testing.assert_allclose(got, exact, atol=2e-5 * np.abs(exact).max())


def test_float32_distances_of_nearby_vectors_far_from_the_origin():
    params = {"w": jnp.zeros((100, 101)), "b": jnp.zeros(7)}
    points = sequence(params, 40, 0, scale=0.05, offset=1e3)
    history = run(points, sequence(params, 40, 1), history_init(params, 16))
    D, A, Q = np.asarray(history.matrices)
    want_D, want_A, want_Q = direct(history)
    written = np.asarray(history.times) >= 0
    off = ~np.eye(len(D), dtype=bool) & written[:, None] & written
    assert np.max(np.abs(D - want_D)[off] / want_D[off]) < 1e-5
    lengths = np.sqrt(np.diag(want_Q))[:, None] * np.sqrt(want_D)
    assert np.max(np.abs(A - want_A)[off] / lengths[off]) < 1e-5
    np.testing.assert_allclose(Q, want_Q, atol=1e-5 * want_Q.max())


@pytest.mark.parametrize("aligned", [True, False])
def test_float32_products_of_many_coordinates(aligned):
    """Sums of a million terms of one sign, as between the gradients of small steps, are right to float32's digits."""
    d, rng = 1_000_000, np.random.default_rng(0)
    common = rng.normal(size=d) if aligned else 0.0
    fields = [np.float32(common + rng.normal(size=d) * (0.01 if aligned else 1.0)) for _ in range(6)]
    params = np.cumsum([np.zeros(d, np.float32), *(np.float32(0.1) * f for f in fields[:-1])], 0, np.float32)
    push, history = jax.jit(history_push, donate_argnums=0), history_init(jnp.zeros(d), 4)
    for x, f in zip(params, fields, strict=True):
        history = push(history, jnp.asarray(x), jnp.asarray(f))
    D, A, Q = direct(history)
    errors = [
        np.abs(np.asarray(rolled) - exact).max() for rolled, exact in zip(history.matrices, (D, A, Q), strict=True)
    ]
    assert errors[0] < 2e-7 * D.max()
    assert errors[1] < 5e-7 * np.sqrt(D.max() * Q.max())
    assert errors[2] < 2e-7 * Q.max()


def test_a_reservoir_goes_on_after_a_sample_that_is_not_finite():
    push, history = jax.jit(history_push), history_init(jnp.zeros(3), 2, "reservoir", key=1)
    rng = np.random.default_rng(0)
    for i in range(30):
        x, f = rng.normal(size=(2, 3)).astype(np.float32)
        history = push(history, x, f * np.float32(np.nan if i % 3 == 2 else 1.0))
        for rolled, exact in zip(history.matrices, direct(history), strict=True):
            np.testing.assert_allclose(rolled, exact, atol=1e-4)


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("weights", [None, np.linspace(0.5, 2.0, 11, dtype=np.float32)])
def test_histories_side_by_side_are_those_of_each_alone(lanes, weights):
    params, metric = jnp.zeros(11), None if weights is None else Diagonal(jnp.asarray(weights))
    points, fields = (jnp.stack([sequence(params, 9, 2 * i + k) for i in range(lanes)]) for k in range(2))
    empty = history_init(params, 4, spare=2)
    together = jax.vmap(lambda x, f: run(x, f, empty, metric))(points, fields)
    for i in range(lanes):
        alone = run(points[i], fields[i], empty, metric)
        own = jax.tree.map(lambda leaf, i=i: leaf[i], together)
        with jax.enable_x64(True):
            np.testing.assert_allclose(own.matrices, alone.matrices, rtol=1e-6, atol=1e-5)


def test_recent_keeps_the_last_samples():
    params = jnp.zeros(2)
    history = run(sequence(params, 23, 0), sequence(params, 23, 1), history_init(params, 5, "recent", spare=3))
    assert sorted(np.asarray(history.times)[np.asarray(history.valid)]) == list(range(18, 23))


def test_reservoir_is_uniform_over_time():
    params, steps, capacity = jnp.zeros(1), 40, 4
    histories = jax.vmap(lambda key: history_init(params, capacity, "reservoir", key=key))(
        jax.random.split(jax.random.key(0), 1000)
    )
    push = jax.vmap(lambda h, x: history_push(h, x, x), in_axes=(0, None))
    histories = jax.jit(lambda h: jax.lax.scan(lambda h, x: (push(h, x), None), h, jnp.ones((steps, 1)))[0])(histories)
    times = np.asarray(histories.times)[np.asarray(histories.kept)]
    assert len(times) == 1000 * capacity
    assert scipy.stats.chisquare(np.bincount(times, minlength=steps)).pvalue > 1e-3


@pytest.mark.parametrize("steps", [100, 1000])
def test_thinned_ages_grow_geometrically(steps):
    params, capacity = jnp.zeros(1), 16
    history = run(sequence(params, steps, 0), sequence(params, steps, 1), history_init(params, capacity, "thinned"))
    ages = np.sort(steps - np.asarray(history.times)[np.asarray(history.kept)])
    assert ages[0] == 1
    assert ages[-1] == steps
    ratios = ages[1:] / ages[:-1]
    assert ratios.max() < max(2.0, 3.0 * steps ** (1 / (capacity - 1)))


def test_locked_rows_outlive_as_many_pushes_as_there_are_spare_rows():
    params, spare, push = jnp.zeros(1), 4, jax.jit(history_push)
    for keep in ("recent", "reservoir", "thinned"):
        history = history_init(params, 5, keep, spare)
        for t in range(40):
            history = push(history, jnp.array([float(t)]), jnp.ones(1))
            if t % spare == spare - 1:
                history = lock_kept(history, jnp.array(True))
                locked, times = np.asarray(history.locked), np.asarray(history.times)
            elif t > spare:
                np.testing.assert_array_equal(np.asarray(history.times)[locked], times[locked])


@pytest.mark.parametrize(("count", "seeds"), [(3, 2), (FEW_ROWS + 3, 2), (3, FEW_LANES + 1)])
def test_combination_of_rows_is_that_of_differences(count, seeds):
    params = {"a": jnp.zeros((3, 2)), "b": jnp.zeros(5)}
    rng = np.random.default_rng(0)

    def case(seed):
        history = run(sequence(params, 40, seed), sequence(params, 40, seed + 1), history_init(params, 30))
        rows = jnp.asarray(rng.permutation(len(history.times))[:count])
        a, b = rng.normal(size=(2, count))
        at = jax.tree.map(lambda leaf: leaf[0], sequence(params, 1, seed + 2))
        return history, rows, jnp.asarray(a), jnp.asarray(b), at

    cases = [case(3 * seed) for seed in range(seeds)]
    lanes = jax.jit(jax.vmap(combine_rows))(*jax.tree.map(lambda *leaves: jnp.stack(leaves), *cases))
    for lane, one in enumerate(cases):
        history, rows, a, b, at = one
        together = [part[lane] for part in jax.tree.leaves(lanes)]
        places = [jax.tree.leaves(tree) for tree in (combine_rows(*one), history.points, history.field, at)]
        for part, X, F, x, beside in zip(*places, together, strict=True):
            X, F = np.asarray(X)[rows], np.asarray(F)[rows]
            want = np.tensordot(np.asarray(a), X - np.asarray(x), 1) + np.tensordot(np.asarray(b), F, 1)
            np.testing.assert_allclose(part, want, atol=3e-5)
            np.testing.assert_allclose(beside, want, atol=3e-5)


def test_a_sample_that_is_not_finite_is_left_out():
    params = jnp.zeros(3)
    history = run(sequence(params, 4, 0), sequence(params, 4, 1), history_init(params, 3))
    after = history_push(history, jnp.array([jnp.nan, 0.0, 0.0]), jnp.ones(3))
    after = history_push(after, jnp.ones(3), jnp.array([jnp.inf, 0.0, 0.0]))
    np.testing.assert_array_equal(after.kept, history.kept)
    np.testing.assert_array_equal(after.matrices, history.matrices)
    assert np.isfinite(np.asarray(after.points)).all()
    assert int(after.count) == 6


def test_half_precision_is_held_in_float32():
    params = {"h": jnp.ones(3, jnp.bfloat16), "f": jnp.ones(2, jnp.float16)}
    history = history_push(history_init(params, 3), params, params)
    assert {leaf.dtype for leaf in jax.tree.leaves(history.points)} == {jnp.dtype("float32")}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: history_init({}, 4), "empty tree"),
        (lambda: history_init({"a": jnp.zeros(0)}, 4), "empty tree"),
        (lambda: history_init(jnp.zeros(2), 1), "at least 2"),
        (lambda: history_init(jnp.zeros(2), 4, "newest"), "reservoir"),
        (lambda: history_init(jnp.zeros(2, int), 4), "floating"),
        (lambda: history_push(history_init(jnp.zeros(2), 4), {"a": jnp.zeros(2)}, jnp.zeros(2)), "structure"),
        (lambda: history_push(history_init(jnp.zeros(2), 4), jnp.zeros(2), jnp.zeros(3)), "shape"),
        (lambda: history_push(history_init(jnp.zeros(2), 4), jnp.zeros(2), jnp.zeros(2), Dense(np.eye(2))), "Dense"),
        (lambda: history_push(history_init(jnp.zeros(2), 4), jnp.zeros(2), jnp.zeros(2), -jnp.ones(2)), "positive"),
        (lambda: history_push(history_init(jnp.zeros(2), 4), jnp.zeros(2), jnp.zeros(2), jnp.ones(3)), "structure"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
