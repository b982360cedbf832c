"""Inner products of one sample with every row of a history, from one reading of the rows (`products.c`).

XLA's CPU backend cannot form several sums of one reading: it reads the rows once for each, or writes what it has formed
to memory and reads it again. So this is a call into C from inside the program.
"""

import ctypes
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jaxtyping import Float

from hpml.native.build import built

SOURCE = Path(__file__).with_name("products.c")
TARGET = "hpml_row_products"
KINDS = 6

Array = jax.Array | np.ndarray


@cache
def available() -> bool:
    """Whether programs for the CPU can call it: XLA then knows where it is."""
    try:
        path = built(SOURCE, Path(jax.ffi.include_dir()), jaxlib.__version__)
        if path is None:
            return False
        handler = jax.ffi.pycapsule(ctypes.CDLL(path).row_products)
        jax.ffi.register_ffi_target(TARGET, handler, platform="cpu")
    except Exception:  # an interface of another time: there is another way
        return False
    return True


def row_sums(
    X: Float[Array, "rows d"],
    F: Float[Array, "rows d"],
    x: Float[Array, " d"],
    f: Float[Array, " d"],
    g: Float[Array, " d"] | None,
    w: Float[Array, " d"] | None,
) -> tuple[Float[Array, "6 rows"], Float[Array, ""]]:
    """|x_i - x|^2, <F_i, x - x_i>, <f, x_i - x>, <F_i, f>, <g, x_i - x>, <F_i, g>, and |f|^2, under diag(w).

    float32 in, sums and their terms in float64; zeros for g where there is none. Only where `available`, on the CPU.
    """
    none = jnp.zeros(0, jnp.float32)
    with jax.enable_x64(True):
        out = (jax.ShapeDtypeStruct((KINDS, X.shape[0]), jnp.float64), jax.ShapeDtypeStruct((), jnp.float64))
        call = jax.ffi.ffi_call(TARGET, out, vmap_method="broadcast_all")
        return call(X, F, x, f, none if g is None else g, none if w is None else w)
