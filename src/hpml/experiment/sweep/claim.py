"""A claim on a run in a place that has no locks: numbered files, of which the highest is the holder's.

A claim is taken by creating the next number, and given back by saying so in the file; a file is never taken over, so
nobody can delete what somebody else has just taken. The holder writes its file anew every `RENEW` seconds. Whoever
wants the run watches that file: one that changes is held, one that stays the same for `STALE` seconds is given up. No
two clocks are compared. Of a holder on the same machine it is known at once whether its process is still there.

What is guaranteed: where the store creates a file only if there is none (a file system; S3, Google Storage and Azure
in their drivers of 2025 and later) two can not both get a claim. Elsewhere both could create the same number, so the
file is read again after a pause, and two get it only if one of them hangs between the two for longer than that. A
holder that could not renew for most of `STALE` stops writing by itself. Only one that hangs in the middle of a write
for longer, and then wakes, can still write after another has taken over; it deletes nothing but its own files.
"""

import contextlib
import json
import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

RENEW = 20.0  # seconds from one renewal to the next
STALE = 120.0  # seconds without one after which a claim is given up
PAUSE = 2.0  # seconds before the claim is read again where a store may not create exclusively


class Busy(Exception):
    """Somebody else is working on the run, or has taken it over."""


@runtime_checkable
class Shelf(Protocol):
    """What a claim needs of a store."""

    exclusive: bool

    def read(self, name: str) -> bytes | None:
        """What a file holds; None where there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file that is whole or not there."""

    def create(self, name: str, data: bytes) -> bool:
        """Write a file that is not there; whether it was not."""

    def remove(self, name: str) -> None:
        """Delete a file if it is there."""

    def names(self, folder: str = "") -> list[str]:
        """All files below a folder."""


class Claim:
    """A claim that is held: `renew` it in time, and stop where it is `lost`."""

    def __init__(self, shelf: Shelf, folder: str, number: int, owner: dict[str, Any]) -> None:
        self.shelf, self.folder, self.number, self.owner = shelf, folder, number, owner
        self.renewed = time.monotonic()
        self.count = 0
        self._lost = False
        self._lock = threading.Lock()  # the timer and the run both renew

    @property
    def lost(self) -> bool:
        """Whether another has taken the run, or could have by now."""
        return self._lost or time.monotonic() - self.renewed > 0.75 * STALE

    def renew(self) -> None:
        """Say that the run is still worked on; `Busy` where somebody else has it."""
        with self._lock:
            before = time.monotonic()
            if self.lost or _highest(self.shelf, self.folder) != self.number or not self._mine():
                self._lost = True
                raise Busy("Somebody else has taken over the run.")
            self.count += 1
            self.shelf.write(_file(self.folder, self.number), _text(self.owner, self.count))
            self.renewed = before

    def release(self) -> None:
        """Give the run back."""
        with self._lock:
            if not self._lost and self._mine():
                self._lost = True
                self.shelf.write(_file(self.folder, self.number), _text(self.owner, self.count + 1, released=True))

    def _mine(self) -> bool:
        known = _read(self.shelf, self.folder, self.number)
        return known is not None and known.get("token") == self.owner["token"]


def take(shelf: Shelf, folder: str, sleep: Callable[[float], None] = time.sleep) -> Claim:
    """Claim the run whose claims lie in `folder`, or raise `Busy`.

    Where somebody has it, this takes up to `RENEW` seconds to see, and `STALE` seconds where that one is gone.
    """
    owner = identity()
    while True:
        number = _highest(shelf, folder)
        if number and not _free(shelf, folder, number, sleep):
            raise Busy("Somebody else is working on the run.")
        number += 1
        if not shelf.create(_file(folder, number), _text(owner, 0)):
            continue  # another was faster: look whether it is at work
        if not shelf.exclusive:
            sleep(PAUSE)
        claim = Claim(shelf, folder, number, owner)
        if not claim._mine():
            continue
        if _highest(shelf, folder) != number:  # an old listing: others have come and gone meanwhile
            shelf.remove(_file(folder, number))
            continue
        for name in shelf.names(folder):
            if _number(name) < number:
                shelf.remove(name)
        return claim


@contextmanager
def kept(claim: Claim) -> Iterator[Claim]:
    """Renew the claim by a timer while the block runs, and give it back after it."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(RENEW) and not claim.lost:
            # A store that does not answer now may answer the next time; `lost` counts the seconds.
            with contextlib.suppress(OSError, Busy):
                claim.renew()

    timer = threading.Thread(target=renew, daemon=True, name="claim")
    timer.start()
    try:
        yield claim
    finally:
        ended.set()
        timer.join()
        with contextlib.suppress(OSError):
            claim.release()


def identity() -> dict[str, Any]:
    """Who this process is, so that others of the machine can tell whether it is still there."""
    pid = os.getpid()
    known = {"host": platform.node(), "machine": _machine(), "pid": pid, "started": _started(pid)}
    return known | {"token": uuid.uuid4().hex}


def _free(shelf: Shelf, folder: str, number: int, sleep: Callable[[float], None]) -> bool:
    """Whether the run is given back, or its holder is gone: watched until that is known."""
    first = _read(shelf, folder, number)
    if first is None:
        return True  # removed meanwhile: there is a higher number, and creating the next one finds it
    if first.get("released"):
        return True
    if (alive := _alive(first)) is not None:
        return not alive
    waited, step = 0.0, RENEW / 10
    while waited < STALE:
        sleep(step)
        waited += step
        if _read(shelf, folder, number) != first or _highest(shelf, folder) != number:
            return False
    return True


def _alive(owner: dict[str, Any]) -> bool | None:
    """Whether the holder's process is there; None where it is one of another machine."""
    here = _machine()
    if not here or owner.get("machine") != here:
        return None
    return _started(owner.get("pid", 0)) == owner.get("started")


def _machine() -> str:
    """This boot of this machine, and the space in which process numbers mean something; empty where unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _started(pid: int) -> str:
    """When a process began, in ticks since the boot: a number that is used again has another. Empty where gone."""
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if after[0] in "ZX" else after[19]


def _file(folder: str, number: int) -> str:
    return f"{folder}/{number:08d}.json"


def _number(name: str) -> int:
    stem = name.rpartition("/")[2].removesuffix(".json")
    return int(stem) if stem.isdigit() else 0


def _highest(shelf: Shelf, folder: str) -> int:
    return max(map(_number, shelf.names(folder)), default=0)


def _read(shelf: Shelf, folder: str, number: int) -> dict[str, Any] | None:
    data = shelf.read(_file(folder, number))
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return {}  # half written where a store is not whole or nothing: it will change


def _text(owner: dict[str, Any], count: int, released: bool = False) -> bytes:
    return json.dumps(owner | {"renewals": count, "time": time.time(), "released": released}).encode()
