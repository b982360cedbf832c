"""Inner products and combinations of many long vectors from one reading of them (`products.c`).

XLA's CPU backend does not form several sums of one reading: it reads once for each, or writes what it has formed to
memory and reads that again. So these are calls into C from inside its programs. Terms and sums of products are float64.
"""

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from hpml.native.xla import callable_from_xla

SOURCE = Path(__file__).with_name("products.c")
KINDS = 6

Array = jax.Array | np.ndarray


def available() -> bool:
    """Whether programs for the CPU can call it."""
    return callable_from_xla(SOURCE, "row_products", "row_combination", "row_writing", "tree_products")


def row_sums(
    X: Float[Array, "rows d"],
    F: Float[Array, "rows d"],
    x: Float[Array, " d"],
    f: Float[Array, " d"],
    g: Float[Array, " d"] | None,
    w: Float[Array, " d"] | None,
) -> tuple[Float[Array, "6 rows"], Float[Array, ""]]:
    """|x_i - x|^2, <F_i, x - x_i>, <f, x_i - x>, <F_i, f>, <g, x_i - x>, <F_i, g>, and |f|^2, under diag(w).

    float32 in, float64 out; zeros for g where there is none. Only where `available`, on the CPU.
    """
    none = jnp.zeros(0, jnp.float32)
    with jax.enable_x64(True):
        out = (jax.ShapeDtypeStruct((KINDS, X.shape[0]), jnp.float64), jax.ShapeDtypeStruct((), jnp.float64))
        call = jax.ffi.ffi_call("hpml_row_products", out, vmap_method="broadcast_all")
        sums, energy = call(X, F, x, f, none if g is None else g, none if w is None else w)
        return sums, energy


def combined_rows(
    X: Shaped[Array, "rows d"],
    F: Shaped[Array, "rows d"],
    x: Float[Array, " d"] | None,
    which: Int[Array, " n"],
    on_points: Float[Array, " n"],
    on_field: Float[Array, " n"],
) -> Float[Array, " d"]:
    """sum_i a_i (x_i - x) + b_i F_i over some rows; of a row with a_i = b_i = 0 nothing is read.

    The rows are float32 or brief (`geometry.sketch.to_brief`), the rest and the result float32. Without an x it is 0.
    Only where `available`, on the CPU.
    """
    call = jax.ffi.ffi_call(
        "hpml_row_combination", jax.ShapeDtypeStruct(X.shape[1:], jnp.float32), vmap_method="broadcast_all"
    )
    at = jnp.zeros(0, jnp.float32) if x is None else x
    return call(X, F, at, which.astype(jnp.int32), on_points, on_field)


def written_rows(
    X: Float[Array, "rows d"],
    F: Float[Array, "rows d"],
    x: Float[Array, " d"],
    f: Float[Array, " d"],
    at: Int[Array, ""],
    whole: Bool[Array, ""],
) -> tuple[Float[Array, "rows d"], Float[Array, "rows d"]]:
    """X and F with x and f in one row, or with zeros there; in place where nobody else needs them. float32.

    XLA's CPU backend writes a row with one thread. Only where `available`, on the CPU.
    """
    out = (jax.ShapeDtypeStruct(X.shape, jnp.float32), jax.ShapeDtypeStruct(F.shape, jnp.float32))
    call = jax.ffi.ffi_call("hpml_row_writing", out, vmap_method="broadcast_all", input_output_aliases={0: 0, 1: 1})
    points, field = call(X, F, x, f, at.astype(jnp.int32), whole.astype(jnp.int32))
    return points, field


def tree_sums(
    left: Sequence[Float[Array, "..."]], right: Sequence[Float[Array, "..."]]
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """|u|^2, <u, v> and |v|^2 of two trees' leaves, float32. Only where `available`, on the CPU."""
    out = jax.ShapeDtypeStruct((), jnp.float32)
    call = jax.ffi.ffi_call("hpml_tree_products", (out, out, out), vmap_method="broadcast_all")
    square, product, other = call(*left, *right)
    return square, product, other
