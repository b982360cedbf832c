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
    """The compiled file, made now if there is none yet; None where it cannot be made or loaded."""
    if os.environ.get("HPML_NATIVE") == "0" or os.name != "posix":
        return None
    try:
        compiler = shlex.split(os.environ.get("CC", "cc"))
        made = _place(compiler)
        if not _loads(made):
            _compile(compiler, made)
        return str(made) if _loads(made) else None
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError):
        return None


def _place(compiler: list[str]) -> Path:
    """Where it is kept: a home may be shared by machines, and by systems, that are not alike."""
    surroundings = (compiler, FLAGS, platform.machine(), platform.libc_ver(), _processor())
    recipe = hashlib.sha256(SOURCE.read_bytes() + repr(surroundings).encode()).hexdigest()
    kept = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(kept, "hpml", f"library-{recipe[:16]}.so")


def _loads(made: Path) -> bool:
    """Whether it is there, one's own, and whole."""
    if not made.exists() or made.stat().st_uid != os.getuid():
        return False
    try:
        load(str(made))
    except (OSError, AttributeError):
        return False
    return True


def _compile(compiler: list[str], made: Path) -> None:
    """Make it under another name, on the disk, and then give it its own."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent, ignore_cleanup_errors=True) as folder:
        fresh = Path(folder, made.name)
        tune = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
        command = [*compiler, *FLAGS, tune, str(SOURCE), "-o", str(fresh), "-lm"]
        subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
        with fresh.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(fresh, made)


def _processor() -> str:
    """What the code is compiled for."""
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
    counts = (pointer, pointer, number, number, pointer, pointer, number, pointer, number, pointer)
    loaded.index_squares.argtypes = counts
    loaded.index_squares.restype = number
    return loaded
