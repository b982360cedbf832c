"""A short image of a long vector in which inner products are nearly kept: a signed fold (a count sketch).

Entry j of d goes with a random sign to place j mod m, and what meets there is added up. The image is linear and
<Su, Sv> has the mean <u, v>; its standard deviation is at most about |u| |v| sqrt(2 / m), 0.8 % at the width below, as
long as no few places hold most of the energy. So m is odd: the columns of matrices, whose widths are even, go to all
places. A combination of n vectors that is found from their images deviates by about sqrt(n / m) of its length: 2 % with
12, 4 % with 64. This runs inside compiled programs; `record/sketch.py` does the like for files, block by block.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, Shaped, UInt16

from hpml.geometry.arrays import Array
from hpml.geometry.leaves import Leaves, Tree
from hpml.native.sketch import available, signed_folds

WIDTH = 32_771  # a prime
WORTH = 4  # times longer than its image must a vector be: making images takes time as well


class Sketched(NamedTuple):
    """A tree of parameters, or rows of such trees, beside its short image in the metric."""

    whole: Tree
    image: Tree


def sketch(tree: Tree, width: int = WIDTH, metric: Leaves | None = None, seed: int = 0) -> tuple[Array, ...]:
    """The image of M^(1/2) times a tree: one vector of this width, and one more where the metric has columns."""
    folded, offset, dtype = None, 0, jnp.result_type(jnp.float32, *jax.tree.leaves(tree))
    columns = []
    for i, leaf in enumerate(jax.tree.leaves(tree)):
        flat = jnp.asarray(leaf, dtype).reshape(-1)
        weight = None if metric is None else metric.weight(i, dtype)
        if metric is not None and metric.columns is not None:
            columns.append(flat @ jnp.asarray(metric.columns, dtype))
        scaled = flat if weight is None else flat * jnp.sqrt(weight)
        part = jnp.roll(_fold(scaled, width, _signs(flat.size, offset, seed)), offset % width)
        folded = part if folded is None else folded + part
        offset += flat.size
    assert folded is not None
    return (folded, *columns)


def to_brief(values: Float[Array, "..."]) -> UInt16[Array, "..."]:
    """Numbers in 16 bits, right to 0.4 %: the bits of a bfloat16, as XLA's CPU backend turns whole arrays of those."""
    return jax.lax.bitcast_convert_type(values.astype(jnp.bfloat16), jnp.uint16)


def from_brief(bits: UInt16[Array, "..."], dtype: Any = jnp.float32) -> Float[Array, "..."]:
    """The numbers again."""
    return jax.lax.bitcast_convert_type(bits, jnp.bfloat16).astype(dtype)


def flat_sketches(
    trees: Sequence[Tree],
    scales: Sequence[float],
    kept: int,
    width: int = WIDTH,
    seed: int = 0,
    before: Float[Array, " d"] | None = None,
) -> tuple[list[Sketched], UInt16[Array, " d"] | None]:
    """The images of like trees times their scales, and each of the first `kept` as one vector; of the others None.

    With another vector `before` the first tree minus that comes as well, and both the difference and the vectors behind
    the first are brief.
    """
    given = [[jnp.asarray(leaf) for leaf in jax.tree.leaves(tree)] for tree in trees]
    if len({tuple(leaf.shape for leaf in leaves) for leaves in given}) > 1:
        raise ValueError("Parameters, gradients and halves need the same tree structure and shapes.")
    dtypes = [
        jnp.result_type(*leaves) if i == 0 or before is None else jnp.uint16 for i, leaves in enumerate(given[:kept])
    ]
    options: dict[str, Any] = {"scales": scales, "width": width, "seed": seed, "kept": dtypes}
    run: Any = functools.partial(_folds_in_xla, **options)
    if available() and all(leaf.dtype == jnp.float32 for leaves in given for leaf in leaves):
        in_c = functools.partial(signed_folds, **options)
        run = functools.partial(jax.lax.platform_dependent, cpu=in_c, default=run)
    images, wholes, step = run(given, before)
    return [Sketched(wholes[i] if i < kept else None, (image,)) for i, image in enumerate(images)], step


def _folds_in_xla(
    trees: Sequence[Tree], before: Any, scales: Sequence[float], kept: Sequence[Any], width: int, seed: int
) -> tuple[Float[Array, "trees width"], Sequence[Shaped[Array, " d"]], UInt16[Array, " d"] | None]:
    flat = [scale * ravel_pytree(tree)[0] for tree, scale in zip(trees, scales, strict=True)]
    wholes = [to_brief(v) if dtype == jnp.uint16 else v for v, dtype in zip(flat, kept, strict=False)]
    step = None if before is None else to_brief(flat[0] - before)
    return jnp.stack([sketch(whole, width, seed=seed)[0] for whole in flat]), wholes, step


def worth_sketching(tree: Tree, width: int | None) -> bool:
    """Whether a tree is so long that an image of this width pays."""
    return width is not None and sum(math.prod(jnp.shape(leaf)) for leaf in jax.tree.leaves(tree)) >= WORTH * width


def _signs(size: int, offset: int, seed: int) -> Array:
    """True where the sign turns: the top bit of a hash of the entry's number (the finaliser of MurmurHash3)."""
    h = jnp.arange(size, dtype=jnp.uint32) + jnp.uint32(offset % 2**32)
    h = h * jnp.uint32(0x9E3779B1) + jnp.uint32(seed % 2**32)
    h = (h ^ (h >> 16)) * jnp.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * jnp.uint32(0xC2B2AE35)
    return h >> 31 == 1


def _fold(v: Float[Array, " d"], width: int, turned: Array) -> Float[Array, " width"]:
    """Signed entries added up by place."""
    rows = -(-v.size // width)
    signed = jnp.pad(jnp.where(turned, -v, v), (0, rows * width - v.size)).reshape(rows, width)
    return signed[0] if rows == 1 else _add_rows(jax.lax.optimization_barrier(signed))


@jax.custom_batching.custom_vmap
def _add_rows(signed: Float[Array, "rows width"]) -> Float[Array, " width"]:
    # A product with ones: XLA's CPU backend takes ten times as long over a sum, which it does not vectorise.
    return jnp.matmul(jnp.ones(len(signed), signed.dtype), signed, precision=jax.lax.Precision.HIGHEST)


@_add_rows.def_vmap
def _(lanes: int, batched: Any, signed: Array) -> tuple[Array, bool]:
    """The same for several seeds, as one product: many small ones are slow."""
    _, rows, width = signed.shape
    ones = jnp.kron(jnp.eye(lanes, dtype=signed.dtype), jnp.ones((1, rows), signed.dtype))
    return jnp.matmul(ones, signed.reshape(lanes * rows, width), precision=jax.lax.Precision.HIGHEST), True
