"""Which seeds are compared, and after how many steps.

Methods are compared after the same number of steps in a scenario: the most that every seed compared has. Seeds that
are not finished and have less than half of what the furthest has would pull all others down; they wait.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpml.report.sweep.identity import Run
from hpml.report.sweep.parquet import Table

BEHIND = 0.5
"""A seed under way counts once it has this share of the steps of the furthest."""


@dataclass(frozen=True)
class Chosen:
    """Lines of a run, a seed and a number of steps.

    - `compared`: what the tables hold; `limit` is the number of steps it is compared at.
    - `drawn`: what the curves hold; `limit` is the last number of steps of the scenario's axis.
    - `later`: in scenarios where some went on, a second comparison of those that have at least half of what the
      furthest has, after the most steps that all of these have.
    - `bounds`, `levels`: the steps of each scenario's first and second comparison; `tops` the most that any seed has.
    - `notes`: what was left out or chosen, in sentences.
    """

    compared: Table
    drawn: Table
    later: Table
    bounds: dict[str, float]
    levels: dict[str, float]
    tops: dict[str, float]
    notes: tuple[str, ...]


def choose(runs: Sequence[Run], extents: Table, steps: int = 0, own: bool = False) -> Chosen:
    """The lines of `extents` (run, seed, steps) that count.

    `steps` compares after so many steps whatever there is, and leaves out who has fewer; `own` compares every seed at
    its own end.
    """
    notes: list[str] = []
    single = _longest(runs, extents, notes)
    places: dict[str, list[int]] = {}
    for line in single:
        places.setdefault(runs[int(extents["run"][line])].environment, []).append(line)
    compared: list[tuple[int, float]] = []
    drawn: list[tuple[int, float]] = []
    later: list[tuple[int, float]] = []
    bounds, levels, tops = {}, {}, {}
    for environment, members in places.items():
        reached = {line: float(extents["steps"][line]) for line in members}
        tops[environment] = top = max(reached.values())
        asked = {line: runs[int(extents["run"][line])].asked for line in members}
        if steps:
            kept = [line for line in members if reached[line] >= steps]
        else:
            kept = [line for line in members if reached[line] >= asked[line] or reached[line] >= BEHIND * top]
        late = [line for line in members if line not in set(kept)]
        if late:
            wanted = f"{steps:,} steps" if steps else f"half of the {top:,.0f} steps of the furthest"
            notes.append(f"{environment}: {_who(runs, extents, late)} not compared yet, with less than {wanted}.")
        bound = float(steps) if steps else min((reached[line] for line in kept), default=top)
        bounds[environment] = bound
        if not own and any(reached[line] > bound for line in kept) and not steps:
            notes.append(
                f"{environment}: compared after {bound:,.0f} steps, the most that all have; the furthest has "
                f"{top:,.0f}."
            )
        far = [line for line in kept if reached[line] >= BEHIND * top]
        level = min((reached[line] for line in far), default=bound)
        if level > bound and not own:
            levels[environment] = level
            later += [(line, level) for line in far]
        compared += [(line, reached[line] if own else bound) for line in kept]
        there = {runs[int(extents["run"][line])].method for line in kept}
        drawn += [(line, top) for line in kept]
        drawn += [(line, top) for line in late if runs[int(extents["run"][line])].method not in there]
    return Chosen(
        _table(extents, compared),
        _table(extents, drawn),
        _table(extents, later),
        bounds,
        levels,
        tops,
        tuple(notes),
    )


def _longest(runs: Sequence[Run], extents: Table, notes: list[str]) -> list[int]:
    """One line for each seed of each cell: the longer one where two runs have the same seed."""
    best: dict[tuple[str, str, int], int] = {}
    for line, (number, seed) in enumerate(zip(extents["run"], extents["seed"], strict=True)):
        run = runs[int(number)]
        key = (run.environment, run.method, int(seed))
        other = best.get(key)
        if other is None:
            best[key] = line
            continue
        first = extents["steps"][other] >= extents["steps"][line]
        best[key] = other if first else line
        names = [runs[int(extents["run"][one])].name for one in ((other, line) if first else (line, other))]
        notes.append(
            f"{run.environment}, {run.method}: seed {seed} is in two runs. The longer one counts, {names[0]}, and "
            f"{names[1]} does not."
        )
    return list(best.values())


def _who(runs: Sequence[Run], extents: Table, lines: Sequence[int]) -> str:
    seeds: dict[str, list[int]] = {}
    for line in lines:
        seeds.setdefault(runs[int(extents["run"][line])].method, []).append(int(extents["seed"][line]))
    told = [
        f"{method} (seed{'s' * (len(own) > 1)} {', '.join(map(str, sorted(own)))})" for method, own in seeds.items()
    ]
    return ", ".join(told) + (" is" if len(lines) == 1 else " are")


def _table(extents: Table, chosen: Sequence[tuple[int, float]]) -> Table:
    lines = np.array([line for line, _ in chosen], np.int64)
    limits = np.array([limit for _, limit in chosen], float)
    return {"run": extents["run"][lines], "seed": extents["seed"][lines], "limit": limits}
