"""A checkpoint gives back what was written, bit for bit, or is passed over for the one before."""

import os
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors import safe_open

from hpml.experiment.checkpoint import checkpoints, load_checkpoint, save_checkpoint

arrays = st.sampled_from([np.float32, np.float64, np.int32, np.uint8, np.bool_, np.float16, np.uint64]).flatmap(
    lambda kind: hnp.arrays(kind, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)
keys = st.integers(0, 2**31).map(jax.random.key)
numbers = st.integers(-(2**80), 2**80) | st.floats(allow_nan=False) | st.booleans()
trees = st.recursive(
    arrays | arrays.map(jnp.asarray) | keys | numbers | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3) | st.tuples(inner, inner)
    ),
    max_leaves=8,
)


def bits(leaf):
    """What a leaf is, and every bit of it."""
    if isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return "key", str(jax.random.key_impl(leaf)), np.asarray(jax.random.key_data(leaf)).tobytes()
    if isinstance(leaf, jax.Array | np.ndarray):
        return isinstance(leaf, jax.Array), leaf.shape, leaf.dtype, np.asarray(leaf).tobytes()
    return type(leaf), repr(leaf)


@given(tree=trees)
def test_any_tree_comes_back_bit_for_bit(tmp_path_factory, tree):
    folder = tmp_path_factory.mktemp("tree")
    save_checkpoint(folder, 7, tree)
    found = load_checkpoint(folder, tree)
    assert (found.update, found.passed_over) == (7, ())
    assert jax.tree.structure(found.tree) == jax.tree.structure(tree)
    assert [bits(leaf) for leaf in jax.tree.leaves(found.tree)] == [bits(leaf) for leaf in jax.tree.leaves(tree)]


def test_a_network_and_shapes_alone_are_templates_too(tmp_path):
    network = eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(0))  # its activation is a leaf that is no array
    save_checkpoint(tmp_path, 1, (network, jnp.ones(3, jnp.bfloat16)))
    other = eqx.nn.MLP(2, 3, 4, 1, key=jax.random.key(1))
    found, half = load_checkpoint(tmp_path, (other, jax.ShapeDtypeStruct((3,), jnp.bfloat16))).tree
    assert eqx.tree_equal(found, network)
    assert half.dtype == jnp.bfloat16


def test_other_programs_can_read_the_file(tmp_path):
    path = save_checkpoint(tmp_path, 1, {"w": np.arange(6.0).reshape(2, 3), "n": np.int32(4)})
    with safe_open(str(path), framework="numpy") as file:
        np.testing.assert_array_equal(file.get_tensor("['w']"), np.arange(6.0).reshape(2, 3))
        assert file.get_tensor("['n']") == 4


TREE = {"w": np.arange(12, dtype=np.float32), "key": jax.random.key(3), "count": 5}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A folder with two checkpoints, and the newer one's bytes."""
    folder = tmp_path_factory.mktemp("two")
    save_checkpoint(folder, 1, TREE)
    path = save_checkpoint(folder, 2, TREE | {"count": 6})
    return folder, path, path.read_bytes()


def assert_falls_back(folder):
    found = load_checkpoint(folder, TREE)
    assert (found.update, found.tree["count"]) == (1, 5)
    (sentence,) = found.passed_over
    assert "update 2" in sentence


@given(cut=st.integers(0, 10**6))
def test_a_torn_file_is_passed_over(two, cut):
    folder, path, whole = two
    path.write_bytes(whole[: cut % len(whole)])
    assert_falls_back(folder)


@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found(two, place, bit):
    folder, path, whole = two
    broken = bytearray(whole)
    broken[place % len(whole)] ^= 1 << bit
    path.write_bytes(bytes(broken))
    assert_falls_back(folder)


def test_bytes_after_the_end_are_found(two):
    folder, path, whole = two
    path.write_bytes(whole + b"\0")
    assert_falls_back(folder)


def test_nothing_whole_is_one_sentence_and_nothing_at_all_is_none(tmp_path):
    assert load_checkpoint(tmp_path, TREE) is None
    save_checkpoint(tmp_path, 1, TREE).write_bytes(b"")
    with pytest.raises(ValueError, match=r"No checkpoint in .* is whole"):
        load_checkpoint(tmp_path, TREE)


def test_the_newest_are_kept_and_those_of_an_abandoned_future_go(tmp_path):
    for update in (1, 2, 3, 9):
        save_checkpoint(tmp_path, update, TREE, keep=2)
    assert checkpoints(tmp_path) == [3, 9]
    save_checkpoint(tmp_path, 5, TREE, keep=2)
    assert checkpoints(tmp_path) == [3, 5]


def test_a_template_of_another_shape_names_the_leaf(tmp_path):
    save_checkpoint(tmp_path, 1, TREE)
    with pytest.raises(ValueError, match=r"\['w'\] is float32\[12\] .* float32\[13\]"):
        load_checkpoint(tmp_path, TREE | {"w": np.zeros(13, np.float32)})
    with pytest.raises(ValueError, match=r"has no \['more'\]"):
        load_checkpoint(tmp_path, TREE | {"more": np.zeros(1)})


WRITE = """
import resource, sys
from pathlib import Path
import numpy as np
from hpml.experiment.checkpoint import save_checkpoint
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    save_checkpoint(Path(sys.argv[1]), 2, {"w": np.ones(10_000)})
except ValueError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_last_good_one_whole(tmp_path):
    save_checkpoint(tmp_path, 1, {"w": np.zeros(10_000)})
    arguments = [sys.executable, "-c", WRITE, str(tmp_path), "40000"]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=os.environ)
    assert done.stdout.strip().startswith("The checkpoint of update 2 could not be written, the disk is full")
    assert "update 1 is whole" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["0000000001.safetensors"]
    np.testing.assert_array_equal(load_checkpoint(tmp_path, {"w": np.ones(10_000)}).tree["w"], 0)
