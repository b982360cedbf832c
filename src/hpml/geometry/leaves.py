"""A constant metric on a pytree of parameters, applied leaf by leaf (`def:proj`).

Nothing ravels the tree. A diagonal metric is one array of weights a leaf; a low-rank one needs parameters that are one
array. In `Leaves` the arrays are in the tree's leaf order, each flattened.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.geometry.metric import Diagonal, Euclidean, LowRank, Metric
from hpml.native.products import available, tree_sums

Tree = Any


class Leaves(eqx.Module):
    """M = diag(weights) + columns columns^T on the flattened leaves; None where a part is absent."""

    weights: tuple[Float[Array, " _"], ...] | None
    columns: Float[Array, "d r"] | None

    def weight(self, leaf: int, dtype: Any) -> Float[Array, " _"] | None:
        """The diagonal's part for one leaf."""
        return None if self.weights is None else jnp.asarray(self.weights[leaf], dtype)

    def lower(self, tree: Tree) -> Tree:
        """M u."""
        leaves = jax.tree.leaves(tree)
        out = []
        for i, leaf in enumerate(leaves):
            flat, w = leaf.reshape(-1), self.weight(i, leaf.dtype)
            lowered = flat if w is None else w * flat
            if self.columns is not None:
                U = jnp.asarray(self.columns, leaf.dtype)
                lowered = lowered + U @ (flat @ U)
            out.append(lowered.reshape(leaf.shape))
        return jax.tree.unflatten(jax.tree.structure(tree), out)

    def raise_index(self, tree: Tree) -> Tree:
        """M^-1 h, by Woodbury where the metric has columns."""
        leaves = jax.tree.leaves(tree)
        out = []
        for i, leaf in enumerate(leaves):
            flat, w = leaf.reshape(-1), self.weight(i, leaf.dtype)
            raised = flat if w is None else flat / w
            if self.columns is not None:
                U = jnp.asarray(self.columns, leaf.dtype)
                V = U / w[:, None] if w is not None else U
                raised = raised - V @ jnp.linalg.solve(jnp.eye(U.shape[1], dtype=leaf.dtype) + U.T @ V, flat @ V)
            out.append(raised.reshape(leaf.shape))
        return jax.tree.unflatten(jax.tree.structure(tree), out)

    def inner(self, left: Tree, right: Tree) -> Float[Array, ""]:
        """<u, v>_M."""
        parts = jax.tree.map(jnp.vdot, self.lower(_wide(left)), _wide(right))
        return jnp.sum(jnp.stack(jax.tree.leaves(parts)))

    def products(self, left: Tree, right: Tree) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        """|u|_M^2, <u, v>_M and |v|_M^2; on a CPU from one reading, where M = I and everything is float32."""
        given, other = jax.tree.leaves(left), jax.tree.leaves(right)
        plain = self.weights is None and self.columns is None
        if plain and all(leaf.dtype == jnp.float32 for leaf in (*given, *other)) and available():
            return jax.lax.platform_dependent(given, other, cpu=tree_sums, default=self._apart)
        return self._apart(left, right)

    def _apart(self, left: Tree, right: Tree) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
        return self.inner(left, left), self.inner(left, right), self.inner(right, right)


def _wide(tree: Tree) -> Tree:
    """In float32 at least: the squares of 300 and of 1e-4 are beyond float16."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), tree)


def check_shapes(tree: Tree, params: Tree, name: str) -> None:
    """A `ValueError` where a tree has not the parameters' structure and shapes."""
    structure: Any = jax.tree.structure(params)
    if structure != jax.tree.structure(tree):
        raise ValueError(f"{name} must have the tree structure of the parameters.")
    for leaf, beside in zip(jax.tree.leaves(tree), jax.tree.leaves(params), strict=True):
        if jnp.shape(leaf) != jnp.shape(beside):
            raise ValueError(f"{name} has a leaf of shape {jnp.shape(leaf)}, the parameters have {jnp.shape(beside)}.")


def leaf_metric(metric: Any, params: Tree) -> Leaves:
    """The metric that a user gave, for this tree: None, a `Metric`, or positive weights in a like tree."""
    if isinstance(metric, Leaves):
        return metric
    leaves = jax.tree.leaves(params)
    structure: Any = jax.tree.structure(params)
    sizes = [leaf.size for leaf in leaves]
    if metric is None or isinstance(metric, Euclidean):
        return Leaves(None, None)
    if isinstance(metric, Diagonal | LowRank):
        if metric.dimension != sum(sizes):
            raise ValueError(f"The metric is made for dimension {metric.dimension}, the parameters have {sum(sizes)}.")
        cuts = np.cumsum(sizes)[:-1]
        weights = tuple((np if isinstance(metric.diagonal, np.ndarray) else jnp).split(metric.diagonal, cuts))
        if isinstance(metric, Diagonal):
            return Leaves(weights, None)
        if len(leaves) != 1:
            raise ValueError(
                "A low-rank metric needs parameters that are one array: ravel them, or use a diagonal metric."
            )
        return Leaves(weights, metric.columns)
    if isinstance(metric, Metric):
        raise ValueError(
            f"{type(metric).__name__} cannot act on a history: pass hpml.Diagonal, hpml.LowRank or a tree of weights."
        )
    given = jax.tree.leaves(metric)
    if structure != jax.tree.structure(metric) or any(
        jnp.shape(w) != p.shape for w, p in zip(given, leaves, strict=True)
    ):
        raise ValueError("A metric given as a tree needs the parameters' structure and shapes, one weight an entry.")
    if not any(isinstance(w, jax.core.Tracer) for w in given) and not all(np.all(np.asarray(w) > 0) for w in given):
        raise ValueError("A metric must be positive definite: some weight is zero, negative or not a number.")
    return Leaves(tuple(w.reshape(-1) for w in given), None)
