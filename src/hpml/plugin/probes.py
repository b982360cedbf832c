"""Samples off the path, taken inside a trainer: what identifies circulation (`rem:failed_loops`).

A history of iterates lies along a path, and along a path some potential explains any field. Probes evaluate the field
at parameters around the present ones, on the same data, and go into the history like other samples.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hpml.geometry.arrays import Array
from hpml.geometry.history import History, as_rows, check_like, empty_row, no_products, products_with, push_products
from hpml.geometry.leaves import Leaves, Tree
from hpml.plugin.when import when

DIRECTIONS = ("plane", "space")


class Probes(NamedTuple):
    """How probes are placed.

    - `number`: how many before each fit.
    - `radius`: how far out, as the root mean square over the entries of the displacement; the unit of a learning rate
      under Adam, whose steps have about that size.
    - `directions`: "plane", on a circle in the plane of the field F and of its change along itself, J F: in many
      dimensions it holds the rotation that training feels, where random directions see little of any. "space", normal
      in all dimensions.
    """

    number: int
    radius: float
    directions: str


def push_probes(
    history: History,
    probes: Probes,
    params: Tree,
    field: Tree,
    field_fn: Callable[[Tree], Tree],
    pack: Callable[[History, Tree, Tree], tuple[Tree, ...]],
    metric: Leaves,
    key: Array,
    asked: Array,
) -> History:
    """The history with `probes.number` more samples around `params`, where `asked`.

    `field` is F at `params` in ascent sign, `field_fn` gives gradients of the loss, and the history holds trees as
    `pack` makes them.
    """
    start_key, draw_key = jax.random.split(key)
    length = probes.radius * sum(leaf.size for leaf in jax.tree.leaves(params)) ** 0.5
    angles = 2.0 * jnp.pi * (jnp.arange(probes.number) + jax.random.uniform(start_key)) / probes.number
    angles = angles.at[0].set(0.0)  # the first goes along F, and its answer gives the plane
    ahead = _unit(field)

    def evaluate(ring: History, number: Array, angle: Array, across: Tree) -> Any:
        if probes.directions == "plane":
            way = jax.tree.map(lambda u, v: jnp.cos(angle) * u + jnp.sin(angle) * v, ahead, across)
        else:
            way = _unit(_normal(jax.random.fold_in(draw_key, number), params))
        point = jax.tree.map(lambda x, v: (x + length * v).astype(x.dtype), params, way)
        gradients = field_fn(point)
        value = jax.tree.map(jnp.negative, gradients)
        row, there, _, latest = pack(ring, point, gradients)
        check_like(history, there, "The result of field_fn")
        row, there = as_rows(ring, row, there)
        answer = jax.tree.map(lambda a, b: a - b, value, field)
        along = _inner(answer, ahead)
        turned = _unit(jax.tree.map(lambda g, u: g - along * u, answer, ahead))
        across = jax.tree.map(lambda new, old: jnp.where(number == 0, new, old), turned, across)
        return row, there, latest, across

    def push(carry: tuple[History, Tree], at: tuple[Array, Array]) -> tuple[tuple[History, Tree], None]:
        ring, across = carry
        point, value, latest, across = when(
            asked, lambda across: evaluate(ring, *at, across), lambda across: (*empty_row(ring), across), across
        )
        products = when(
            asked,
            lambda: products_with(ring, point, value, metric),
            lambda: no_products(len(ring.times), False),
        )
        return (push_products(ring, point, value, products, asked, latest), across), None

    nothing = jax.tree.map(jnp.zeros_like, field)
    (history, _), _ = jax.lax.scan(push, (history, nothing), (jnp.arange(probes.number), angles))
    return history


def _inner(left: Tree, right: Tree) -> Array:
    parts = jax.tree.leaves(jax.tree.map(lambda u, v: jnp.vdot(u, v), left, right))
    return jnp.sum(jnp.stack(parts))


def _unit(tree: Tree) -> Tree:
    size = jnp.sqrt(_inner(tree, tree))
    scale = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
    return jax.tree.map(lambda v: v * scale.astype(v.dtype), tree)


def _normal(key: Array, like: Tree) -> Tree:
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(
        structure, [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    )
