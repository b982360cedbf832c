"""Inner products in C: sums of NumPy in float64, whoever asks and however the work is shared."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml.native.products import available, combined_rows, row_sums, tree_sums, written_rows

pytestmark = pytest.mark.skipif(not available(), reason="this machine has no C compiler")


def draw(rows, width, seed, lanes=()):
    rng = np.random.default_rng(seed)
    X, F = rng.standard_normal((2, *lanes, rows, width)).astype(np.float32)
    x, f, g = rng.standard_normal((3, *lanes, width)).astype(np.float32)
    return X, F, x, f, g, rng.uniform(0.1, 2.0, (*lanes, width)).astype(np.float32)


def by_numpy(X, F, x, f, g, w):
    X, F, x, f = (np.asarray(v, np.float64) for v in (X, F, x, f))
    g, w = (np.full_like(x, empty) if v is None else np.asarray(v, np.float64) for v, empty in ((g, 0.0), (w, 1.0)))
    dx = X - x
    return np.stack([dx**2 @ w, -(F * dx) @ w, dx @ (w * f), F @ (w * f), dx @ (w * g), F @ (w * g)]), f @ (w * f)


@given(
    rows=st.integers(1, 9),
    width=st.sampled_from([1, 3, 7, 8, 9, 1000, 6143, 6144, 6145, 20_000]),  # a block has 6,144
    gap=st.booleans(),
    weighed=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_they_are_the_sums_of_numpy(rows, width, gap, weighed, seed):
    X, F, x, f, g, w = draw(rows, width, seed)
    sample = (X, F, x, f, g if gap else None, w if weighed else None)
    sums, energy = row_sums(*sample)
    expected, length = by_numpy(*sample)
    scale = np.sqrt(width)
    np.testing.assert_allclose(np.asarray(sums), expected, rtol=1e-13, atol=1e-13 * scale)
    np.testing.assert_allclose(float(energy), length, rtol=1e-13)


def test_nearby_points_far_from_zero_keep_their_distance():
    rng = np.random.default_rng(0)
    x = (1e4 + rng.standard_normal(3000)).astype(np.float32)
    near = np.nextafter(x, np.float32(np.inf))
    sums, _ = row_sums(near[None], near[None], x, x, None, None)
    exact = ((near.astype(np.float64) - x.astype(np.float64)) ** 2).sum()
    assert np.asarray(sums)[0, 0] == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("lanes", [(1,), (3,), (2, 2)])
def test_a_lane_has_the_bits_that_it_has_alone(lanes):
    samples = draw(5, 30_001, 1, lanes)
    run = lambda *sample: row_sums(*sample)  # noqa: E731
    many = run
    for _ in lanes:
        many = jax.vmap(many)
    sums, energy = jax.jit(many)(*samples)
    for lane in np.ndindex(lanes):
        alone, length = run(*(value[lane] for value in samples))
        np.testing.assert_array_equal(np.asarray(sums)[lane], np.asarray(alone))
        assert np.asarray(energy)[lane] == np.asarray(length)


def test_what_some_lanes_share_is_handed_to_all():
    X, F, x, f, g, w = draw(4, 2000, 2, (3,))
    sums, _ = jax.vmap(row_sums, in_axes=(0, 0, 0, 0, None, None))(X, F, x, f, g[0], w[0])
    expected = [by_numpy(X[i], F[i], x[i], f[i], g[0], w[0])[0] for i in range(3)]
    np.testing.assert_allclose(np.asarray(sums), np.stack(expected), rtol=1e-12, atol=1e-12)


PRINT = """
import numpy as np
from hpml.native.products import available, row_sums
assert available()
rng = np.random.default_rng(3)
X, F = rng.standard_normal((2, 17, 100_003)).astype(np.float32)
sums, _ = row_sums(X, F, X[0], F[0], F[1], None)
print(np.asarray(sums).tobytes().hex())
"""


def test_bits_do_not_depend_on_the_number_of_threads():
    alone, several = (
        subprocess.run(
            [sys.executable, "-c", PRINT],
            env=os.environ | {"NPROC": str(threads), "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in (1, 4)
    )
    assert alone
    assert alone == several


def test_no_rows_are_no_sums():
    sums, energy = row_sums(*(jnp.ones(shape, jnp.float32) for shape in ((0, 3), (0, 3), (3,), (3,))), None, None)
    assert sums.shape == (6, 0)
    assert float(energy) == 3.0


def test_a_sum_that_is_not_finite_says_so():
    X, F, x, f, g, w = draw(3, 100, 4)
    F[1, 50] = np.nan
    sums = np.asarray(row_sums(X, F, x, f, g, w)[0])
    assert np.isnan(sums[[1, 3, 5], 1]).all()
    assert np.isfinite(sums[:, [0, 2]]).all()


@given(
    sizes=st.lists(st.sampled_from([1, 7, 8, 9, 6143, 6144, 20_000]), min_size=1, max_size=4), seed=st.integers(0, 9)
)
@settings(max_examples=30, deadline=None)
def test_squares_and_products_of_trees(sizes, seed):
    rng = np.random.default_rng(seed)
    left, right = ([rng.standard_normal(size).astype(np.float32) for size in sizes] for _ in range(2))
    square, product, other = tree_sums(left, right)
    u, v = (np.concatenate(tree).astype(np.float64) for tree in (left, right))
    assert float(square) == pytest.approx(u @ u, rel=1e-7)
    assert float(product) == pytest.approx(u @ v, rel=1e-7, abs=1e-7 * np.sqrt(u @ u))
    assert float(other) == pytest.approx(v @ v, rel=1e-7)
    assert all(float(of_itself) == float(square) for of_itself in jax.jit(lambda tree: tree_sums(tree, tree))(left))


def test_squares_of_every_lane_of_a_tree():
    rng = np.random.default_rng(1)
    left, right = ([rng.standard_normal((3, *shape)).astype(np.float32) for shape in ((5, 4), (9000,))] for _ in "ab")
    square, product, other = jax.jit(jax.vmap(tree_sums))(left, right)
    u, v = (np.concatenate([x.reshape(3, -1) for x in tree], 1).astype(np.float64) for tree in (left, right))
    np.testing.assert_allclose(square, (u * u).sum(1), rtol=1e-6)
    np.testing.assert_allclose(product, (u * v).sum(1), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(other, (v * v).sum(1), rtol=1e-6)


@given(
    rows=st.integers(1, 9),
    count=st.integers(0, 12),
    width=st.sampled_from([1, 15, 16, 17, 6144, 20_000]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_a_combination_of_rows(rows, count, width, seed):
    X, F, x, *_ = draw(rows, width, seed)
    rng = np.random.default_rng(seed)
    which, (a, b) = rng.integers(0, rows, count), rng.standard_normal((2, count)).astype(np.float32)
    a[::3] = b[::3] = 0.0
    found = combined_rows(X, F, x, which, a, b)
    expected = a.astype(np.float64) @ (X[which].astype(np.float64) - x) + b.astype(np.float64) @ F[which]
    np.testing.assert_allclose(found, expected, atol=1e-4)
    brief_X, brief_F = (rows.astype(jnp.bfloat16) for rows in (X, F))
    found = combined_rows(brief_X.view(np.uint16), brief_F.view(np.uint16), None, which, a, b)
    expected = a.astype(np.float64) @ brief_X[which].astype(np.float64) + b @ brief_F[which].astype(np.float64)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_combination_reads_no_row_that_does_not_count_and_each_lane_its_own():
    X, F, x, *_ = draw(4, 40_000, 5, (2,))
    X[:, 3] = np.nan
    which = np.array([[0, 3, 2], [1, 3, 0]])
    a, b = np.array([[1.0, 0.0, -2.0], [0.5, 0.0, 3.0]], np.float32), np.ones((2, 3), np.float32)
    b[:, 1] = 0.0
    found = jax.jit(jax.vmap(combined_rows))(X, F, x, which, a, b)
    for lane in range(2):
        rows = which[lane, [0, 2]]
        expected = a[lane, [0, 2]] @ (X[lane, rows] - x[lane]) + b[lane, [0, 2]] @ F[lane, rows]
        np.testing.assert_allclose(found[lane], expected, atol=1e-4)


@pytest.mark.parametrize("width", [1, 17, 6145, 100_000])
@pytest.mark.parametrize("whole", [True, False])
def test_a_row_is_written_and_no_other(width, whole):
    X, F, x, f, *_ = draw(5, width, 3)
    before = X.copy(), F.copy()
    for at, row in ((0, 0), (3, 3), (9, 4), (-1, 0)):  # a row that is not there is the nearest that is
        found = jax.jit(written_rows)(jnp.asarray(X), jnp.asarray(F), x, f, jnp.int32(at), jnp.bool_(whole))
        for buffer, old, value in zip(found, before, (x, f), strict=True):
            expected = old.copy()
            expected[row] = value if whole else 0.0
            np.testing.assert_array_equal(buffer, expected)


def test_what_is_not_a_number_is_not_written():
    X, F, x, f, *_ = draw(3, 100, 4)
    x[5] = f[7] = np.nan
    found = jax.jit(written_rows)(X, F, x, f, jnp.int32(1), jnp.bool_(False))
    assert all(np.all(np.asarray(buffer[1]) == 0.0) for buffer in found)


def test_rows_are_written_in_place_where_they_are_given_away_and_in_a_copy_where_not():
    X, F, x, f, *_ = (jnp.asarray(part) for part in draw(4, 70_000, 5))
    kept = np.asarray(X).copy()
    written = jax.jit(written_rows)(X, F, x, f, jnp.int32(2), jnp.bool_(True))
    np.testing.assert_array_equal(X, kept)
    place = [buffer.unsafe_buffer_pointer() for buffer in written]
    again = jax.jit(written_rows, donate_argnums=(0, 1))(*written, x, f, jnp.int32(1), jnp.bool_(True))
    assert [buffer.unsafe_buffer_pointer() for buffer in again] == place
    np.testing.assert_array_equal(again[0][1], x)
    np.testing.assert_array_equal(again[0][2], x)


def test_each_lane_writes_its_own_row():
    X, F, x, f, *_ = draw(4, 40_000, 6, (3,))
    at, whole = jnp.array([2, 0, 3], jnp.int32), jnp.array([True, True, False])
    found = jax.jit(jax.vmap(written_rows))(X, F, x, f, at, whole)
    for lane in range(3):
        for buffer, old, value in zip(found, (X, F), (x, f), strict=True):
            expected = old[lane].copy()
            expected[at[lane]] = value[lane] if whole[lane] else 0.0
            np.testing.assert_array_equal(buffer[lane], expected)
