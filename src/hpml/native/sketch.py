"""Short images of long vectors from one reading of their leaves (`sketch.c`)."""

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hpml.native.xla import callable_from_xla

SOURCE = Path(__file__).with_name("sketch.c")

Array = jax.Array | np.ndarray


def available() -> bool:
    """Whether programs for the CPU can call it."""
    return callable_from_xla(SOURCE, "signed_folds")


def signed_folds(
    trees: Sequence[Sequence[Float[Array, "..."]]], scales: Sequence[float], width: int, seed: int, kept: int
) -> tuple[Float[Array, "trees width"], Sequence[Float[Array, " d"]]]:
    """The images of trees times their scales, given as float32 leaves, and the first few of them in one piece each.

    Up to eight trees, whose leaves have the same sizes. Only where `available`, on the CPU.
    """
    size = sum(leaf.size for leaf in trees[0])
    out = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((len(trees), width), *[(size,)] * kept)]
    call = jax.ffi.ffi_call("hpml_signed_folds", out, vmap_method="broadcast_all")
    leaves = [leaf for tree in trees for leaf in tree]
    images, *wholes = call(jnp.asarray(scales, jnp.float32), jnp.asarray(seed % 2**32, jnp.uint32), *leaves)
    return images, wholes
