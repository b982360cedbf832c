"""Functions in C that XLA's programs for the CPU can call."""

import ctypes
from functools import cache
from pathlib import Path

import jax
import jaxlib

from hpml.native.build import built


@cache
def callable_from_xla(source: Path, *functions: str) -> bool:
    """Whether XLA can call these functions of a C file, by their names with `hpml_` before them.

    It cannot where there is no compiler, and where this jaxlib's interface is not the one that they are written for.
    """
    try:
        path = built(source, Path(jax.ffi.include_dir()), jaxlib.__version__)
        if path is None:
            return False
        library = ctypes.CDLL(path)
        for name in functions:
            jax.ffi.register_ffi_target(f"hpml_{name}", jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    except Exception:
        return False
    return True
