"""The first layer over pictures whose squares are places in a book (`pictures.c`).

    out[n] = sum over places c of W_c r[places[n, c]]

with W (hidden, places * features) and r (squares, features). It is linear in W and in r, and so are its derivatives of
any order; the three primitives below are each other's derivatives:

    forwards(W, r)         the layer
    turn(W', r'; W, r)     its change, forwards(W', r) + forwards(W, r'), linear in the pair (W', r') and in (W, r)
    backwards(g; W, r)     slopes of <g, forwards> in W and r, linear in g and in the pair (W, r)
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Float, Int

from hpml.native.xla import callable_from_xla

SOURCE = Path(__file__).with_name("pictures.c")

Array = jax.Array


def available() -> bool:
    """Whether programs for the CPU can call it."""
    return callable_from_xla(SOURCE, "picture_forwards", "picture_backwards")


def picture_sums(
    weight: Float[Array, "hidden inputs"], squares: Float[Array, "squares features"], places: Int[Array, "*batch cells"]
) -> Float[Array, "*batch hidden"]:
    """The layer without its bias, float32. Only where `available`, on the CPU."""
    flat = places.reshape(-1, places.shape[-1]).astype(jnp.int32)
    return forwards_p.bind(weight, squares, flat).reshape(*places.shape[:-1], weight.shape[0])


forwards_p = Primitive("picture_forwards")
turn_p = Primitive("picture_turn")
backwards_p = Primitive("picture_backwards")
backwards_p.multiple_results = True


def _lanes(*operands: Any) -> tuple[int, ...]:
    """All axes but the last two; an operand that the lanes of an axis share has the length 1 there."""
    return np.broadcast_shapes(*(x.shape[:-2] for x in operands))


def _forwards_shape(weight: Any, squares: Any, places: Any) -> Any:
    lanes = _lanes(weight, squares, places)
    return jax.core.ShapedArray((*lanes, places.shape[-2], weight.shape[-2]), weight.dtype)


def _turn_shape(weight: Any, squares: Any, at_weight: Any, at_squares: Any, places: Any) -> Any:
    lanes = _lanes(weight, squares, at_weight, at_squares, places)
    return jax.core.ShapedArray((*lanes, places.shape[-2], weight.shape[-2]), weight.dtype)


def _backwards_shape(slopes: Any, weight: Any, squares: Any, places: Any) -> Any:
    lanes = _lanes(slopes, weight, squares, places)
    return [jax.core.ShapedArray((*lanes, *x.shape[-2:]), x.dtype) for x in (weight, squares)]


def _turn(weight: Array, squares: Array, at_weight: Array, at_squares: Array, places: Array) -> Array:
    return forwards_p.bind(weight, at_squares, places) + forwards_p.bind(at_weight, squares, places)


def _full(tangent: Any, like: Any) -> Array:
    return jnp.zeros(jnp.shape(like), jnp.float32) if type(tangent) is ad.Zero else tangent


def _pair(tangents: Any, like: Any) -> Any:
    """The tangents of W and r, or None where there are none."""
    if all(type(tangent) is ad.Zero for tangent in tangents):
        return None
    return [_full(tangent, x) for tangent, x in zip(tangents, like, strict=True)]


def _slope(slope: Array, of: Any) -> Array | None:
    """The slope of a linear operand: what lanes share is sent to from all of them. None of what is no such operand."""
    if not ad.is_undefined_primal(of):
        return None
    shared = [axis for axis, (n, m) in enumerate(zip(slope.shape, of.aval.shape, strict=True)) if n != m]
    return jnp.sum(slope, shared, keepdims=True) if shared else slope


def _sum(*terms: Any) -> Any:
    there = [term for term in terms if term is not None]
    return jax.tree.map(lambda *parts: sum(parts[1:], parts[0]), *there)


def _forwards_jvp(primals: Any, tangents: Any) -> Any:
    weight, squares, places = primals
    moved = _pair(tangents[:2], primals[:2])  # a rule is asked for only where something moves
    out = forwards_p.bind(*primals)
    return out, turn_p.bind(*moved, weight, squares, places)


def _turn_jvp(primals: Any, tangents: Any) -> Any:
    *pairs, places = primals
    first, second = _pair(tangents[:2], pairs[:2]), _pair(tangents[2:4], pairs[2:])
    out = turn_p.bind(*primals)
    moved = _sum(
        None if first is None else turn_p.bind(*first, *pairs[2:], places),
        None if second is None else turn_p.bind(*pairs[:2], *second, places),
    )
    return out, moved


def _backwards_jvp(primals: Any, tangents: Any) -> Any:
    slopes, weight, squares, places = primals
    pair = _pair(tangents[1:3], (weight, squares))
    out = backwards_p.bind(*primals)
    moved = _sum(
        None if type(tangents[0]) is ad.Zero else backwards_p.bind(tangents[0], weight, squares, places),
        None if pair is None else backwards_p.bind(slopes, *pair, places),
    )
    return out, moved


def _forwards_transpose(slopes: Any, weight: Any, squares: Any, places: Any) -> Any:
    """For a program that is linear in one of the two: the other's slope is not asked for."""
    if type(slopes) is ad.Zero:
        return None, None, None
    pair = [jnp.zeros(x.aval.shape, jnp.float32) if ad.is_undefined_primal(x) else x for x in (weight, squares)]
    out = backwards_p.bind(slopes, *pair, places)
    return *map(_slope, out, (weight, squares)), None


def _turn_transpose(slopes: Any, *operands: Any) -> Any:
    *pairs, places = operands
    first = any(ad.is_undefined_primal(x) for x in pairs[:2])
    linear, known = (pairs[:2], pairs[2:]) if first else (pairs[2:], pairs[:2])
    if type(slopes) is ad.Zero:
        return None, None, None, None, None
    out = backwards_p.bind(slopes, *known, places)
    out = map(_slope, out, linear)
    return (*out, None, None, None) if first else (None, None, *out, None)


def _backwards_transpose(cotangents: Any, slopes: Any, weight: Any, squares: Any, places: Any) -> Any:
    like = [x.aval if ad.is_undefined_primal(x) else x for x in (weight, squares)]
    pair = _pair(cotangents, like)
    if pair is None:
        return None, None, None, None
    if ad.is_undefined_primal(slopes):
        return _slope(turn_p.bind(*pair, weight, squares, places), slopes), None, None, None
    return None, *map(_slope, backwards_p.bind(slopes, *pair, places), (weight, squares)), None


def _batched(primitive: Primitive) -> Any:
    """The same for one more axis of lanes."""

    def rule(operands: Any, dimensions: Any) -> Any:
        moved = zip(operands, dimensions, strict=True)
        out = primitive.bind(*(x[None] if d is None else jnp.moveaxis(x, d, 0) for x, d in moved))
        return out, [0] * len(out) if primitive.multiple_results else 0

    return rule


def _lowered(target: str) -> Any:
    return jax.ffi.ffi_lowering(f"hpml_{target}")


for _primitive, _shape, _jvp, _transpose in (
    (forwards_p, _forwards_shape, _forwards_jvp, _forwards_transpose),
    (turn_p, _turn_shape, _turn_jvp, _turn_transpose),
    (backwards_p, _backwards_shape, _backwards_jvp, _backwards_transpose),
):
    _primitive.def_abstract_eval(_shape)
    _primitive.def_impl(jax.jit(_primitive.bind))
    ad.primitive_jvps[_primitive] = _jvp
    ad.primitive_transposes[_primitive] = _transpose
    batching.primitive_batchers[_primitive] = _batched(_primitive)
mlir.register_lowering(forwards_p, _lowered("picture_forwards"), platform="cpu")
mlir.register_lowering(backwards_p, _lowered("picture_backwards"), platform="cpu")
mlir.register_lowering(turn_p, mlir.lower_fun(_turn, multiple_results=False), platform="cpu")
