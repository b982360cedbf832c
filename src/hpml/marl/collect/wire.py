"""What parent and worker say to each other: small messages over pipes, with everything big in shared memory.

A pipe ends when its other side does, so that neither outlives the other unnoticed.
"""

import os
import pickle
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpml.marl.collect.shared import Field

READY, FAILED = 0, 1  # what a worker says
ACT, FOLLOW = 0, 1  # what it is told: play by the policies, or by the actions that are there
_HEAD = struct.Struct("<ii")


@dataclass(frozen=True)
class Slot:
    """One environment of one seed: which episode it is in, and the actions of that episode so far.

    `place` is the seed's among those that are played, and `seed` itself a part of its episodes' seeds.
    """

    index: int
    place: int
    seed: int
    environment: int
    episode: int
    actions: np.ndarray


@dataclass(frozen=True)
class Job:
    """What a worker does: which environment it plays, in which slots, and where the arrays are.

    `family` is the module with the environment's `make`; `show` says whether the first observations are to be shown at
    time 0; a slot rests after its `episodes`; `shared` says that one actor is everybody's; `library` is the file of
    the policies in C, or None where NumPy plays.
    """

    family: str
    name: str
    options: dict[str, Any]
    stream: int
    slots: tuple[Slot, ...]
    fields: tuple[Field, ...]
    show: bool
    episodes: int | None
    shared: bool
    library: str | None


def episode_seed(seed: int, stream: int, environment: int, episode: int) -> int:
    """The engine's seed of an episode: its own, whoever plays it and whatever is played beside it."""
    entropy = np.random.SeedSequence([seed, stream, environment, episode])
    return int(entropy.generate_state(1)[0] % (2**31 - 2)) + 1


def send(descriptor: int, kind: int, number: int) -> None:
    """Two numbers; BrokenPipeError where nobody listens any more."""
    os.write(descriptor, _HEAD.pack(kind, number))


def receive(descriptor: int) -> tuple[int, int]:
    """Two numbers; EOFError where the other side has ended."""
    return _HEAD.unpack(_read(descriptor, _HEAD.size))


def send_object(descriptor: int, value: Any) -> None:
    """Anything that the two processes both know."""
    data = pickle.dumps(value)
    data = struct.pack("<q", len(data)) + data
    while data:
        data = data[os.write(descriptor, data) :]


def receive_object(descriptor: int) -> Any:
    """What `send_object` sent."""
    (size,) = struct.unpack("<q", _read(descriptor, 8))
    return pickle.loads(_read(descriptor, size))


def _read(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    while len(data) < size:
        more = os.read(descriptor, size - len(data))
        if not more:
            raise EOFError
        data += more
    return data
