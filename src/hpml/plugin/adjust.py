"""The antisymmetric part of the field's Jacobian, applied to the field: one jvp and one vjp (`rem:jac_bridge`)."""

from collections.abc import Callable
from typing import Any

import jax

from hpml.geometry.leaves import Leaves, check_shapes

Tree = Any


def rotate_field(field_fn: Callable[[Tree], Tree], params: Tree, grads: Tree, metric: Leaves) -> tuple[Tree, Tree]:
    """A F and S F, the parts of J F that the antisymmetric and the symmetric part of M J give, in ascent sign.

    `field_fn` returns gradients of a loss, G = -F, and so J F = (-J_G)(-G) = J_G G: the sign drops out. In the inner
    product M the adjoint of J is M^-1 J^T M, hence A = (J - M^-1 J^T M) / 2 and S = (J + M^-1 J^T M) / 2.
    """
    check_shapes(grads, params, "grads")
    along = jax.tree.map(lambda g, x: g.astype(x.dtype), grads, params)
    out, pushed = jax.jvp(field_fn, (params,), (along,))
    check_shapes(out, params, "The result of field_fn")
    _, pull = jax.vjp(field_fn, params)
    (pulled,) = pull(jax.tree.map(lambda h, o: h.astype(o.dtype), metric.lower(along), out))
    adjoint = metric.raise_index(pulled)
    antisymmetric = jax.tree.map(lambda a, b: 0.5 * (a - b), pushed, adjoint)
    symmetric = jax.tree.map(lambda a, b: 0.5 * (a + b), pushed, adjoint)
    return antisymmetric, symmetric
