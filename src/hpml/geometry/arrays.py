"""What counts as an array, and the checks that every array from a user passes."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import numpy as np

Array: TypeAlias = jax.Array | np.ndarray


def as_matrix(values: Any, name: str) -> np.ndarray:
    """A finite float64 array of two axes, or a `ValueError` that says which axis or value is wrong."""
    array = as_finite(values, name)
    if array.ndim != 2:
        raise ValueError(f"{name} must have shape (n, d), got {array.shape}: a row for each sample.")
    return array


def as_finite(values: Any, name: str) -> np.ndarray:
    """The values in float64, or a `ValueError` where they are no numbers, complex, or not finite."""
    try:
        array = np.asarray(values)
    except Exception as error:
        raise ValueError(f"{name} must be an array of numbers, got {type(values).__name__}.") from error
    if array.dtype == object or not (np.issubdtype(array.dtype, np.number) or array.dtype.kind in "Vfb"):
        raise ValueError(f"{name} must be an array of numbers, got dtype {array.dtype}.")
    if np.iscomplexobj(array):
        raise ValueError(f"{name} must be real, got dtype {array.dtype}.")
    array = array.astype(np.float64)
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} has {int(bad.sum())} value(s) that are not finite, the first at index {where}: "
            "remove or mend these samples before the projection."
        )
    return array


def in_double(function: Callable) -> Callable:
    """The function compiled in float64, from NumPy to NumPy: what is measured should not be float32's rounding."""
    compiled = eqx.filter_jit(function)

    def call(*arguments: Any) -> Any:
        with jax.enable_x64(True):
            return jax.tree.map(np.asarray, compiled(*arguments))

    return functools.wraps(function)(call)
