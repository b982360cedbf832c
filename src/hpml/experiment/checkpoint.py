"""Checkpoints that are whole or not there: any tree of arrays in one safetensors file, checked when it is read.

The file's header holds a SHA-256 of everything else in it. It is written under a temporary name, reaches the disk,
and takes its name in one step; older ones go only after that. No pickle: the structure comes from a template.
"""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

FORMAT = "hpml-checkpoint-1"
SUFFIX = ".safetensors"
BLANK = "0" * 64
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
CODES = {
    "BOOL": np.bool_,
    "U8": np.uint8,
    "I8": np.int8,
    "U16": np.uint16,
    "I16": np.int16,
    "F16": np.float16,
    "BF16": jnp.bfloat16,
    "U32": np.uint32,
    "I32": np.int32,
    "F32": np.float32,
    "U64": np.uint64,
    "I64": np.int64,
    "F64": np.float64,
    "C64": np.complex64,
}
CODE_OF = {np.dtype(kind): code for code, kind in CODES.items()}


class Torn(Exception):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True)
class Loaded:
    """A checkpoint that was read: the `tree`, the `update` after which it was taken, and a sentence for each newer one
    that had to be passed over."""

    tree: Any
    update: int
    passed_over: tuple[str, ...] = field(default=())


def save_checkpoint(folder: Path, update: int, tree: Any, keep: int = 2) -> Path:
    """Write the tree after `update` and delete all but the newest `keep`.

    Leaves may be JAX and NumPy arrays, typed PRNG keys and Python numbers; others, such as functions, are left to the
    template. Files of later updates go too: they belong to a future that a resumed run has left.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}.")
    path = folder / f"{update:010d}{SUFFIX}"
    temporary = path.with_suffix(".tmp")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary.open("w+b") as file:
            _write(file, update, tree)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(folder)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ValueError(_full(update, error, checkpoints(folder))) from error
    known = checkpoints(folder)
    good = [number for number in known if number <= update][-keep:]
    for number in known:
        if number not in good:
            (folder / f"{number:010d}{SUFFIX}").unlink(missing_ok=True)
    for left in folder.glob("*.tmp"):  # of a run that was killed while it wrote
        left.unlink(missing_ok=True)
    return path


def load_checkpoint(folder: Path, template: Any) -> Loaded | None:
    """The newest checkpoint that is whole, in the template's structure; None where there is no checkpoint at all.

    The template's leaves may be `jax.ShapeDtypeStruct`, with -1 for an axis of any length. A template of another
    structure is a `ValueError`: the file is then in order, and the program is another one.
    """
    passed_over: list[str] = []
    numbers = checkpoints(folder)
    for number in reversed(numbers):
        path = folder / f"{number:010d}{SUFFIX}"
        try:
            arrays, header = _read(path)
        except Torn as torn:
            passed_over.append(f"The checkpoint of update {number} is damaged ({torn}) and was passed over.")
            continue
        tree = _rebuild(template, arrays, header, path)
        return Loaded(tree, header["update"], tuple(passed_over))
    if numbers:
        raise ValueError(f"No checkpoint in {folder} is whole: {' '.join(passed_over)} Start again with another --out.")
    return None


def checkpoints(folder: Path) -> list[int]:
    """The updates of the checkpoints in a folder, oldest first; damaged ones count."""
    return sorted(int(path.stem) for path in folder.glob(f"*{SUFFIX}") if path.stem.isdigit())


def sync_folder(folder: Path) -> None:
    """Make a rename in the folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(file: Any, update: int, tree: Any) -> None:
    entries: dict[str, Any] = {}
    arrays: dict[str, Any] = {}
    keys: dict[str, str] = {}
    numbers: dict[str, Any] = {}
    end = 0
    for name, leaf in _named(tree):
        if isinstance(leaf, bool | int | float):
            numbers[name] = leaf
            continue
        if _is_key(leaf):
            keys[name] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
            continue
        if np.dtype(leaf.dtype) not in CODE_OF:
            raise ValueError(f"{name} has dtype {leaf.dtype}, which a checkpoint cannot hold.")
        size = leaf.size * leaf.dtype.itemsize
        entries[name] = {
            "dtype": CODE_OF[np.dtype(leaf.dtype)],
            "shape": list(leaf.shape),
            "data_offsets": [end, end + size],
        }
        arrays[name] = leaf
        end += size
    known = {"update": update, "keys": keys, "numbers": numbers}
    metadata = {"format": FORMAT, "sha256": BLANK, "checkpoint": json.dumps(known)}
    text = json.dumps({"__metadata__": metadata, **entries}).encode()
    text += b" " * (-len(text) % 8)  # the format wants the data to start at a multiple of 8
    head = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(head)
    file.write(head)
    for leaf in arrays.values():  # one array on the host at a time
        view = _bytes(np.asarray(leaf))
        digest.update(view)
        file.write(view)
    file.seek(0)
    file.write(head.replace(BLANK.encode(), digest.hexdigest().encode(), 1))


def _read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and what is known about them, or `Torn`."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
            length = int.from_bytes(head, "little")
            if length > path.stat().st_size:
                raise Torn("it is cut short")
            head += file.read(length)
            header = json.loads(head[8:])
            metadata = header.pop("__metadata__")
            told = metadata["sha256"]
            digest = hashlib.sha256(head.replace(told.encode(), BLANK.encode(), 1))
            arrays = {}
            for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"][0]):
                array = np.empty(entry["shape"], CODES[entry["dtype"]])
                view = _bytes(array)
                if file.readinto(view) != len(view):
                    raise Torn("it is cut short")
                digest.update(view)
                arrays[name] = array
            digest.update(file.read())
            if metadata["format"] != FORMAT or digest.hexdigest() != told:
                raise Torn("its checksum does not fit")
            return arrays, json.loads(metadata["checkpoint"])
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, MemoryError, OverflowError) as error:
        raise Torn("it cannot be read") from error  # whatever a flipped bit makes of the header
    except OSError as error:
        raise Torn((error.strerror or str(error)).lower()) from error


def _rebuild(template: Any, arrays: dict[str, np.ndarray], header: dict[str, Any], path: Path) -> Any:
    numbers, keys = header["numbers"], header["keys"]
    leaves = []
    for name, leaf in _named(template):
        if isinstance(leaf, bool | int | float):
            if name not in numbers:
                raise ValueError(f"{path} has no {name}: it was written by another version of the program.")
            leaves.append(numbers[name])
            continue
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            leaves.append(leaf)
            continue
        if name not in arrays:
            raise ValueError(f"{path} has no {name}: it was written by another version of the program.")
        found: Any = arrays[name]
        if _is_key(leaf):
            found = jax.random.wrap_key_data(jnp.asarray(found), impl=keys.get(name))
        if found.dtype != leaf.dtype or not _fits(found.shape, leaf.shape):
            raise ValueError(
                f"{name} is {found.dtype}{list(found.shape)} in {path} and {leaf.dtype}{list(leaf.shape)} in the "
                "program: the two were made with other settings, or by other versions of hpml."
            )
        leaves.append(found if isinstance(leaf, np.ndarray | np.generic) else jnp.asarray(found))
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _fits(found: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(found) == len(wanted) and all(b in (-1, a) for a, b in zip(found, wanted, strict=True))


def _named(tree: Any) -> Iterator[tuple[str, Any]]:
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        yield jax.tree_util.keystr(path) or "tree", leaf


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _bytes(array: np.ndarray) -> memoryview:
    """The array's bytes, with no copy where it is contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _full(update: int, error: OSError, known: list[int]) -> str:
    reason = "the disk is full" if error.errno in FULL else (error.strerror or str(error)).lower()
    good = f"that of update {known[-1]} is whole" if known else "there was none before it"
    return (
        f"The checkpoint of update {update} could not be written, {reason}: make room and go on with --resume ({good})."
    )
