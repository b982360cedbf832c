"""What the report is about: cells of environment and method with their seeds, ready for statistics and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hpml.report.sweep import courses, gather
from hpml.report.sweep.choose import choose
from hpml.report.sweep.courses import Line, Speed
from hpml.report.sweep.find import Aside, Found, find_runs
from hpml.report.sweep.identity import Run
from hpml.report.sweep.paper import METHODS, paper_order
from hpml.report.sweep.parquet import Table, open_rows, reading_errors

BASELINE = "mappo"
TRIES = 3


@dataclass(frozen=True)
class Method:
    """A method of the report: its `name`, the algorithm under it, and what splits its update, if anything does.

    `paper`: the paper's name of it, where its settings of the projection are the paper's.
    """

    name: str
    algo: str
    projection: str = "none"
    residual: str = "drop"
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
class Study:
    """Everything that tables, figures and files are made of.

    `cells` are compared after the steps that all methods of a scenario have; `later` has a second comparison where some
    went on.
    """

    environments: tuple[str, ...]
    methods: tuple[Method, ...]
    cells: Mapping[tuple[str, str], Cell]
    later: Mapping[tuple[str, str], Cell]
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
    """Read all runs under the folders, whoever writes there meanwhile.

    - `steps`: compare after so many; 0 for the most that all methods of a scenario have.
    - `own`: compare every seed at its own end.
    """
    for left in reversed(range(TRIES)):
        try:
            return _read(folders, steps, own)
        except reading_errors() as error:  # a run that goes on writes its last parts again
            if not left:
                raise ValueError(f"The metrics cannot be read: {str(error).splitlines()[0]}") from error
    raise AssertionError


def _read(folders: Sequence[str], steps: int, own: bool) -> Study:
    found = find_runs(folders)
    rows = open_rows(found.runs, found.places)
    if not len(rows.extents["run"]):
        reasons = "; ".join(f"{item.name}: {item.reason}" for item in (*found.aside, *rows.aside)[:3])
        raise ValueError(f"No row could be read from the runs under {', '.join(folders)} ({reasons}).")
    chosen = choose(found.runs, rows.extents, steps, own)
    if not len(chosen.compared["run"]):
        raise ValueError(f"No seed has {steps:,} steps: the furthest has {max(chosen.tops.values()):,.0f}.")
    lines = courses.lines(found.runs, gather.curves(rows, chosen.drawn))
    cells = _cells(found.runs, rows.extents, chosen.bounds, gather.scores(rows, chosen.compared))
    later = _cells(found.runs, rows.extents, chosen.levels, gather.scores(rows, chosen.later)) if chosen.levels else {}
    speeds = courses.speeds(found.runs, gather.speeds(rows))
    tracks = courses.tracks(found.runs, gather.evaluations(rows, chosen.compared))
    rows.link.close()
    methods = ordered_methods(found.runs)
    there = {name for _, name in (*cells, *lines)}
    return Study(
        environments=tuple(sorted({name for name, _ in (*cells, *lines)}, key=paper_order)),
        methods=tuple(method for method in methods if method.name in there),
        cells=cells,
        later=later,
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
    found = {run.method: _method(run) for run in reversed(runs)}
    kinds = ("none", "graph", "neural", "kernel")

    def order(method: Method) -> tuple:
        place = METHODS.index(method.algo.upper()) if method.algo.upper() in METHODS else len(METHODS)
        kind = kinds.index(method.projection) if method.projection in kinds else len(kinds)
        treated = method.residual != "drop"
        return (method.projected, kind if method.projected else place, treated, method.paper is None, method.name)

    return sorted(found.values(), key=order)


def _method(run: Run) -> Method:
    return Method(run.method, run.algo, run.projection, str(run.settings.get("residual", "drop")), _paper(run))


def _paper(run: Run) -> str | None:
    if not run.projected:
        return run.algo.upper() if run.algo.upper() in METHODS and "[" not in run.method else None
    plain = run.settings.get("residual") == "drop" and run.settings.get("projection_preset") == "paper"
    name = f"HPML-{run.algo.upper()} ({run.projection.capitalize()})"
    return name if plain and name in METHODS else None


def _cells(
    runs: Sequence[Run], extents: Table, bounds: Mapping[str, float], scores: Table
) -> dict[tuple[str, str], Cell]:
    ends = {
        (int(run), int(seed)): float(steps)
        for run, seed, steps in zip(extents["run"], extents["seed"], extents["steps"], strict=True)
    }
    members: dict[tuple[str, str], list[int]] = {}
    for line, number in enumerate(scores["run"]):
        run = runs[int(number)]
        members.setdefault((run.environment, run.method), []).append(line)
    found = {}
    for environment, method in sorted(members, key=lambda key: (paper_order(key[0]), key[1])):
        own = members[environment, method]
        lines = np.array(sorted(own, key=lambda line: scores["seed"][line]))
        values = {name: column[lines] for name, column in scores.items() if name not in ("run", "seed")}
        # Where a run has no evaluations its training return has to do; the page says so.
        values["final"] = np.where(np.isfinite(values["evaluated"]), values["evaluated"], values["trained"])
        found[environment, method] = Cell(
            environment,
            method,
            tuple(int(seed) for seed in scores["seed"][lines]),
            bounds[environment],
            np.array([ends[int(scores["run"][line]), int(scores["seed"][line])] for line in lines]),
            values,
        )
    return found
