"""What is written in C (`library.c`), compiled once for a machine and kept in the user's cache.

Everything in it is also there without it, slower: where there is no compiler, and where `HPML_NATIVE=0`. The two differ
in the last bits, as two machines do.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_name("library.c")
FLAGS = ("-std=gnu11", "-O3", "-shared", "-fPIC")
PATIENCE = 120  # seconds for the compiler


@cache
def library() -> str | None:
    """The compiled file, made now if there is none yet; None where it cannot be."""
    if os.environ.get("HPML_NATIVE") == "0" or os.name != "posix":
        return None
    compiler = shlex.split(os.environ.get("CC", "cc"))
    recipe = (SOURCE.read_bytes(), repr((compiler, FLAGS, platform.machine(), _processor())).encode())
    kept = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    made = Path(kept, "hpml", f"library-{hashlib.sha256(b''.join(recipe)).hexdigest()[:16]}.so")
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


@cache
def load(path: str) -> ctypes.CDLL:
    """The compiled file, ready to be called."""
    loaded, pointer, number = ctypes.CDLL(path), ctypes.c_void_p, ctypes.c_int64
    loaded.open_player.argtypes, loaded.open_player.restype = (pointer, ctypes.c_float), pointer
    loaded.load.argtypes, loaded.load.restype = (pointer, pointer), None
    loaded.act.argtypes, loaded.act.restype = (pointer, pointer), None
    loaded.index_squares.argtypes = (pointer, pointer, number, number, pointer, pointer, number, pointer, number)
    loaded.index_squares.restype = number
    return loaded
