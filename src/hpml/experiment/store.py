"""The run folder: one folder holds all that there is to know about a run.

config.json      everything that was asked for
versions.json    what it ran with, an entry each time it was started
seeds.json       the seeds that train together
metrics/         Parquet, a part a checkpoint
events/          TensorBoard's curves, a folder a seed
checkpoints/     safetensors, the newest few
videos/          films of evaluation episodes
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from hpml.experiment.checkpoint import sync_folder
from hpml.experiment.config import as_used

try:
    import fcntl
except ImportError:  # only where there are no such locks, and no engine either
    fcntl = None  # type: ignore[assignment]

PACKAGES = ("hpml", "jax", "jaxlib", "equinox", "optax", "numpy", "dm-meltingpot", "dmlab2d")
PARTS = ("metrics", "events", "checkpoints", "videos")


class InUse(ValueError):
    """Another process is working on a run."""


@dataclass(frozen=True)
class RunFolder:
    """A folder that belongs to one run, and to one process at a time while `lock` is held."""

    path: Path
    lock: int

    @property
    def metrics(self) -> Path:
        """The Parquet files."""
        return self.path / "metrics"

    @property
    def events(self) -> Path:
        """TensorBoard's files."""
        return self.path / "events"

    @property
    def checkpoints(self) -> Path:
        """The checkpoints."""
        return self.path / "checkpoints"

    @property
    def videos(self) -> Path:
        """The films."""
        return self.path / "videos"

    def close(self) -> None:
        """Let another process have the folder."""
        os.close(self.lock)


def create_run(path: Path, config: dict[str, Any], seeds: list[int]) -> RunFolder:
    """A new folder for a run; a folder that holds anything is refused."""
    if (path / "config.json").exists():
        raise ValueError(f"{path} holds a run already: go on with it by --resume, or choose another --out.")
    if path.is_dir() and (other := sorted({entry.name for entry in path.iterdir()} - {"lock", "config.tmp"})):
        raise ValueError(f"{path} holds other things ({', '.join(other[:3])}): choose another --out.")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if path.is_file() else (error.strerror or str(error)).lower()
        raise ValueError(f"--out {path} cannot be made a folder ({reason}): choose another place.") from error
    return _furnished(path, config, seeds)


def open_run(path: Path, config: dict[str, Any], seeds: list[int], may_change: frozenset[str]) -> RunFolder:
    """The folder of a run that goes on; a config that differs in a field that may not change is refused."""
    stored = as_used(read_config(path))
    if sentence := difference(path, stored, config, may_change):
        raise ValueError(f"{sentence}: leave the option out to go on with the run, or choose another --out.")
    return _furnished(path, stored | {name: config[name] for name in may_change if name in config}, seeds)


def difference(path: Path | str, stored: dict[str, Any], config: dict[str, Any], may_change: frozenset[str]) -> str:
    """What a stored config and the one asked for differ in, where it may not change; no words where in nothing."""
    stored = as_used(stored)
    for name in dict.fromkeys([*stored, *config]):
        if name in may_change or stored.get(name) == config.get(name):
            continue
        was, now = stored.get(name), config.get(name)
        if isinstance(was, dict) and isinstance(now, dict):
            inner = next(key for key in [*was, *now] if was.get(key) != now.get(key))
            name, was, now = inner, was.get(inner), now.get(inner)
        return f"The run in {path} has {_option(name)} {_shown(was)}, and {_shown(now)} was asked for"
    return ""


def read_config(path: Path) -> dict[str, Any]:
    """The stored config of a run."""
    file = path / "config.json"
    if not file.exists():
        parent = path.parent if path.parent.is_dir() else Path()
        runs = [entry.name for entry in parent.iterdir() if (entry / "config.json").exists()]
        near = get_close_matches(path.name, runs)
        hint = f" Did you mean {', '.join(str(path.with_name(name)) for name in near)}?" if near else ""
        raise ValueError(f"There is no run in {path} to go on with.{hint}")
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: it was changed by hand or damaged.") from error


def note_versions(folder: RunFolder, device: str, update: int, more: Mapping[str, str] | None = None) -> str | None:
    """Add what this start runs with to versions.json; one sentence where it is not what the run began with."""
    now = packages() | {"python": platform.python_version(), "platform": platform.platform(), "device": device}
    now |= more or {}
    file = folder.path / "versions.json"
    starts = json.loads(file.read_text())["starts"] if file.exists() else []
    entry = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "update": update, "versions": now}
    write_json(file, {"starts": [*starts, entry]})
    if not starts:
        return None
    changed = changes(starts[0]["versions"], now)
    return f"The run was begun with {changed}: it may not be what it would have been." if changed else None


def packages() -> dict[str, str | None]:
    """The versions of the packages that results depend on, and the mark of the code itself."""
    return {name: _version(name) for name in PACKAGES} | {"source": source_mark()}


def changes(first: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What is not as it was, in words; none where all is, or where it was not noted."""
    changed = [f"{name} {first[name]} -> {now[name]}" for name in now if name in first and first[name] != now[name]]
    return f"other versions ({', '.join(changed)})" if changed else ""


@cache
def source_mark() -> str:
    """The first digits of a checksum of this package's own code: which code made a run, also where no version says."""
    root = Path(__file__).parents[1]
    files = sorted(path.relative_to(root).as_posix() for kind in ("*.py", "*.lua", "*.c") for path in root.rglob(kind))
    found = hashlib.sha256()
    for name in files:
        found.update(name.encode() + b"\0" + (root / name).read_bytes() + b"\0")
    return found.hexdigest()[:12]


def write_json(path: Path, content: Any) -> None:
    """Write a file that is whole or not there."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def _furnished(path: Path, config: dict[str, Any], seeds: list[int]) -> RunFolder:
    folder = RunFolder(path, _lock(path))
    try:
        write_json(path / "config.json", config)  # first: a folder with a config is a run, and can go on
        write_json(path / "seeds.json", {"seeds": seeds})
        for part in PARTS:
            (path / part).mkdir(exist_ok=True)
    except BaseException:
        folder.close()
        raise
    return folder


def _lock(path: Path) -> int:
    """A lock that the system takes back when the process ends, however it ends."""
    handle = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if fcntl is None:
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise InUse(f"Another process is working on the run in {path}: wait for it, or stop it first.") from error
    return handle


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)
