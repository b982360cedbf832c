"""`--tune`: the same number of trials for every method, on seeds that are never reported.

A trial is a run like any other, at tuning/runs/<environment>/<method>__<option>=<value>.../. For each environment and
method the trial with the best final return is chosen: the mean over the validation seeds of the mean of the last
quarter of the evaluations. All that was tried is kept in tuning/tried.csv.
"""

import csv
import dataclasses
import io
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hpml.experiment.metrics import columns, read_metrics
from hpml.experiment.sweep.driver import Swept
from hpml.experiment.sweep.jobs import Cell, Look, cell
from hpml.experiment.sweep.place import Place
from hpml.experiment.sweep.suite import Method, Suite

FOLDER = "tuning/runs"
TRIED = "tuning/tried.csv"
LAST = ("mean", "chosen", "reason")  # its last columns


@dataclass(frozen=True)
class Trial:
    """A setting that was tried: `options` of a method in an environment, the final return of each seed in `returns`."""

    environment: str
    method: str
    options: Mapping[str, Any]
    steps: int
    returns: Mapping[int, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def score(self) -> float:
        """The mean over the seeds; NaN where the trial has not been to its end."""
        return math.nan if self.reason or not self.returns else float(np.mean(list(self.returns.values())))


@dataclass(frozen=True)
class Tuned:
    """What was chosen for each environment and method, what there is to say, and the signal that stopped it."""

    chosen: Mapping[tuple[str, str], Mapping[str, Any]]
    said: tuple[str, ...] = ()
    stopped: int | None = None


def tune(suite: Suite, asked: Sequence[Cell], place: Place, swept: Callable[[Sequence[Cell], Look], Swept]) -> Tuned:
    """Try every method's grid in every environment that is asked for, and choose; `swept` runs cells at a look."""
    planned = trials(suite, asked, Look(place))
    ended = swept([each for _, found in planned for each in found], Look(place, FOLDER))
    if ended.stopped is not None:
        return Tuned({}, ("Stopped while tuning; the same command goes on.",), ended.stopped)
    reasons = {_key(line.job.record): line.reason for line in ended.failed}
    tried = []
    for trial, found in planned:
        key = (trial.environment, found[0].method.key)
        names = [line.job.name for line in ended.lines if _key(line.job.record) == key]
        seeds = [seed for each in found for seed in each.config.all_seeds]
        returns = {} if key in reasons else final_returns(place, names, seeds)
        tried.append(dataclasses.replace(trial, reason=reasons.get(key, ""), returns=returns))
    best = choose(tried)
    place.write(TRIED, merged(place.read(TRIED), table(tried, best)).encode())
    said = [f"tried: {place.address}/{TRIED}"]
    for base in asked:
        if (base.environment, base.method.key) not in best:
            said.append(f"No trial of {base.method.key} in {base.environment} came to its end: it is left out.")
    chosen = {cell: trial.options for cell, trial in best.items()}
    return Tuned(chosen, tuple(said))


def trials(suite: Suite, asked: Sequence[Cell], look: Look) -> list[tuple[Trial, list[Cell]]]:
    """Every trial with its cells, each checked; `look` is at the runs that are reported."""
    check(suite, asked, look)
    assert suite.tune is not None
    planned = []
    for base in asked:
        for options in suite.tune.grid[base.method.key]:
            found = trial_cells(suite, base, options)
            planned.append((Trial(base.environment, base.method.key, options, found[0].config.steps), found))
    return planned


def check(suite: Suite, asked: Sequence[Cell], look: Look) -> None:
    """Refuse to tune without a grid, without evaluations, or on seeds that are reported."""
    if suite.tune is None:
        raise ValueError(f"The suite {suite.name} has no [tune] table: write one with seeds and a grid.")
    reported = {seed for each in asked for seed in each.config.all_seeds}
    for run in look.runs:
        low, high = run.rpartition("/seeds-")[2].split("-")
        reported |= set(range(int(low), int(high) + 1))
    if both := sorted(reported & set(suite.tune.seeds)):
        told = ", ".join(map(str, both))
        raise ValueError(f"[tune] seeds must not be reported ones, and {told} is among them: choose others.")
    for each in asked:
        if not each.config.episodes:
            raise ValueError(f"{each.environment} with {each.method.key} has episodes = 0: tuning needs evaluations.")


def trial_cells(suite: Suite, base: Cell, options: Mapping[str, Any]) -> list[Cell]:
    """The cells of a trial: the validation seeds in groups of neighbours, which train together."""
    assert suite.tune is not None
    words = "__".join(f"{name}={value}" for name, value in options.items())
    label = f"{base.method.label}, {words.replace('__', ', ')}"
    method = Method(f"{base.method.key}__{words}", label, base.method.options)
    share = base.config.steps * suite.tune.steps / suite.steps  # of the steps that the environment itself has
    return [
        cell(suite, base.environment, method, 1.0, {**options, "seed": low, "seeds": count, "steps": round(share)})
        for low, count in _neighbours(suite.tune.seeds)
    ]


def final_returns(place: Place, names: Sequence[str], seeds: Sequence[int]) -> dict[int, float]:
    """The mean return of each seed over the last quarter of its evaluations."""
    found: dict[int, float] = {}
    for name in names:
        with tempfile.TemporaryDirectory() as scratch:
            for file in place.names(f"{name}/metrics"):
                (Path(scratch) / file.rpartition("/")[2]).write_bytes(place.read(file) or b"")
            rows = columns(read_metrics(Path(scratch)), ("seed", "evaluation/return"))
        for seed in np.unique(rows["seed"]):
            value = rows["evaluation/return"][rows["seed"] == seed]
            value = value[np.isfinite(value)]
            if seed in seeds and len(value):
                found[int(seed)] = float(value[-math.ceil(len(value) / 4) :].mean())
    return found


def choose(tried: Sequence[Trial]) -> dict[tuple[str, str], Trial]:
    """The best trial of each environment and method; the first of equals."""
    best: dict[tuple[str, str], Trial] = {}
    for trial in tried:
        key = (trial.environment, trial.method)
        if math.isfinite(trial.score) and (key not in best or trial.score > best[key].score):
            best[key] = trial
    return best


def table(tried: Sequence[Trial], best: Mapping[tuple[str, str], Trial]) -> str:
    """All that was tried as CSV: a row a trial, an option a column, each seed's final return and their mean."""
    options = list(dict.fromkeys(name for trial in tried for name in trial.options))
    seeds = sorted({seed for trial in tried for seed in trial.returns})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "environment",
            "method",
            *options,
            "steps",
            *(f"return_seed_{seed}" for seed in seeds),
            *LAST,
        ]
    )
    for trial in tried:
        row = [trial.environment, trial.method, *(trial.options.get(name, "") for name in options), trial.steps]
        row += [trial.returns.get(seed, "") for seed in seeds]
        chosen = best.get((trial.environment, trial.method)) is trial
        row += ["" if math.isnan(trial.score) else trial.score, "yes" if chosen else "no", trial.reason]
        writer.writerow(row)
    return out.getvalue()


def merged(before: bytes | None, now: str) -> str:
    """The table with the rows of cells that an earlier command tried, and this one did not."""
    new = list(csv.DictReader(io.StringIO(now)))
    here = {(row["environment"], row["method"]) for row in new}
    old = list(csv.DictReader(io.StringIO((before or b"").decode())))
    rows = [row for row in old if (row.get("environment"), row.get("method")) not in here] + new
    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [name for name in names if name not in LAST] + list(LAST)
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _neighbours(seeds: Sequence[int]) -> list[tuple[int, int]]:
    """First seed and number of each group of consecutive seeds."""
    found: list[tuple[int, int]] = []
    for seed in sorted(seeds):
        if found and seed == sum(found[-1]):
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((seed, 1))
    return found


def _key(record: Mapping[str, Any]) -> tuple[str, str]:
    return record["environment"], record["method"]
