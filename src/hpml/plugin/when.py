"""A conditional that stays one under `jax.vmap`.

A vmapped `jax.lax.cond` whose predicate differs between lanes becomes a select: both branches run, at every step, and
their whole results are copied. Here the costly branch runs where any lane asks for it. Lanes that train together ask
together, so that the others lose nothing.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from hpml.geometry.arrays import Array

Tree = Any


def when(asked: Array | bool, act: Callable[..., Tree], skip: Callable[..., Tree], *operands: Tree) -> Tree:
    """`act(*operands)` where `asked`, else `skip(*operands)`, which should cost nothing; both may close over arrays."""
    if isinstance(asked, bool):
        return act(*operands) if asked else skip(*operands)
    # custom_vmap knows its arguments only: what the branches close over becomes one.
    traced = [jax.make_jaxpr(branch, return_shape=True)(*operands) for branch in (act, skip)]
    closed_over = tuple(tuple(program.consts) for program, _ in traced)

    def branch(i: int, closed_over: Tree, operands: Tree) -> Tree:
        program, like = traced[i]
        out = jax.core.eval_jaxpr(program.jaxpr, closed_over[i], *jax.tree.leaves(operands))
        return jax.tree.unflatten(jax.tree.structure(like), out)

    @jax.custom_batching.custom_vmap
    def run(asked: Array, closed_over: Tree, operands: Tree) -> Tree:
        return jax.lax.cond(
            asked, lambda *args: branch(0, *args), lambda *args: branch(1, *args), closed_over, operands
        )

    @run.def_vmap
    def _(size: int, batched: Any, asked: Array, closed_over: Tree, operands: Tree) -> tuple[Tree, Tree]:
        axes = jax.tree.map(lambda has: 0 if has else None, batched[1:])

        def lanes(i: int, *args: Tree) -> Tree:
            return jax.vmap(lambda *one: branch(i, *one), in_axes=axes, axis_size=size)(*args)

        def some(*args: Tree) -> Tree:
            new = lanes(0, *args)
            if size == 1 or not batched[0]:  # who asks is all there are
                return new
            return jax.tree.map(lambda a, b: _choose(asked, a, b), new, lanes(1, *args))

        out = jax.lax.cond(jnp.any(asked), some, lambda *args: lanes(1, *args), closed_over, operands)
        return out, jax.tree.map(lambda _: True, out)

    return run(asked, closed_over, operands)


def _choose(asked: Array, new: Array, old: Array) -> Array:
    # Not `jnp.where`: it asks for a result type, which turns float64 back into float32.
    return jax.lax.select(jax.lax.broadcast_in_dim(asked, new.shape, (0,)), new, old)
