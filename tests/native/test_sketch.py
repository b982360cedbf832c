"""Images in C: signed sums of NumPy by place, whoever asks and however the leaves lie."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml.geometry.sketch import flat_sketches, sketch
from hpml.native.sketch import available, signed_folds

pytestmark = pytest.mark.skipif(not available(), reason="this machine has no C compiler")


def by_numpy(flat, width, seed):
    """Signs from a hash of each entry's number, in Python's integers, and what meets at a place added up."""
    image = np.zeros(width)
    for j, value in enumerate(flat):
        h = (j * 0x9E3779B1 + seed) % 2**32
        h = (h ^ (h >> 16)) * 0x85EBCA6B % 2**32
        h = (h ^ (h >> 13)) * 0xC2B2AE35 % 2**32
        image[j % width] += -value if h >> 31 else value
    return image


def brief(vector):
    """The bits of bfloat16; NumPy rounds to the nearest, of two to the even."""
    return np.asarray(vector, np.float32).astype(jnp.bfloat16).view(np.uint16)


@given(
    sizes=st.lists(st.sampled_from([1, 2, 7, 500, 2047, 2048, 2049, 5000]), min_size=1, max_size=4),
    width=st.sampled_from([257, 2047, 2049, 4099]),  # a task has 2,048 places
    trees=st.integers(1, 4),
    kept=st.integers(0, 4),
    steps=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=30, deadline=None)
def test_they_are_the_signed_sums_of_numpy(sizes, width, trees, kept, steps, seed):
    rng, kept = np.random.default_rng(seed), min(kept, trees)
    given = [[rng.standard_normal(size).astype(np.float32) for size in sizes] for _ in range(trees)]
    scales = [1.0, -1.0, 0.5, 0.0][:trees]
    before = rng.standard_normal(sum(sizes)).astype(np.float32) if steps else None
    dtypes = [jnp.float32, jnp.uint16, jnp.float32, jnp.uint16][:kept]
    images, wholes, step = signed_folds(given, before, scales, width, seed, dtypes)
    flat = [scale * np.concatenate(tree) for tree, scale in zip(given, scales, strict=True)]
    assert len(wholes) == kept
    for whole, vector, dtype in zip(wholes, flat, dtypes, strict=False):
        np.testing.assert_array_equal(whole, vector if dtype == jnp.float32 else brief(vector))
    if steps:
        np.testing.assert_array_equal(step, brief(flat[0] - before))
    expected = np.stack([by_numpy(vector.astype(np.float64), width, seed) for vector in flat])
    np.testing.assert_allclose(images, expected, atol=1e-5)


def test_lanes_of_a_vmap_are_as_alone():
    rng = np.random.default_rng(0)
    trees = [[rng.standard_normal((3, *shape)).astype(np.float32) for shape in ((9, 700), (11,))] for _ in "ab"]
    folds = lambda trees, before: signed_folds(trees, before, (1.0, -1.0), 1021, 5, [jnp.float32])  # noqa: E731
    before = rng.standard_normal((3, 6311)).astype(np.float32)
    together = jax.jit(jax.vmap(folds))(trees, before)
    for lane in range(3):
        alone = folds(*jax.tree.map(lambda leaf, lane=lane: leaf[lane], (trees, before)))
        for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(one[lane], other)


@pytest.mark.parametrize("steps", [False, True])
def test_xla_alone_says_the_same(monkeypatch, steps):
    rng = np.random.default_rng(1)
    trees = [{"a": jnp.asarray(rng.standard_normal((40, 90)), jnp.float32), "b": jnp.arange(3.0)} for _ in range(3)]
    before = jnp.asarray(rng.standard_normal(3603), jnp.float32) if steps else None
    ask = lambda: jax.jit(lambda t, b: flat_sketches(t, (1.0, -1.0, 1.0), 2, 509, 4, b))(trees, before)  # noqa: E731
    in_c = ask()
    monkeypatch.setattr("hpml.geometry.sketch.available", lambda: False)
    in_xla = ask()
    assert in_c[0][2].whole is None
    assert (in_c[1] is None) is not steps
    assert jax.tree.structure(in_c) == jax.tree.structure(in_xla)
    for one, other in zip(jax.tree.leaves(in_c), jax.tree.leaves(in_xla), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_allclose(in_c[0][0].image[0], sketch(trees[0], 509, seed=4)[0], atol=1e-5)
