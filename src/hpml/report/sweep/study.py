"""What the report is about: cells of environment and method with their seeds, ready for statistics and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hpml.report.sweep import gather
from hpml.report.sweep.choose import Chosen, choose
from hpml.report.sweep.find import Aside, Found, Run, find_runs
from hpml.report.sweep.gather import Table
from hpml.report.sweep.paper import METHODS, paper_order

BASELINE = "mappo"


@dataclass(frozen=True)
class Method:
    """A method of the report: its `name`, the algorithm under it, and what splits its update, if anything does.

    `paper`: the paper's name of it, where its settings of the projection are the paper's.
    """

    name: str
    algo: str
    projection: str = "none"
    paper: str | None = None

    @property
    def projected(self) -> bool:
        """Whether its update is split."""
        return self.projection != "none"


@dataclass(frozen=True)
class Cell:
    """One environment and one method: numbers of each seed, compared after `bound` steps; `steps` are its own ends."""

    environment: str
    method: str
    seeds: tuple[int, ...]
    bound: float
    steps: np.ndarray
    values: Table


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


@dataclass(frozen=True)
class Study:
    """Everything that tables, figures and files are made of."""

    environments: tuple[str, ...]
    methods: tuple[Method, ...]
    cells: Mapping[tuple[str, str], Cell]
    lines: Mapping[tuple[str, str], Mapping[str, Line]]
    speeds: Mapping[tuple[str, str], Speed]
    tracks: Mapping[tuple[str, str, int], tuple[np.ndarray, Table]]
    bounds: Mapping[str, float]
    found: Found
    reached: Table
    aside: tuple[Aside, ...] = ()
    notes: tuple[str, ...] = ()
    folders: tuple[str, ...] = field(default=())

    def method(self, name: str) -> Method:
        """A method by its name."""
        return next(method for method in self.methods if method.name == name)

    def table(
        self, column: str, environments: Sequence[str] = (), methods: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """{method: (seeds, environments)} of one column, NaN where a seed is missing."""
        tasks = tuple(environments) or self.environments
        found = {}
        for name in tuple(methods) or [method.name for method in self.methods]:
            columns = [self.values(environment, name, column) for environment in tasks]
            table = np.full((max([1, *map(len, columns)]), len(tasks)), np.nan)
            for place, values in enumerate(columns):
                table[: len(values), place] = values
            found[name] = table
        return found

    def values(self, environment: str, method: str, column: str) -> np.ndarray:
        """One cell's numbers, a seed each; none where there is no such cell."""
        cell = self.cells.get((environment, method))
        return np.empty(0) if cell is None else cell.values[column]

    def baseline(self, method: Method) -> Method | None:
        """What a method is compared with: its own algorithm without a projection, else MAPPO."""
        plain = {each.algo: each for each in reversed(self.methods) if not each.projected}
        found = (plain.get(method.algo) if method.projected else None) or plain.get(BASELINE)
        return None if found is None or found.name == method.name else found


def read_study(folders: Sequence[str], steps: int = 0, own: bool = False) -> Study:
    """Read all runs under the folders."""
    found = find_runs(folders)
    rows = gather.open_rows(found.runs, found.places)
    if not len(rows.extents["run"]):
        reasons = "; ".join(f"{item.name}: {item.reason}" for item in (*found.aside, *rows.aside)[:3])
        raise ValueError(f"No row could be read from the runs under {', '.join(folders)} ({reasons}).")
    chosen = choose(found.runs, rows.extents, steps, own)
    if not len(chosen.compared["run"]):
        raise ValueError(f"No seed has {steps:,} steps: the furthest has {max(chosen.tops.values()):,.0f}.")
    lines = _lines(found.runs, gather.curves(rows, chosen.drawn))
    cells = _cells(found.runs, rows.extents, chosen, gather.scores(rows, chosen.compared))
    speeds = _speeds(found.runs, gather.speeds(rows))
    tracks = _tracks(found.runs, gather.evaluations(rows, chosen.compared))
    rows.link.close()
    methods = ordered_methods(found.runs)
    there = {name for _, name in (*cells, *lines)}
    return Study(
        environments=tuple(sorted({name for name, _ in (*cells, *lines)}, key=paper_order)),
        methods=tuple(method for method in methods if method.name in there),
        cells=cells,
        lines=lines,
        speeds=speeds,
        tracks=tracks,
        bounds=chosen.bounds,
        found=found,
        reached=rows.extents,
        aside=(*found.aside, *rows.aside),
        notes=(*found.notes, *rows.notes, *chosen.notes),
        folders=tuple(map(str, folders)),
    )


def ordered_methods(runs: Sequence[Run]) -> list[Method]:
    """The methods, baselines first in the paper's order, then those with a projection."""
    found = {run.method: Method(run.method, run.algo, run.projection, _paper(run)) for run in reversed(runs)}
    kinds = ("none", "graph", "neural", "kernel")

    def order(method: Method) -> tuple:
        place = METHODS.index(method.algo.upper()) if method.algo.upper() in METHODS else len(METHODS)
        kind = kinds.index(method.projection) if method.projection in kinds else len(kinds)
        return (method.projected, kind if method.projected else place, method.paper is None, place, method.name)

    return sorted(found.values(), key=order)


def _paper(run: Run) -> str | None:
    if not run.projected:
        return run.algo.upper() if run.algo.upper() in METHODS and "[" not in run.method else None
    plain = run.settings.get("residual") == "drop" and run.settings.get("projection_preset") == "paper"
    name = f"HPML-{run.algo.upper()} ({run.projection.capitalize()})"
    return name if plain and name in METHODS else None


def _cells(runs: Sequence[Run], extents: Table, chosen: Chosen, scores: Table) -> dict[tuple[str, str], Cell]:
    ends = {
        (int(run), int(seed)): float(steps)
        for run, seed, steps in zip(extents["run"], extents["seed"], extents["steps"], strict=True)
    }
    members: dict[tuple[str, str], list[int]] = {}
    for line, number in enumerate(scores["run"]):
        run = runs[int(number)]
        members.setdefault((run.environment, run.method), []).append(line)
    found = {}
    for (environment, method), own in members.items():
        lines = np.array(sorted(own, key=lambda line: scores["seed"][line]))
        values = {name: column[lines] for name, column in scores.items() if name not in ("run", "seed")}
        # Where a run has no evaluations its training return has to do; the page says so.
        values["final"] = np.where(np.isfinite(values["evaluated"]), values["evaluated"], values["trained"])
        found[environment, method] = Cell(
            environment,
            method,
            tuple(int(seed) for seed in scores["seed"][lines]),
            chosen.bounds[environment],
            np.array([ends[int(scores["run"][line]), int(scores["seed"][line])] for line in lines]),
            values,
        )
    return found


def _lines(runs: Sequence[Run], curves: Table) -> dict[tuple[str, str], dict[str, Line]]:
    """Each cell's curves on one grid of steps: seeds whose rows lie elsewhere are interpolated, for drawing only."""
    members: dict[tuple[str, str], list[slice]] = {}
    for part in _seeds(curves):
        run = runs[int(curves["run"][part.start])]
        members.setdefault((run.environment, run.method), []).append(part)
    found = {}
    for key, slices in members.items():
        found[key] = {name: line for name in gather.CURVES if (line := _line(curves, slices, name)) is not None}
    return found


def _seeds(table: Table) -> list[slice]:
    """The lines of each run and seed, which stand together."""
    if not len(table["run"]):
        return []
    starts = np.flatnonzero(np.diff(table["run"], prepend=-1) | np.diff(table["seed"], prepend=-1))
    return [slice(int(a), int(b)) for a, b in zip(starts, [*starts[1:], len(table["run"])], strict=True)]


def _tracks(runs: Sequence[Run], found: Table) -> dict[tuple[str, str, int], tuple[np.ndarray, Table]]:
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


def _speeds(runs: Sequence[Run], timed: Table) -> dict[tuple[str, str], Speed]:
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
