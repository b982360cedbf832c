"""Metrics as Parquet: rows gather in memory and reach the disk in whole parts, one at each checkpoint.

A row is an update of a seed; its columns are `update`, `steps`, `seed` and whatever was measured, in float64. A part
takes its name in one step, so a killed run leaves no half rows; rows after the checkpoint that a run goes on from are
dropped, and the run writes them again.
"""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpml.experiment.checkpoint import sync_folder

KEYS = ("update", "steps", "seed")


class MetricsWriter:
    """Gathers rows and writes them to a folder of Parquet files when it is told to."""

    def __init__(self, folder: Path) -> None:
        parquet_package()  # where it is missing, say so before the run and not at its first checkpoint
        self.folder = folder
        self.rows: list[dict[str, Any]] = []
        folder.mkdir(parents=True, exist_ok=True)

    def log(self, update: int, steps: int, seed: int, values: Mapping[str, float]) -> None:
        """Add a row."""
        row: dict[str, Any] = {"update": update, "steps": steps, "seed": seed}
        # No value is null in the file: NaN would say that there is one.
        self.rows.append(row | {name: float(value) for name, value in values.items() if not math.isnan(value)})

    def flush(self) -> None:
        """Write the gathered rows as one part; on an error they are kept, and nothing half is left."""
        if not self.rows:
            return
        pyarrow, _ = parquet_package()
        names = [*KEYS, *dict.fromkeys(name for row in self.rows for name in row if name not in KEYS)]
        columns = {
            name: pyarrow.array([row.get(name) for row in self.rows], "int64" if name in KEYS else "float64")
            for name in names
        }
        self._write(pyarrow.table(columns), self.rows[-1]["update"])
        self.rows = []

    def forget_after(self, update: int) -> None:
        """Drop every row of a later update, on the disk too."""
        pyarrow, parquet = parquet_package()
        self.rows = [row for row in self.rows if row["update"] <= update]
        for left in self.folder.glob("*.tmp"):
            left.unlink()
        for path in _parts(self.folder):
            if int(path.stem) <= update:
                continue
            table = parquet.read_table(path)
            table = table.filter(pyarrow.compute.less_equal(table["update"], update))
            if len(table):
                self._write(table, pyarrow.compute.max(table["update"]).as_py())
            path.unlink()

    def _write(self, table: Any, last: int) -> None:
        _, parquet = parquet_package()
        path = self.folder / f"{last:010d}.parquet"
        temporary = path.with_suffix(".tmp")
        # No two measurements are alike, but their first bytes are: half of the size.
        split = [name for name in table.column_names if name not in KEYS]
        try:
            with temporary.open("wb") as file:
                parquet.write_table(table, file, compression="zstd", use_dictionary=False, use_byte_stream_split=split)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(self.folder)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            reason = (error.strerror or str(error)).lower()
            raise ValueError(
                f"The metrics could not be written ({reason}): make room and go on with --resume."
            ) from error


def read_metrics(folder: Path) -> Any:
    """All rows of a run as one `pyarrow.Table`, sorted by update and seed; null where a row has no such column.

    `folder` is the run's or its `metrics` folder.
    """
    pyarrow, parquet = parquet_package()
    place = folder / "metrics" if (folder / "metrics").is_dir() else folder
    parts = [parquet.read_table(path) for path in _parts(place)]
    if not parts:
        raise ValueError(f"{folder} has no metrics yet: they are written at each checkpoint.")
    table = pyarrow.concat_tables(parts, promote_options="default")
    table = table.select([*KEYS, *sorted(set(table.column_names) - set(KEYS))])
    return table.sort_by([("update", "ascending"), ("seed", "ascending")])


def columns(table: Any, names: Sequence[str] | None = None) -> dict[str, Any]:
    """The table's columns as NumPy arrays, NaN where there is no value."""
    return {name: table[name].to_numpy() for name in (names or table.column_names)}


def _parts(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.parquet") if path.stem.isdigit())


def parquet_package() -> tuple[Any, Any]:
    """pyarrow and its part for Parquet, or one sentence where it is missing."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ValueError('Training keeps its metrics with pyarrow: pip install "hpml[train]".') from error
    return pyarrow, parquet
