"""Compile a C file once for a machine, and keep the result in the user's cache.

Everything in C is also there without it, slower: where there is no compiler, and where `HPML_NATIVE=0`. The two differ
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

FLAGS = ("-std=gnu11", "-O3", "-shared", "-fPIC")
PATIENCE = 120  # seconds for the compiler


@cache
def built(source: Path, headers: Path | None = None, version: str = "") -> str | None:
    """The compiled file, made now if there is none yet; None where it cannot be made or loaded.

    `headers` is a folder of files that the source includes, and `version` tells it from others of that name.
    """
    if os.environ.get("HPML_NATIVE") == "0" or os.name != "posix":
        return None
    try:
        compiler = shlex.split(os.environ.get("CC", "cc"))
        made = _place(compiler, source, version)
        if not _loads(made):
            _compile(compiler, source, headers, made)
        return str(made) if _loads(made) else None
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError):
        return None


def _place(compiler: list[str], source: Path, version: str = "") -> Path:
    """Where it is kept: a home may be shared by machines, and by systems, that are not alike."""
    surroundings = (compiler, FLAGS, version, platform.machine(), platform.libc_ver(), _processor())
    texts = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h")))]
    recipe = hashlib.sha256(b"".join(texts) + repr(surroundings).encode()).hexdigest()
    kept = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(kept, "hpml", f"{source.stem}-{recipe[:16]}.so")


def _loads(made: Path) -> bool:
    """Whether it is there, one's own, and whole."""
    if not made.exists() or made.stat().st_uid != os.getuid():
        return False
    try:
        ctypes.CDLL(str(made))
    except OSError:
        return False
    return True


def _compile(compiler: list[str], source: Path, headers: Path | None, made: Path) -> None:
    """Make it under another name, on the disk, and then give it its own."""
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent, ignore_cleanup_errors=True) as folder:
        fresh = Path(folder, made.name)
        tune = "-mcpu=native" if platform.machine() in ("arm64", "aarch64") else "-march=native"
        given = [] if headers is None else ["-I", str(headers)]
        command = [*compiler, *FLAGS, tune, *given, str(source), "-o", str(fresh), "-lm"]
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
