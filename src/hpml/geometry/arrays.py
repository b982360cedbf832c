"""What counts as an array, and the checks that every array from a user passes."""

import functools
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import numpy as np

Array: TypeAlias = jax.Array | np.ndarray


def as_key(key: Any) -> Any:
    """A JAX random key from one, or from a whole number; None stays None."""
    return jax.random.key(int(key)) if isinstance(key, int | np.integer) else key


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
    """The function compiled in float64, from NumPy to NumPy: what is measured should not be float32's rounding.

    Arrays are traced, also those inside modules; everything else is part of the compiled function. A module is taken
    apart once and remembered, so that a run of many small calls does not spend its time on that.
    """

    @functools.partial(jax.jit, static_argnums=0)
    def compiled(frames: tuple["_Frame", ...], arrays: list[list[Any]]) -> Any:
        return function(*(frame.fill(values) for frame, values in zip(frames, arrays, strict=True)))

    def call(*arguments: Any) -> Any:
        with jax.enable_x64(True):
            parts = [_take_apart(argument) for argument in arguments]
            answer = compiled(tuple(frame for frame, _ in parts), [values for _, values in parts])
            return jax.tree.map(np.asarray, answer)

    return functools.wraps(function)(call)


class _Frame:
    """Everything of an argument but its arrays; equal frames share a compiled function."""

    def __init__(self, structure: Any, leaves: tuple[Any, ...]):
        self.structure, self.leaves = structure, leaves
        self._hash = hash((structure, leaves))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, _Frame) and self.structure == other.structure and self.leaves == other.leaves
        )

    def fill(self, arrays: list[Any]) -> Any:
        """The argument with these arrays in place of its own."""
        rest = iter(arrays)
        return jax.tree.unflatten(self.structure, [next(rest) if leaf is _ARRAY else leaf for leaf in self.leaves])


_ARRAY = object()
_ALONE = _Frame(jax.tree.structure(0), (_ARRAY,))
_REMEMBERED = 256  # modules; a suite of experiments has a few dozen games at hand
_known: "OrderedDict[int, tuple[Any, _Frame, list[Any]]]" = OrderedDict()


def _take_apart(argument: Any) -> tuple[_Frame, list[Any]]:
    if isinstance(argument, np.ndarray | jax.Array):
        return _ALONE, [argument]
    found = _known.get(id(argument))
    if found is not None and found[0] is argument:
        return found[1], found[2]
    leaves, structure = jax.tree.flatten(argument)
    arrays = [jax.numpy.asarray(leaf) for leaf in leaves if isinstance(leaf, np.ndarray | jax.Array)]
    frame = _Frame(structure, tuple(_ARRAY if isinstance(leaf, np.ndarray | jax.Array) else leaf for leaf in leaves))
    if isinstance(argument, eqx.Module):  # frozen, so that what is remembered stays true
        _known[id(argument)] = (argument, frame, arrays)
        while len(_known) > _REMEMBERED:
            _known.popitem(last=False)
    return frame, arrays


def kind_of(thing: Any) -> str:
    """What something is, for a message: a class that was not made says so."""
    return f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"
