"""A ring of samples in one file that can be read at every moment, also when its writer was killed.

The file is a plain safetensors file of fixed size: a header, then tensors that are mapped into memory. A row is written
in three steps: its stamp is set to 0, its numbers are copied, its stamp is set to the step. A reader takes the rows
whose stamp is positive, so a row that was being written is left out and all others are whole. What is mapped belongs to
the operating system: a killed process loses nothing, a power cut loses what was not flushed. A row takes room on the
disk when it is first written. To write where there is none would end the process, so it is asked for before.
"""

import contextlib
import errno
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "hpml-recorder-1"
LABEL_BYTES = 64
LARGEST = 4 << 30
KINDS = {"float32": ("F32", np.float32), "float64": ("F64", np.float64)}


@dataclass(frozen=True)
class Ring:
    """The mapped tensors: `stamps` (capacity,), `count` (1,), `points`, `field`, `weights`, `labels`.

    `roomy` are the rows that are known to have room on the disk.
    """

    path: Path
    metadata: dict[str, str]
    tensors: dict[str, np.memmap]
    roomy: set[int] = field(default_factory=set)

    def __getattr__(self, name: str) -> np.memmap:
        try:
            return self.__dict__["tensors"][name]
        except KeyError:
            raise AttributeError(name) from None

    def has_room(self, slot: int) -> bool:
        """Whether the disk has room for this row; if so, it is kept for it."""
        if slot in self.roomy or not hasattr(os, "posix_fallocate"):
            return True
        file = os.open(self.path, os.O_RDWR)
        try:
            for name in ("points", "field", "weights", "labels"):
                tensor = self.tensors[name]
                for part in tensor if tensor.ndim == 3 else [tensor]:
                    row = part[slot : slot + 1]
                    os.posix_fallocate(file, tensor.offset + row.ctypes.data - tensor.ctypes.data, row.nbytes)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return False
            # A file system that cannot keep room: nothing is known.
        finally:
            os.close(file)
        self.roomy.add(slot)
        return True

    def flush(self) -> None:
        """Hand everything to the disk, so that it survives a power cut too."""
        for tensor in self.tensors.values():
            tensor.flush()


def ring_layout(capacity: int, size: int, estimates: int, dtype: str) -> dict[str, tuple[str, Any, tuple[int, ...]]]:
    """Name to safetensors kind, NumPy type and shape, the widest types first, so that all are aligned."""
    kind, numbers = KINDS[dtype]
    field = (capacity, size) if estimates == 1 else (2, capacity, size)
    return {
        "stamps": ("I64", np.int64, (capacity,)),
        "count": ("I64", np.int64, (1,)),
        "points": (kind, numbers, (capacity, size)),
        "field": (kind, numbers, field),
        "weights": ("F32", np.float32, (capacity,)),
        "labels": ("U8", np.uint8, (capacity, LABEL_BYTES)),
    }


def create_ring(path: Path, layout: dict, metadata: dict[str, str]) -> None:
    """A new ring, there as a whole or not at all: it is made under another name and renamed."""
    header: dict[str, Any] = {"__metadata__": {"format": FORMAT, **metadata}}
    end = 0
    for name, (kind, dtype, shape) in layout.items():
        start, end = end, end + int(np.prod(shape)) * np.dtype(dtype).itemsize
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
    if end > LARGEST:
        raise ValueError(
            f"The recording would take {end / 2**30:.1f} GiB: lower capacity, or pass sketch=4096 to keep a random "
            "sketch of each vector."
        )
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(partial, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + bytes(header["count"]["data_offsets"][1]))
            file.truncate(8 + len(text) + end)  # holes take no space until rows are written
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"The recording {path} cannot be made ({reason}): choose another place.") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def open_ring(path: Path, mode: Any = "r+") -> Ring:
    """The mapped tensors of an existing ring, or a `ValueError` where the file is none."""
    header, offset = read_header(path)
    metadata = header.pop("__metadata__", {})
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} exists and is not a recording: choose another path, or pass overwrite=True.")
    numpy_types = {"I64": np.int64, "F32": np.float32, "F64": np.float64, "U8": np.uint8}
    tensors = {
        name: np.memmap(
            path, numpy_types[entry["dtype"]], mode, offset + entry["data_offsets"][0], tuple(entry["shape"])
        )
        for name, entry in header.items()
    }
    return Ring(path, metadata, tensors)


def read_header(path: Path) -> tuple[dict[str, Any], int]:
    """A safetensors header and where the data starts; an empty header where the file has none."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= 100_000_000:
                return {}, 0
            return json.loads(file.read(length)), 8 + length
    except (ValueError, UnicodeDecodeError):
        return {}, 0
