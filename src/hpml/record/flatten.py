"""Parameters of any kind as one vector: NumPy, JAX and PyTorch arrays, in pytrees, modules or plain sequences."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

MOST_BLOCKS = 64  # a tree with more entries at its top has no agents there


def leaves_of(tree: Any) -> list[np.ndarray]:
    """The tree's arrays in its own order; None is left out, as in JAX."""
    leaves = jax.tree.leaves(_as_tree(tree))
    on_device = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    arrived = iter(jax.device_get(on_device))  # one transfer for all that is on a device
    return [as_numpy(next(arrived) if isinstance(leaf, jax.Array) else leaf) for leaf in leaves]


def blocks_of(tree: Any) -> dict[str, int]:
    """How many numbers each entry at the top of the tree has, by its name: the agents, where the tree is by agent."""
    sizes: dict[str, int] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(_as_tree(tree))[0]:
        name = _name(path[0]) if path else "all"
        sizes[name] = sizes.get(name, 0) + as_numpy(leaf).size
    if len(sizes) > MOST_BLOCKS or isinstance(tree, Iterator) or _is_module(tree):
        return {"all": sum(sizes.values())}
    return sizes


def as_numpy(leaf: Any) -> np.ndarray:
    """One array on the host, or a `ValueError` where the entry is none."""
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu()
        leaf = leaf.float() if leaf.is_floating_point() and leaf.element_size() < 4 else leaf  # NumPy has no bfloat16
        return leaf.numpy()
    try:
        array = np.asarray(leaf)
    except Exception as error:
        raise ValueError(f"Parameters and updates must be arrays of numbers, got {type(leaf).__name__}.") from error
    if array.dtype.kind not in "fiubV":
        raise ValueError(f"Parameters and updates must be arrays of real numbers, got dtype {array.dtype}.")
    return array


def write_flat(leaves: list[np.ndarray], out: np.ndarray) -> None:
    """The leaves one after the other into a vector of their total size, with no copy in between."""
    start = 0
    for leaf in leaves:
        out[start : start + leaf.size] = leaf.reshape(-1)
        start += leaf.size


def flatten(tree: Any) -> np.ndarray:
    """The tree as one vector in float64."""
    leaves = leaves_of(tree)
    out = np.empty(sum(leaf.size for leaf in leaves))
    write_flat(leaves, out)
    return out


def unflatten(tree: Any, vector: Any) -> Any:
    """A tree like the given one, of the same kinds of arrays, that holds the vector; JAX vectors may be traced."""
    leaves, structure = jax.tree.flatten(_as_tree(tree))
    parts, start = [], 0
    for leaf in leaves:
        size = int(np.prod(np.shape(leaf), dtype=int))
        part = vector[start : start + size].reshape(tuple(np.shape(leaf)))
        start += size
        if hasattr(leaf, "new_tensor"):
            part = leaf.new_tensor(np.asarray(part))
        elif jax.numpy.issubdtype(dtype := getattr(leaf, "dtype", np.dtype(float)), np.floating):
            part = part.astype(jax.dtypes.canonicalize_dtype(dtype) if isinstance(part, jax.Array) else dtype)
        parts.append(part)
    return jax.tree.unflatten(structure, parts)


def _as_tree(tree: Any) -> Any:
    if _is_module(tree):
        return list(tree.parameters())
    return list(tree) if isinstance(tree, Iterator) else tree


def _is_module(tree: Any) -> bool:
    return callable(getattr(tree, "parameters", None)) and hasattr(tree, "state_dict")


def _name(key: Any) -> str:
    if isinstance(key, jax.tree_util.SequenceKey):
        return f"part {key.idx + 1}"
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
