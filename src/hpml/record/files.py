"""Samples from anybody's files: npz, a pair of npy files, safetensors, Parquet, or a recorder's file.

Every file holds `points` (n, d) and `field` (n, d) in ascent sign, or (2, n, d) for two independent estimates; and, if
there are any, `labels` (n,), `weights` (n,), `blocks` (how many coordinates each agent has, in order), `block_names`
and `names` (the coordinates' names).
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hpml.record.ring import FORMAT
from hpml.record.samples import LIMIT, SampleData, make_samples

SUFFIXES = ".npz, .npy (a pair), .safetensors or .parquet"
KEYS = ("points", "field", "labels", "weights", "blocks", "block_names", "names")


def read_samples(path: Any, field: Any = None, limit: int = LIMIT, seed: int = 0) -> SampleData:
    """The samples of a file, at most `limit` of them, chosen uniformly at random; a `ValueError` says what is wrong.

    An npy pair is `points.npy` and `field.npy`: give both, or the folder that has them, or the first alone where
    replacing "points" by "field" in its name gives the second.
    """
    source = Path(path)
    if field is not None:
        pair = {"points": source, "field": Path(field)}
        return _assemble({name: _npy(part) for name, part in pair.items()}, str(source), limit, seed)
    if not source.exists():
        raise ValueError(f"There is no file {source}.")
    if source.is_dir():
        return _assemble(_folder(source), str(source), limit, seed)
    readers: dict[str, Callable[[Path], dict[str, Any]]] = {
        ".npz": _npz,
        ".npy": _npy_pair,
        ".safetensors": _safetensors,
        ".parquet": _parquet,
        ".pq": _parquet,
    }
    reader = readers.get(source.suffix.lower())
    if reader is None:
        raise ValueError(f"{source} is no {SUFFIXES} file: save points and field as one of these, as in np.savez.")
    return _assemble(reader(source), str(source), limit, seed)


def _assemble(raw: Mapping[str, Any], source: str, limit: int, seed: int) -> SampleData:
    missing = [name for name in ("points", "field") if name not in raw]
    if missing:
        found = ", ".join(sorted(key for key in raw if key != "notes")) or "nothing"
        raise ValueError(
            f"{source} has no {' and no '.join(missing)}; it has {found}. It needs points (n, d) and field (n, d), the "
            "update at each point in ascent sign."
        )
    try:
        return make_samples(
            raw["points"],
            raw["field"],
            labels=raw.get("labels"),
            weights=raw.get("weights"),
            blocks=_blocks(raw),
            names=raw.get("names"),
            source=source,
            notes=tuple(raw.get("notes", ())),
            limit=limit,
            seed=seed,
        )
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def _blocks(raw: Mapping[str, Any]) -> Any:
    blocks, names = raw.get("blocks"), raw.get("block_names")
    if blocks is None or isinstance(blocks, Mapping) or names is None:
        return blocks
    sizes, titles = np.asarray(blocks).reshape(-1), np.asarray(names).reshape(-1)
    if len(sizes) != len(titles):
        raise ValueError(f"block_names has {len(titles)} entries and blocks {len(sizes)}: give each block one name.")
    return {str(title): int(size) for title, size in zip(titles, sizes, strict=True)}


def _npz(path: Path) -> dict[str, Any]:
    def read() -> dict[str, Any]:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] if name in KEYS else None for name in archive.files}

    return _guarded(path, read, "an npz file whose arrays hold numbers, or text of dtype str for labels")


def _npy(path: Path) -> Any:
    if not path.exists():
        raise ValueError(f"There is no file {path}: an npy pair is a file of points and one of the field.")
    return _guarded(path, lambda: np.load(path, mmap_mode="r", allow_pickle=False), "an npy file of numbers")


def _npy_pair(path: Path) -> dict[str, Any]:
    other = path.with_name(path.name.replace("points", "field"))
    if other == path or not other.exists():
        raise ValueError(
            f"{path} is half of a pair: give the field's file too, or name the two points.npy and field.npy."
        )
    return {"points": _npy(path), "field": _npy(other)}


def _folder(path: Path) -> dict[str, Any]:
    found = {name: _npy(path / f"{name}.npy") for name in KEYS if (path / f"{name}.npy").exists()}
    if not found:
        raise ValueError(f"{path} is a folder without points.npy and field.npy: give a {SUFFIXES} file.")
    return found


def _safetensors(path: Path) -> dict[str, Any]:
    from safetensors import safe_open

    def read() -> dict[str, Any]:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            wanted = {*KEYS, "stamps", "count"} if metadata.get("format") == FORMAT else set(KEYS)
            raw = {name: file.get_tensor(name) if name in wanted else None for name in file.keys()}  # noqa: SIM118
        return _recording(raw, metadata) if metadata.get("format") == FORMAT else _with_metadata(raw, metadata)

    return _guarded(path, read, "a safetensors file")


def _recording(raw: dict[str, Any], metadata: dict[str, str]) -> dict[str, Any]:
    """The whole rows of a recorder's ring, in the order of time."""
    stamps = raw["stamps"]
    rows = np.flatnonzero(stamps > 0)
    rows = rows[np.argsort(stamps[rows])]
    if len(rows) < 2:
        raise ValueError(f"the recording has {len(rows)} samples: log at least two.")
    labels = [bytes(label).rstrip(b"\0").decode(errors="ignore") for label in raw["labels"][rows]]
    notes = []
    logged = int(raw["count"][0])
    if logged > len(rows):
        notes.append(f"The recorder kept {len(rows):,} of {logged:,} logged samples ({metadata.get('keep')}).")
    if metadata.get("sketch"):
        size = json.loads(metadata["sketch"])["size"]
        notes.append(
            f"The coordinates are a random sketch of {int(metadata['dimension']):,} numbers in {size:,}: distances and "
            f"angles are right to about {100.0 / np.sqrt(size):.1f} %, single coordinates mean nothing."
        )
    return {
        "points": raw["points"][rows],
        "field": raw["field"][..., rows, :],
        "weights": raw["weights"][rows],
        "labels": [label or "unlabelled" for label in labels] if any(labels) else None,
        "blocks": json.loads(metadata["blocks"]),
        "notes": notes,
    }


def _with_metadata(raw: dict[str, Any], metadata: dict[str, str]) -> dict[str, Any]:
    """Text has no tensor type: labels, names and blocks may be JSON in the metadata; numbers may index such labels."""
    raw = raw | {
        str(name): json.loads(metadata[name]) for name in ("blocks", "block_names", "names") if name in metadata
    }
    if "labels" in metadata:
        labels = json.loads(metadata["labels"])
        numbers = raw.get("labels")
        raw["labels"] = labels if numbers is None else [labels[int(i)] for i in np.asarray(numbers)]
    return raw


def _parquet(path: Path) -> dict[str, Any]:
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ValueError('Parquet files need pyarrow: pip install "hpml[parquet]".') from error

    def read() -> dict[str, Any]:
        table = parquet.read_table(path)
        raw: dict[str, Any] = dict.fromkeys(table.column_names)
        for name in ("points", "field"):
            if name in table.column_names:
                raw[name] = np.array(table[name].to_pylist())
            else:
                columns = _numbered(table.column_names, name)
                if columns:
                    raw[name] = np.stack([table[c].to_numpy() for c in columns], 1)
        second = _numbered(table.column_names, "field2")
        if second and raw.get("field") is not None:
            raw["field"] = np.stack([raw["field"], np.stack([table[c].to_numpy() for c in second], 1)])
        for name in ("labels", "weights"):
            if name in table.column_names:
                raw[name] = np.array(table[name].to_pylist())
        metadata = {k.decode(): v.decode(errors="ignore") for k, v in (table.schema.metadata or {}).items()}
        return _with_metadata(raw, {k: v for k, v in metadata.items() if k in KEYS})

    return _guarded(path, read, "a Parquet file with list columns points and field, or columns points_0, field_0, ...")


def _numbered(columns: list[str], name: str) -> list[str]:
    found = [c for c in columns if c.startswith(f"{name}_") and c[len(name) + 1 :].isdigit()]
    return sorted(found, key=lambda c: int(c[len(name) + 1 :]))


def _guarded(path: Path, read: Callable[[], Any], what: str) -> Any:
    """Whatever a reader throws at a broken file, in one sentence."""
    try:
        return read()
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"{path} could not be read as {what}: {reason.rstrip('.')}.") from error
