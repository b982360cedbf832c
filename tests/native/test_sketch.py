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


@given(
    sizes=st.lists(st.sampled_from([1, 2, 7, 500, 2047, 2048, 2049, 5000]), min_size=1, max_size=4),
    width=st.sampled_from([257, 2047, 2049, 4099]),  # a task has 2,048 places
    trees=st.integers(1, 4),
    kept=st.integers(0, 4),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=30, deadline=None)
def test_they_are_the_signed_sums_of_numpy(sizes, width, trees, kept, seed):
    rng, kept = np.random.default_rng(seed), min(kept, trees)
    given = [[rng.standard_normal(size).astype(np.float32) for size in sizes] for _ in range(trees)]
    scales = [1.0, -1.0, 0.5, 0.0][:trees]
    images, wholes = signed_folds(given, scales, width, seed, kept)
    flat = [scale * np.concatenate(tree) for tree, scale in zip(given, scales, strict=True)]
    assert len(wholes) == kept
    for whole, vector in zip(wholes, flat, strict=False):
        np.testing.assert_array_equal(whole, vector)
    expected = np.stack([by_numpy(vector.astype(np.float64), width, seed) for vector in flat])
    np.testing.assert_allclose(images, expected, atol=1e-5)


def test_lanes_of_a_vmap_are_as_alone():
    rng = np.random.default_rng(0)
    trees = [[rng.standard_normal((3, *shape)).astype(np.float32) for shape in ((9, 700), (11,))] for _ in "ab"]
    folds = lambda trees: signed_folds(trees, (1.0, -1.0), 1021, 5, 1)  # noqa: E731
    together = jax.jit(jax.vmap(folds))(trees)
    for lane in range(3):
        alone = folds(jax.tree.map(lambda leaf, lane=lane: leaf[lane], trees))
        for one, other in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(one[lane], other)


def test_xla_alone_says_the_same(monkeypatch):
    rng = np.random.default_rng(1)
    trees = [{"a": jnp.asarray(rng.standard_normal((40, 90)), jnp.float32), "b": jnp.arange(3.0)} for _ in range(3)]
    ask = lambda: jax.jit(lambda trees: flat_sketches(trees, (1.0, -1.0, 1.0), 2, 509, seed=4))(trees)  # noqa: E731
    in_c = ask()
    monkeypatch.setattr("hpml.geometry.sketch.available", lambda: False)
    in_xla = ask()
    assert in_c[2].whole is None
    assert jax.tree.structure(in_c) == jax.tree.structure(in_xla)
    for one, other in zip(jax.tree.leaves(in_c), jax.tree.leaves(in_xla), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_allclose(in_c[0].image[0], sketch(trees[0], 509, seed=4)[0], atol=1e-5)
