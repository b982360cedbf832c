"""One DuckDB view over the Parquet parts of all runs, read where they lie.

Only the columns that the report needs are read, and nothing is copied to a disk. A part that cannot be read is set
aside with the reason. Rows that a run has written twice, because it went on from an older checkpoint, count once.
"""

import contextlib
import glob
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hpml.experiment.sweep.place import Place
from hpml.report.sweep.find import Aside
from hpml.report.sweep.identity import Run

MAGIC = b"PAR1"
MEMORY = "1GB"
COLUMNS = {
    "evaluated": "evaluation/return",
    "collective": "evaluation/collective_return",
    "equality": "evaluation/equality",
    "exploitability": "evaluation/exploitability",
    "switch_rate": "evaluation/switch_rate",
    "switched": "evaluation/switched",
    "trained": "return",
    "nonpot": "nonpot_held_out",
    "nonpot_fitted": "nonpot",
    "residual_energy": "residual_energy",
    "residual_clean": "residual_clean",
    "noise_share": "noise_share",
    "identifiable": "identifiable",
    "collect": "seconds/collect",
    "learn": "seconds/learn",
    "train": "seconds/train",
    "measure": "seconds/measure",
}
"""The report's names for the columns of the metrics."""

Table = dict[str, np.ndarray]
"""Columns by name, NaN where there is nothing."""


@dataclass(frozen=True)
class Rows:
    """The view over all parts, ready for queries: `extents` has a line a run and seed."""

    link: Any
    extents: Table
    aside: tuple[Aside, ...]
    notes: tuple[str, ...]


def open_rows(runs: Sequence[Run], places: Sequence[Place] = ()) -> Rows:
    """Look at every part once, set aside what cannot be read, and see how far each seed of each run is."""
    duckdb = _duckdb()
    spill = str(Path(tempfile.gettempdir()) / f"hpml-report-{os.getpid()}")  # made only where memory runs short
    link = duckdb.connect(config={"memory_limit": MEMORY, "preserve_insertion_order": False, "temp_directory": spill})
    with contextlib.suppress(duckdb.CatalogException):  # its name before DuckDB 1.2 was another
        link.execute("SET parquet_metadata_cache = true")
    remote = {getattr(place, "protocol", ""): getattr(place, "files", None) for place in places}
    for protocol, files in remote.items():
        if files is not None and protocol not in ("file", "local"):
            link.register_filesystem(files)
    parts = [(part, number) for number, run in enumerate(runs) for part in run.parts]
    good, aside = _whole(parts, runs)
    while True:
        try:
            extents = _open(link, good)
            break
        except duckdb.Error:
            bad = _unreadable(link, good, duckdb.Error)
            if not bad:
                raise
            aside += [_torn(runs, number, part, bad[part]) for part, number in good if part in bad]
            good = [(part, number) for part, number in good if part not in bad]
    odd = {int(run) for run in extents["run"][_uneven(extents)]}
    twice = _repeated(link, odd) if odd else set()
    if twice:
        link.execute(f"CREATE OR REPLACE VIEW rows AS {_once(sorted(twice))}")
        extents = _extents(link)
    gaps = {int(run) for run in extents["run"][_uneven(extents)]}
    notes = [
        *_told(runs, twice, "have rows twice, after going on from an older checkpoint: each counts once"),
        *_told(runs, gaps, "have a gap in their rows: what is there counts"),
    ]
    return Rows(link, extents, tuple(aside), tuple(notes))


def reading_errors() -> type[Exception]:
    """What DuckDB raises."""
    return _duckdb().Error


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError as error:
        raise ValueError('The report reads runs with DuckDB: pip install "hpml[report]".') from error
    return duckdb


def _open(link: Any, parts: Sequence[tuple[str, int]]) -> Table:
    """Define the view `rows` over the parts, and see how far each seed is."""
    if not parts:
        empty = ", ".join(f"NULL::DOUBLE AS {name}" for name in COLUMNS)
        link.execute(
            "CREATE OR REPLACE VIEW rows AS SELECT 0 AS run, '' AS part, 0::BIGINT AS update, 0::BIGINT AS steps, "
            f"0::BIGINT AS seed, {empty} WHERE false"
        )
        return _extents(link)
    link.execute("CREATE OR REPLACE TABLE parts (part VARCHAR, run INTEGER)")
    listed = {"part": np.array([part for part, _ in parts], object), "run": np.array([run for _, run in parts])}
    link.register("listed", listed)
    link.execute("INSERT INTO parts SELECT part, run FROM listed")
    link.unregister("listed")
    literal = ", ".join(_quoted(glob.escape(part)) for part, _ in parts)
    source = f"read_parquet([{literal}], union_by_name = true, filename = 'part')"
    there = {line[0] for line in link.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
    if not {"update", "steps", "seed"} <= there:
        raise ValueError("No run has the columns update, steps and seed: these are not the metrics of `hpml train`.")
    picked = [
        f'CASE WHEN isfinite(TRY_CAST("{column}" AS DOUBLE)) THEN TRY_CAST("{column}" AS DOUBLE) END AS {name}'
        if column in there
        else f"NULL::DOUBLE AS {name}"
        for name, column in COLUMNS.items()
    ]
    link.execute(
        f"CREATE OR REPLACE VIEW every AS SELECT run, part, update, steps, seed, {', '.join(picked)} FROM {source} "
        "JOIN parts USING (part) WHERE update IS NOT NULL AND steps IS NOT NULL AND seed IS NOT NULL"
    )
    link.execute("CREATE OR REPLACE VIEW rows AS SELECT * FROM every")
    return _extents(link)


def _extents(link: Any) -> Table:
    return fetch(
        link,
        "SELECT run, seed, count(*) AS rows, min(update) AS first, max(update) AS last, sum(update)::DOUBLE AS total, "
        "max(steps) AS steps, count(evaluated) AS evaluations FROM rows GROUP BY run, seed ORDER BY run, seed",
    )


def _uneven(extents: Table) -> np.ndarray:
    """Where the updates are not simply first, first + 1, ..., last."""
    span = extents["last"] - extents["first"] + 1
    return (extents["rows"] != span) | (2 * extents["total"] != (extents["first"] + extents["last"]) * span)


def _repeated(link: Any, odd: set[int]) -> set[int]:
    """The runs among these that have an update of a seed more than once."""
    found = link.execute(
        f"SELECT DISTINCT run FROM (SELECT run FROM every WHERE run IN ({', '.join(map(str, odd))}) "
        "GROUP BY run, seed HAVING count(*) > count(DISTINCT update))"
    )
    return {int(run) for (run,) in found.fetchall()}


def _told(runs: Sequence[Run], numbers: set[int], words: str) -> list[str]:
    names = [runs[number].name for number in sorted(numbers)]
    shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    return [f"{len(names)} runs {words} ({shown})."] if names else []


def _once(runs: Sequence[int]) -> str:
    those = ", ".join(map(str, runs))
    return (
        f"SELECT * FROM every WHERE run NOT IN ({those}) UNION ALL BY NAME SELECT * FROM every WHERE run IN ({those}) "
        "QUALIFY row_number() OVER (PARTITION BY run, seed, update ORDER BY part DESC) = 1"
    )


def _whole(parts: Sequence[tuple[str, int]], runs: Sequence[Run]) -> tuple[list[tuple[str, int]], list[Aside]]:
    """The parts that begin and end as Parquet does; one that is being written, or was cut short, does not."""
    good, aside = [], []
    for part, number in parts:
        reason = None if "://" in part else _reason(Path(part))
        if reason is None:
            good.append((part, number))
        else:
            aside.append(_torn(runs, number, part, reason))
    return good, aside


def _reason(path: Path) -> str | None:
    try:
        size = path.stat().st_size
        if size < 12:
            return "it is empty" if not size else "it is cut short"
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(-8, 2)
            tail = file.read(8)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if head != MAGIC or tail[4:] != MAGIC or int.from_bytes(tail[:4], "little") > size - 12:
        return "it is cut short or no Parquet file"
    return None


def _unreadable(link: Any, parts: Sequence[tuple[str, int]], error: type[Exception]) -> dict[str, str]:
    """The parts that cannot be read to their end, with the reason; each is tried alone, since one fails the whole."""
    bad = {}
    for part, _ in parts:
        try:
            source = f"read_parquet([{_quoted(glob.escape(part))}])"
            names = {line[0] for line in link.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()}
            absent = [name for name in ("update", "steps", "seed") if name not in names]
            if absent:
                bad[part] = f"it has no column {', '.join(absent)}"
                continue
            link.execute(f"SELECT sum(hash(COLUMNS(*))::DOUBLE) FROM {source}").fetchall()
        except error:
            bad[part] = "it cannot be read to its end" if "://" in part or Path(part).exists() else "it has gone"
    return bad


def _torn(runs: Sequence[Run], number: int, part: str, reason: str) -> Aside:
    return Aside(f"{runs[number].name}/metrics/{part.rpartition('/')[2]}", f"{reason}: its rows are not in the report")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def fetch(link: Any, query: str) -> Table:
    """What a query finds, as columns."""
    found = link.execute(query).fetchnumpy()
    keys = ("run", "seed", "bucket")
    return {
        name: np.ma.filled(column, 0).astype(np.int64)
        if name in keys
        else np.ma.filled(np.ma.asarray(column, dtype=np.float64), np.nan)
        for name, column in found.items()
    }
