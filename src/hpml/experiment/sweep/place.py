"""Where the results of a sweep lie: a folder that all its machines see, or an address that fsspec knows.

    with open_place(address).work(name) as work:   # or Busy: somebody else has the run
        train(... out=work.folder, and work.push() after each checkpoint ...)

In a folder a run trains where it lies, under a lock. At an address it trains in a scratch folder (`remote`).
"""

import errno
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hpml.experiment.sweep.claim import Busy

try:
    import fcntl
except ImportError:  # only where there are no such locks
    fcntl = None  # type: ignore[assignment]

CLAIMS = "claims"


@dataclass
class Work:
    """A run that is claimed: it trains in `folder`, what it says goes to the file `log`, and `push` after each
    checkpoint brings both to the place."""

    folder: Path
    log: Path
    push: Callable[[], None]


class Place(ABC):
    """Files under names with slashes, and runs that one process at a time works on."""

    address: str

    @abstractmethod
    def read(self, name: str) -> bytes | None:
        """What a file holds; None where there is none."""

    @abstractmethod
    def write(self, name: str, data: bytes) -> None:
        """Write a file that is whole or not there."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Delete a file if it is there."""

    @abstractmethod
    def names(self, folder: str = "") -> list[str]:
        """All files below a folder, sorted; not those that are being written."""

    @abstractmethod
    def work(self, name: str) -> AbstractContextManager[Work]:
        """Claim a run, or raise `Busy`; at the end what it has is pushed and the run is given back."""


def open_place(address: str) -> Place:
    """The place at an address: a folder unless it says `protocol://`."""
    if "://" not in address:
        return Folder(Path(address))
    from hpml.experiment.sweep.remote import Store  # which is a place itself

    return Store(address)


@dataclass(frozen=True)
class Folder(Place):
    """A folder of this machine, or one that several machines share."""

    path: Path

    @property
    def address(self) -> str:  # type: ignore[override]
        """The folder's path."""
        return str(self.path)

    def read(self, name: str) -> bytes | None:
        """What a file holds; None where there is none."""
        try:
            return (self.path / name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file that is whole or not there."""
        from hpml.experiment.checkpoint import sync_folder  # which brings JAX, and those that only look do without

        path = self.path / name
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")  # two may write at once
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)

    def remove(self, name: str) -> None:
        """Delete a file if it is there."""
        (self.path / name).unlink(missing_ok=True)

    def names(self, folder: str = "") -> list[str]:
        """All files below a folder, sorted; not those that are being written."""
        found = []
        for parent, _, files in os.walk(self.path / folder):
            found += [
                (Path(parent) / file).relative_to(self.path).as_posix() for file in files if not file.endswith(".tmp")
            ]
        return sorted(found)

    @contextmanager
    def work(self, name: str) -> Iterator[Work]:
        """Lock a run, or raise `Busy`: the system takes the lock back when the process ends, however it ends."""
        path = self.path / CLAIMS / f"{name}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._lock(handle)
            run = self.path / name
            run.parent.mkdir(parents=True, exist_ok=True)
            yield Work(run, run.with_name(f"{run.name}.log"), lambda: None)
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise Busy("Somebody else is working on the run.") from error
            raise ValueError(
                f"The file system of {self.path} has no locks ({(error.strerror or str(error)).lower()}): give it as "
                f"file://{self.path.absolute()}, where runs are claimed by files."
            ) from error
