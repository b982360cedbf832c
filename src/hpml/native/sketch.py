"""Short images of long vectors from one reading of their leaves (`sketch.c`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped, UInt16

from hpml.native.xla import callable_from_xla

SOURCE = Path(__file__).with_name("sketch.c")

Array = jax.Array | np.ndarray


def available() -> bool:
    """Whether programs for the CPU can call it."""
    return callable_from_xla(SOURCE, "signed_folds")


def signed_folds(
    trees: Sequence[Sequence[Float[Array, "..."]]],
    before: Float[Array, " d"] | None,
    scales: Sequence[float],
    width: int,
    seed: int,
    kept: Sequence[Any] = (),
) -> tuple[Float[Array, "trees width"], Sequence[Shaped[Array, " d"]], UInt16[Array, " d"] | None]:
    """The images of trees times their scales, given as float32 leaves, and the first few of them in one piece each.

    - `before`: another vector; then the first tree minus it comes as well, brief.
    - `kept`: the dtypes of these pieces, float32, or uint16 for the bits of bfloat16 (`geometry.sketch.to_brief`).

    Up to eight trees, whose leaves have the same sizes. Only where `available`, on the CPU.
    """
    size = sum(leaf.size for leaf in trees[0])
    steps = [] if before is None else [jnp.uint16]
    out = [jax.ShapeDtypeStruct((len(trees), width), jnp.float32)]
    out += [jax.ShapeDtypeStruct((size,), dtype) for dtype in (*kept, *steps)]
    call = jax.ffi.ffi_call("hpml_signed_folds", out, vmap_method="broadcast_all")
    leaves = [leaf for tree in trees for leaf in tree]
    nothing = jnp.zeros(0, jnp.float32)
    given = (jnp.asarray(scales, jnp.float32), jnp.asarray(seed % 2**32, jnp.uint32))
    images, *wholes = call(*given, nothing if before is None else before, *leaves)
    return images, wholes[: len(kept)], wholes[-1] if steps else None
