"""A place behind fsspec: runs train in a scratch folder and are pulled and pushed.

What is known of a run is pulled first, and after each checkpoint what has changed is pushed, in the order in which
`train` writes it: config and notes, metrics, then the checkpoint, and only then the deletion of what is old. Each file
is whole or not there. So whoever reads, or goes on elsewhere, finds at any moment a checkpoint with all the rows before
it; rows after it are dropped by the run that goes on, as they are on a disk.
"""

import contextlib
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hpml.experiment.sweep.claim import Busy, Claim, kept, take
from hpml.experiment.sweep.place import CLAIMS, Place, Work

# A write to these is one request that is seen whole or not at all; everything else is written aside and renamed.
OBJECTS = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "memory"})
# These create a file only where there is none (memory:// belongs to one process).
EXCLUSIVE = frozenset({"file", "local", "memory", "s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
LEFT = ("events/", "videos/", "lock")  # a run that goes on does not read these
TRIES = 4


class Store(Place):
    """An address that fsspec knows: a bucket, a server, or a file system that has no locks."""

    def __init__(self, address: str) -> None:
        self.address = address.rstrip("/")
        self.protocol = address.partition("://")[0]
        self.files, self.root = _filesystem(self.address)
        self.objects = self.protocol in OBJECTS
        self.exclusive = self.protocol in EXCLUSIVE
        try:
            with _failing():
                self.files.exists(self.root)
        except OSError as error:
            raise ValueError(f"{self.address} cannot be reached ({_reason(error)}).") from error

    def read(self, name: str) -> bytes | None:
        """What a file holds; None where there is none."""
        try:
            with _failing():
                return self.files.cat_file(self._path(name))
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write a file that is whole or not there."""
        with self._whole(name) as path:
            self.files.pipe_file(path, data)

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there; whether it was not."""
        path = self._path(name)
        try:
            with _failing():
                if self.protocol in ("file", "local"):  # whose pipe_file looks first and writes then
                    self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
                    with self.files.open(path, "xb") as file:
                        file.write(data)
                else:
                    self.files.pipe_file(path, data, mode="create")
        except FileExistsError:
            return False
        return True

    def put(self, source: Path, name: str) -> None:
        """Copy a file to the place."""
        with self._whole(name) as path:
            self.files.put_file(str(source), path)

    def get(self, name: str, target: Path) -> None:
        """Copy a file from the place."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with _failing():
            self.files.get_file(self._path(name), str(target))

    def remove(self, name: str) -> None:
        """Delete a file if it is there."""
        with contextlib.suppress(FileNotFoundError), _failing():
            self.files.rm_file(self._path(name))

    def names(self, folder: str = "") -> list[str]:
        """All files below a folder, sorted; not those that are being written."""
        self.files.invalidate_cache()
        try:
            with _failing():
                found = self.files.find(self._path(folder) if folder else self.root)
        except FileNotFoundError:
            return []
        names = (path.removeprefix(self.root).lstrip("/") for path in found)
        return sorted(name for name in names if not name.endswith(".tmp"))

    @contextmanager
    def work(self, name: str) -> Iterator[Work]:
        """Claim a run, or raise `Busy`, and pull it to a scratch folder; it is pushed once more at the end."""
        with kept(take(self, f"{CLAIMS}/{name}")) as claim, tempfile.TemporaryDirectory(prefix="hpml-") as scratch:
            copy = Copy(self, name, Path(scratch) / name.rpartition("/")[2], claim)
            copy.pull()
            try:
                yield Work(copy.folder, copy.log, copy.push)
            except Busy:
                raise
            except BaseException:
                with contextlib.suppress(ValueError, Busy):  # what went wrong is worth more than that
                    copy.push()
                raise
            copy.push()

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    @contextmanager
    def _whole(self, name: str) -> Iterator[str]:
        """A path to write to, so that the file is whole or not there."""
        path = self._path(name)
        if self.objects:
            with _failing():
                yield path
            return
        folder, _, file = path.rpartition("/")
        aside = f"{folder}/.{file}.{uuid.uuid4().hex}.tmp"
        try:
            with _failing():
                self.files.makedirs(folder, exist_ok=True)
                yield aside
                self.files.mv(aside, path)
        except BaseException:
            with contextlib.suppress(Exception):
                self.files.rm_file(aside)
            raise


@dataclass
class Copy:
    """The scratch copy of a run folder, and what of it the place has."""

    store: Store
    name: str
    folder: Path
    claim: Claim
    has: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """What the run's processes said."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def pull(self) -> None:
        """Bring what a run that goes on needs."""
        for name in self.store.names(self.name):
            inner = name.removeprefix(f"{self.name}/")
            if not inner.startswith(LEFT):
                self.store.get(name, self.folder / inner)
                self.has[inner] = _stamp(self.folder / inner)
        with contextlib.suppress(FileNotFoundError):
            self.store.get(f"{self.name}.log", self.log)

    def push(self) -> None:
        """Bring what has changed to the place; `Busy` where the run was taken over meanwhile.

        A store that does not answer is asked again a few times; after that the run ends, and goes on from what was
        pushed before.
        """
        for attempt in range(TRIES):
            try:
                self.claim.renew()
                self._push()
                return
            except OSError as error:
                if attempt + 1 == TRIES:
                    raise ValueError(f"{self.store.address} cannot be written to ({_reason(error)}).") from error
                time.sleep(2.0**attempt)

    def _push(self) -> None:
        here = self._files()
        for inner in sorted(here, key=_order):
            if self.has.get(inner) != here[inner]:
                self.store.put(self.folder / inner, f"{self.name}/{inner}")
                self.has[inner] = here[inner]
        if self.log.exists():
            self.store.put(self.log, f"{self.name}.log")
        for inner in sorted(set(self.has) - set(here), key=_order):
            self.store.remove(f"{self.name}/{inner}")
            del self.has[inner]

    def _files(self) -> dict[str, tuple[int, int]]:
        files = [path for path in self.folder.rglob("*") if path.is_file() and path.suffix != ".tmp"]
        named = {path.relative_to(self.folder).as_posix(): _stamp(path) for path in files}
        return {inner: stamp for inner, stamp in named.items() if inner != "lock"}


def _order(inner: str) -> tuple[int, str]:
    """A folder with a config is a run; the rows come before the checkpoint that counts on them."""
    first = ("config.json", "seeds.json")
    if inner in first:
        return first.index(inner), inner
    return (4 if inner.startswith("checkpoints/") else 3 if inner.startswith("metrics/") else 2), inner


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@contextmanager
def _failing() -> Iterator[None]:
    """Whatever the driver of a store raises is an `OSError`."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(str(error) or type(error).__name__) from error


def _reason(error: OSError) -> str:
    said = (error.strerror or str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    return said[:1].lower() + said[1:]


def _filesystem(address: str) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise ValueError(f'{address} is reached with fsspec: pip install "hpml[cluster]".') from error
    protocol = address.partition("://")[0]
    try:
        # Others write to the place too: a listing that is remembered is a wrong one.
        files, root = fsspec.core.url_to_fs(address, use_listings_cache=False)
    except ImportError as error:
        raise ValueError(f"{protocol}:// addresses need one more package: {error}.") from error
    except ValueError as error:
        known = sorted(fsspec.available_protocols())
        near = get_close_matches(protocol, known, cutoff=0.5)
        hint = f" Did you mean {' or '.join(f'{each}://' for each in near)}?" if near else ""
        raise ValueError(f"{address} is no address that fsspec knows.{hint}") from error
    return files, root.rstrip("/")
