"""Results for other programs: CSV of cells and of runs, and the JSON that marl-eval reads."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hpml.report.sweep.results import Results, Track
from hpml.statistics.bootstrap import RESAMPLES
from hpml.statistics.interval import Estimate, estimate

INTERVALS = ("student", "studentised", "percentile")
CELLS = (
    "scenario",
    "method",
    "seeds",
    "steps",
    *(
        f"{scale}_{number}"
        for scale in ("raw", "normalised")
        for number in ("mean", "se", *(f"{interval}_{end}" for interval in INTERVALS for end in ("low", "high")))
    ),
    "residual_energy",
    "residual_energy_se",
)
RUNS = ("scenario", "method", "seed", "steps", "raw", "normalised", "residual_energy")


def cells_csv(results: Results, level: float = 0.95, resamples: int = RESAMPLES) -> str:
    """A line a scenario and method: raw and normalised means, standard errors and intervals, residual energy.

    A cell without a run has an empty line behind its name; a cell with one run has no errors and no intervals.
    """
    normalised, lines = results.normalised, []
    for column, scenario in enumerate(results.scenarios):
        for method in results.methods:
            raw = estimate(results.final[method][:, column], level=level, resamples=resamples)
            scaled = estimate(normalised[method][:, column], level=level, resamples=resamples)
            energy = _energy(results, method, column)
            numbers = [*_numbers(raw), *_numbers(scaled), energy.value, energy.error]
            lines.append([scenario, method, raw.most, results.steps.get(scenario, ""), *map(_plain, numbers)])
    return _csv(CELLS, lines)


def runs_csv(results: Results) -> str:
    """A line a run, from which every number of the report can be made again."""
    normalised, lines = results.normalised, []
    for column, scenario in enumerate(results.scenarios):
        for method in results.methods:
            table = results.final[method]
            for row in np.flatnonzero(np.isfinite(table[:, column])):
                seed = float(results.seeds[method][row, column]) if method in results.seeds else float(row)
                energy = results.residual[method][row, column] if method in results.residual else np.nan
                numbers = [table[row, column], normalised[method][row, column], energy]
                steps = results.steps.get(scenario, "")
                lines.append([scenario, method, _whole(seed), steps, *map(_plain, numbers)])
    return _csv(RUNS, lines)


def marl_eval(results: Results) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The JSON format of marl-eval (Gorsane et al. 2022), and what had to be left out of it, a sentence each.

    environment -> task -> algorithm -> seed_k -> step_j -> {step_count, metric: [values]}, and `absolute_metrics` after
    the last step. Its tools want every algorithm on every task with the same seeds, the same number of steps and the
    same metrics, and no comma in a name, so what not all of them have is left out: scenarios where a method has no
    evaluated run, then seeds. Of more evaluations than the shortest run has, as many are taken, evenly, with the first
    and the last. `absolute_metrics` hold the final return of the report, not that of the best policy on the way. The
    environment is what stands before "/" in a scenario's name, and meltingpot where nothing does.
    """
    notes = []
    seeds = {
        (scenario, method): {seed for s, m, seed in results.tracks if (s, m) == (scenario, method)}
        for scenario in results.scenarios
        for method in results.methods
    }
    tasks = [s for s in results.scenarios if all(seeds[s, m] for m in results.methods)]
    if len(tasks) < len(results.scenarios):
        gone = [s for s in results.scenarios if s not in tasks]
        notes.append(f"Left out of the marl-eval file, as not every method was evaluated there: {', '.join(gone)}.")
    shared = set.intersection(*(seeds[s, m] for s in tasks for m in results.methods)) if tasks else set()
    if any(seeds[s, m] != shared for s in tasks for m in results.methods):
        left = ", ".join(map(str, sorted(shared))) or "none"
        notes.append(f"The marl-eval file has the seeds that every method has on every scenario only: {left}.")
    kept = {key: results.tracks[key] for key in _product(tasks, results.methods, shared)}
    if not kept:
        return {}, tuple(notes)
    metrics = sorted(set.intersection(*(_complete(track) for track in kept.values())))
    length = min(len(track.steps) for track in kept.values())
    if any(len(track.steps) > length for track in kept.values()):
        notes.append(f"The marl-eval file has {length} evaluations of each run, as many as the shortest has.")
    file: dict[str, Any] = {}
    for (task, method, seed), track in kept.items():
        family, _, name = task.rpartition("/")
        tasks_there = file.setdefault(_name(family or "meltingpot"), {})
        algorithm = tasks_there.setdefault(_name(name), {}).setdefault(_name(method), {})
        algorithm[f"seed_{seed}"] = _run(track, metrics, length, _final(results, task, method, seed))
    return file, tuple(notes)


def _complete(track: Track) -> set[str]:
    """The metrics with a number at every evaluation: JSON has no NaN."""
    return {name for name, values in track.metrics.items() if np.isfinite(values).all()}


def _run(track: Track, metrics: Sequence[str], length: int, final: float) -> dict[str, Any]:
    at = np.floor(np.linspace(0, len(track.steps) - 1, length) + 0.5).astype(int)
    steps: dict[str, Any] = {
        f"step_{j}": {
            "step_count": int(track.steps[row]),
            **{name: [float(track.metrics[name][row])] for name in metrics},
        }
        for j, row in enumerate(at)
    }
    last = {name: [float(track.metrics[name][-1])] for name in metrics}
    if "return" in last and np.isfinite(final):
        last["return"] = [final]
    return {**steps, "absolute_metrics": last}


def _final(results: Results, scenario: str, method: str, seed: int) -> float:
    column = results.scenarios.index(scenario)
    if method not in results.seeds:
        return float("nan")
    found = results.final[method][results.seeds[method][:, column] == seed, column]
    return float(found[0]) if len(found) else float("nan")


def _product(tasks: Iterable[str], methods: Iterable[str], seeds: Iterable[int]) -> list[tuple[str, str, int]]:
    return [(task, method, seed) for task in tasks for method in methods for seed in sorted(seeds)]


def _name(text: str) -> str:
    """A name without commas, which marl-eval refuses."""
    return text.replace(", ", " ").replace(",", " ")


def _energy(results: Results, method: str, column: int) -> Estimate:
    table = results.residual.get(method)
    return estimate([np.nan] if table is None else table[:, column], resamples=1)


def _numbers(found: Estimate) -> list[float]:
    return [found.value, found.error, *(end for interval in INTERVALS for end in getattr(found, interval))]


def _plain(number: float) -> str:
    """A number with enough digits to give itself back; nothing where there is none."""
    return repr(float(number)) if np.isfinite(number) else ""


def _whole(number: float) -> str:
    return str(int(number)) if np.isfinite(number) else ""


def _csv(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return text.getvalue()
