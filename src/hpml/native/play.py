"""Equal squares of pictures, and policies at play (`play.c`). Worker processes use it: it knows nothing of JAX."""

import ctypes
from functools import cache
from pathlib import Path

from hpml.native.build import built

SOURCE = Path(__file__).with_name("play.c")


def library() -> str | None:
    """The compiled file, or None where there is none."""
    return built(SOURCE)


@cache
def load(path: str) -> ctypes.CDLL:
    """The compiled file, ready to be called."""
    loaded, pointer, number = ctypes.CDLL(path), ctypes.c_void_p, ctypes.c_int64
    loaded.open_player.argtypes, loaded.open_player.restype = (pointer, ctypes.c_float), pointer
    loaded.load.argtypes, loaded.load.restype = (pointer, pointer), None
    loaded.act.argtypes, loaded.act.restype = (pointer, pointer), None
    counts = (pointer, pointer, number, number, pointer, pointer, number, pointer, number, pointer)
    loaded.index_squares.argtypes = counts
    loaded.index_squares.restype = number
    return loaded
