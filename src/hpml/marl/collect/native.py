"""Policies at play in C, where the machine has a compiler: the same function as `player.Player`, several times as fast.

`acting.c` is compiled once for a machine, when a pool is first made, and kept in the user's cache. Without a compiler,
and where `HPML_NATIVE=0`, NumPy plays. The two differ in the last bits, as two machines do.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from hpml.marl.collect.player import Turn
from hpml.marl.env import FORBIDDEN, Spec

SOURCE = Path(__file__).with_name("acting.c")
FLAGS = ("-std=gnu11", "-O3", "-shared", "-fPIC")
PATIENCE = 120  # seconds for the compiler
# The parameters by their names in the actor's tree, in the order of the C file.
NAMES = (
    *(f"sight.{layer}.{part}" for layer in ("vector", "sprites", "picture") for part in ("weight", "bias")),
    *(f"{layer}.{part}" for layer in ("hidden", "head") for part in ("weight", "bias")),
    *(f"memory.{part}" for part in ("weight_ih", "weight_hh", "bias", "bias_n")),
)


@cache
def library() -> str | None:
    """The compiled file, made now if there is none yet; None where it cannot be."""
    if os.environ.get("HPML_NATIVE") == "0" or os.name != "posix":
        return None
    compiler = shlex.split(os.environ.get("CC", "cc"))
    recipe = (SOURCE.read_bytes(), repr((compiler, FLAGS, platform.machine(), _processor())).encode())
    kept = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    made = Path(kept, "hpml", f"acting-{hashlib.sha256(b''.join(recipe)).hexdigest()[:16]}.so")
    if made.exists():
        return str(made)
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=made.parent) as folder:
            fresh = Path(folder, made.name)
            tune = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
            command = [*compiler, *FLAGS, tune, str(SOURCE), "-o", str(fresh), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
            os.replace(fresh, made)
    except (OSError, subprocess.SubprocessError):
        return None
    return str(made)


def _processor() -> str:
    """What the code is compiled for: a home may be shared by machines that are not alike."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}))


class NativePlayer:
    """`Player` in C, for one environment at a time."""

    together = 1

    def __init__(self, spec: Spec, shared: bool, path: str):
        self._spec, self._shared = spec, shared
        self._library = ctypes.CDLL(path)
        self._library.open_player.restype = ctypes.c_void_p
        self._library.load.argtypes = self._library.act.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._library.load.restype = self._library.act.restype = None
        self._act = self._library.act
        self._player: int | None = None

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Play by these parameters, which must stay where they are until others are loaded."""
        if self._player is None:
            self._player = self._open(weights)
        self._library.load(self._player, _places(*(weights.get(name) for name in NAMES)))

    def _open(self, weights: Mapping[str, np.ndarray]) -> int:
        spec = self._spec
        picture = (*spec.image, spec.patch, weights["sight.sprites.bias"].shape[-1]) if spec.image else (0,) * 5
        units = weights["memory.bias_n"].shape[-1] if "memory.bias_n" in weights else 0
        sizes = (spec.vector, weights["hidden.bias"].shape[-1], spec.actions, units, spec.masked, self._shared)
        shape = np.array([spec.agents, *picture, *sizes], np.int64)
        player = self._library.open_player(ctypes.c_void_p(shape.ctypes.data), ctypes.c_float(FORBIDDEN))
        if player is None:
            raise MemoryError("there is not enough memory for the policies at play.")
        return int(player)

    @staticmethod
    def prepare(turn: Turn) -> ctypes.Array[ctypes.c_void_p]:
        """Where everything of this turn lies."""
        seen = turn.seen
        return _places(
            seen.image, seen.vector, seen.mask, turn.memory, turn.draws, turn.actions, turn.logits, turn.then
        )

    def act(self, turn: ctypes.Array[ctypes.c_void_p]) -> None:
        """Play a turn: everybody's action, the logits that it was drawn from, and what is known afterwards."""
        self._act(self._player, turn)


def _places(*arrays: np.ndarray | None) -> ctypes.Array[ctypes.c_void_p]:
    """The arrays' addresses, 0 for one that is not there."""
    if any(array is not None and not array.flags.c_contiguous for array in arrays):
        raise ValueError("policies in C play on arrays without gaps.")
    return (ctypes.c_void_p * len(arrays))(*(None if array is None else array.ctypes.data for array in arrays))
