"""How each cell went: curves on one grid of steps, evaluations, and what an update costs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpml.report.sweep.gather import CURVES
from hpml.report.sweep.identity import Run
from hpml.report.sweep.parquet import Table


@dataclass(frozen=True)
class Line:
    """A cell's curve: `values` (points, seeds) over `steps` (points,), NaN where a seed has not got so far."""

    steps: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Speed:
    """A cell's cost, medians over its runs: environment steps a second in training, and seconds of an update.

    `together`: seeds that train in one process; costs of runs with other numbers of seeds cannot be compared.
    """

    steps_per_second: float
    collect: float
    learn: float
    measure: float
    together: int
    device: str
    updates: int

    @property
    def few(self) -> bool:
        """Whether the median is over too few updates to compare."""
        return self.updates < 20


def lines(runs: Sequence[Run], curves: Table) -> dict[tuple[str, str], dict[str, Line]]:
    """Each cell's curves on one grid of steps: seeds whose rows lie elsewhere are interpolated, for drawing only."""
    members: dict[tuple[str, str], list[slice]] = {}
    for part in _seeds(curves):
        run = runs[int(curves["run"][part.start])]
        members.setdefault((run.environment, run.method), []).append(part)
    found = {}
    for key, slices in members.items():
        found[key] = {name: line for name in CURVES if (line := _line(curves, slices, name)) is not None}
    return found


def _seeds(table: Table) -> list[slice]:
    """The lines of each run and seed, which stand together."""
    if not len(table["run"]):
        return []
    starts = np.flatnonzero(np.diff(table["run"], prepend=-1) | np.diff(table["seed"], prepend=-1))
    return [slice(int(a), int(b)) for a, b in zip(starts, [*starts[1:], len(table["run"])], strict=True)]


def tracks(runs: Sequence[Run], found: Table) -> dict[tuple[str, str, int], tuple[np.ndarray, Table]]:
    """Each seed's evaluations: their steps, and returns by name."""
    tracks = {}
    for part in _seeds(found):
        run, seed = runs[int(found["run"][part.start])], int(found["seed"][part.start])
        values = {"return": found["evaluated"][part], "collective_return": found["collective"][part]}
        tracks[run.environment, run.method, seed] = (found["steps"][part], values)
    return tracks


def _line(curves: Table, slices: Sequence[slice], name: str) -> Line | None:
    seen = [np.isfinite(curves[name][part]) for part in slices]
    if not any(some.any() for some in seen):
        return None
    buckets = np.concatenate([curves["bucket"][part][some] for part, some in zip(slices, seen, strict=True)])
    steps = np.concatenate([curves["steps"][part][some] for part, some in zip(slices, seen, strict=True)])
    _, place = np.unique(buckets, return_inverse=True)
    grid = np.bincount(place, steps) / np.bincount(place)
    columns = [
        np.interp(grid, curves["steps"][part][some], curves[name][part][some], np.nan, np.nan)
        if some.any()
        else np.full(len(grid), np.nan)
        for part, some in zip(slices, seen, strict=True)
    ]
    return Line(grid, np.stack(columns, -1))


def speeds(runs: Sequence[Run], timed: Table) -> dict[tuple[str, str], Speed]:
    """Each cell's costs, medians over its runs."""
    members: dict[tuple[str, str], list[int]] = {}
    for line, number in enumerate(timed["run"]):
        run = runs[int(number)]
        members.setdefault((run.environment, run.method), []).append(line)
    found = {}
    for key, lines in members.items():
        each = []
        for line in lines:
            run = runs[int(timed["run"][line])]
            parts = [np.nan_to_num(timed[name][line]) for name in ("collect", "learn", "train")]
            rate = run.batch * len(run.seeds) / sum(parts) if sum(parts) > 0 else np.nan
            learn = parts[1] if parts[2] == 0 else np.nan  # one compiled loop plays and learns
            each.append([rate, parts[0] or np.nan, learn, timed["measure"][line], len(run.seeds)])
        with np.errstate(invalid="ignore"):
            rate, collect, learn, measure, together = (float(value) for value in _median(np.array(each)))
        device = runs[int(timed["run"][lines[0]])].versions.get("device", "")
        found[key] = Speed(rate, collect, learn, measure, int(together), device, int(timed["updates"][lines].min()))
    return found


def _median(table: np.ndarray) -> np.ndarray:
    return np.array(
        [np.median(column[np.isfinite(column)]) if np.isfinite(column).any() else np.nan for column in table.T]
    )
