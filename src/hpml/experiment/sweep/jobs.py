"""Which runs a suite means, and what stands of each: finished, interrupted, failed, or not begun."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hpml.experiment.build import plan
from hpml.experiment.checkpoint import SUFFIX
from hpml.experiment.config import MAY_CHANGE, TrainConfig, complete, from_json, to_json, train_config
from hpml.experiment.store import changes, difference, packages
from hpml.experiment.sweep.job import Job
from hpml.experiment.sweep.place import Place
from hpml.experiment.sweep.record import attempts, read_record
from hpml.experiment.sweep.suite import Method, Suite, folder_name

RUNS = "runs"
OWN = re.compile(r"suites/[^/]+\.toml$|tuning/tried\.csv$|(tuning/)?runs/.*/seeds-\d+-\d+")  # files of a sweep
# A run that goes on keeps the rhythm of its evaluations: it was chosen for the steps that were asked for then.
FREE = MAY_CHANGE | {"evaluate_every"}


@dataclass(frozen=True)
class Cell:
    """An environment with a method: `config` has all of its seeds."""

    environment: str
    method: Method
    config: TrainConfig


@dataclass(frozen=True)
class Standing:
    """What stands of a run at its place.

    new: nothing. interrupted: it can go on from `update`; the `reason` says if versions have changed since. failed: the
    last attempt did, for the `reason`; it is tried again. finished. aside: something else is there, and is left alone.
    """

    state: Literal["new", "interrupted", "failed", "finished", "aside"]
    update: int = 0
    reason: str = ""


def cells(
    suite: Suite,
    only: Sequence[str] = (),
    budget: float | None = None,
    seeds: int | None = None,
    chosen: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
) -> list[Cell]:
    """Every environment with every method, each checked as far as it can be without running it.

    - `only`: conditions such as "env=clean_up" and "method=mappo,coma"; all must hold.
    - `budget`: steps that take the place of the suite's; a scenario's own steps shrink or grow by the same factor.
    - `seeds`: takes the place of the suite's number of seeds.
    - `chosen`: options of an environment and a method that tuning found.
    """
    if seeds is not None and seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}.")
    if budget is not None and not 1 <= budget < 1e15:
        raise ValueError(f"--budget must be at least 1 step, got {budget:g}.")
    wanted = suite.named(only)
    found = []
    for environment in suite.environments:
        for method in suite.methods_of(environment):
            if environment in wanted["env"] and method.key in wanted["method"]:
                own = {"seeds": seeds} if seeds else {}
                own |= (chosen or {}).get((environment, method.key), {})
                factor = 1.0 if budget is None else budget / suite.steps
                found.append(cell(suite, environment, method, factor, own))
    if not found:
        raise ValueError(f"Nothing of the suite {suite.name} is left by --only {' '.join(only)}.")
    return found


def cell(suite: Suite, environment: str, method: Method, factor: float, own: Mapping[str, Any]) -> Cell:
    """An environment with a method; steps are multiplied by `factor`, and `own` options take the place of others."""
    scenario = suite.scenario(environment)
    options = {**suite.train, **method.options, **scenario.options}
    options |= {"steps": scenario.steps or suite.steps, "seeds": scenario.seeds or suite.seeds}
    options |= {"seed": suite.first_seed, **suite.fixed, **own}
    options["steps"] = max(1, round(options["steps"] * factor))
    try:
        return Cell(environment, method, checked(environment, options))
    except ValueError as error:
        raise ValueError(f"{suite.name}, {environment} with {method.key}: {error}") from error


def checked(environment: str, options: Mapping[str, Any]) -> TrainConfig:
    """The complete config of an environment with options; a `ValueError` where it asks for what is not there."""
    rest = dict(options)
    config = complete(train_config(environment, rest.pop("preset", "auto"), **rest))
    plan(config)
    return dataclasses.replace(config, out=None)


class Look:
    """One look at a place: the runs there are, their newest checkpoints, and a file of each folder without a config."""

    def __init__(self, place: Place, folder: str = RUNS) -> None:
        self.place, self.folder = place, folder
        self.newest: dict[str, int] = {}
        self.runs: set[str] = set()
        self.strangers: dict[str, str] = {}
        for name in place.names(folder):
            match = re.match(r"(.*/seeds-\d+-\d+)/(.*)", name)
            if match is None:
                continue
            run, inner = match.groups()
            stem = inner.removeprefix("checkpoints/").removesuffix(SUFFIX)
            if inner == "config.json":
                self.runs.add(run)
            elif inner != "lock":
                self.strangers.setdefault(run, inner.partition("/")[0])
            if inner == f"checkpoints/{stem}{SUFFIX}" and stem.isdigit():
                self.newest[run] = max(self.newest.get(run, -1), int(stem))

    def groups(self, cell: str) -> list[tuple[int, int]]:
        """First and last seed of every run of a cell."""
        found = [re.fullmatch(re.escape(cell) + r"/seeds-(\d+)-(\d+)", run) for run in self.runs]
        return sorted((int(match[1]), int(match[2])) for match in found if match)

    def standing(self, job: Job) -> Standing:
        """What stands of a job."""
        name = job.name
        if name not in self.runs:
            if name in self.strangers:
                return Standing("aside", 0, f"{name} holds other things ({self.strangers[name]})")
            return _tried(self.place, name, Standing("new"))
        try:
            stored = json.loads(self.place.read(f"{name}/config.json") or b"")
            asked = dataclasses.replace(from_json(job.config), out=None)
            if sentence := difference(name, stored, to_json(asked), FREE):
                advice = "choose another --out, or another key for the method"
                return Standing("aside", self.newest.get(name, 0), f"{sentence}: {advice}")
        except (ValueError, AttributeError) as error:
            return Standing("aside", 0, f"{name}/config.json cannot be read ({error})")
        update = self.newest.get(name, -1)
        updates = from_json(job.config).updates
        if update >= updates:
            return Standing("finished", update)
        if name not in self.newest and _done(self.place, name) and stored["steps"] >= job.config["steps"]:
            return Standing("finished", updates)  # results that are kept without their checkpoints
        return _tried(self.place, name, Standing("interrupted", max(update, 0), self._begun(name)))

    def _begun(self, name: str) -> str:
        """Where a run that goes on was begun with other versions than there are now: with which."""
        try:
            first = json.loads(self.place.read(f"{name}/versions.json") or b"")["starts"][0]["versions"]
        except (ValueError, KeyError, IndexError, TypeError):
            return ""
        changed = changes(first, packages())
        return f"it was begun with {changed}" if changed else ""


def jobs(cells: Iterable[Cell], suite: Suite, look: Look) -> list[Job]:
    """A job for each run: the seeds of a cell train together, and seeds that are added later are a run of their own."""
    found = []
    for each in cells:
        name = f"{look.folder}/{folder_name(each.environment)}/{each.method.key}"
        first, last = each.config.seed, each.config.seed + each.config.seeds - 1
        record = {"environment": each.environment, "method": each.method.key, "label": each.method.label}
        record |= {"suite": suite.name}
        for low, high in _cover(first, last, look.groups(name)):
            config = to_json(dataclasses.replace(each.config, seed=low, seeds=high - low + 1))
            found.append(Job(look.place.address, f"{name}/seeds-{low}-{high}", config, record=record))
    return found


def check_place(place: Place) -> None:
    """Refuse a place that holds other people's files and nothing of a sweep's."""
    found = place.names()
    if found and not any(OWN.match(name) for name in found):
        other = ", ".join(sorted({name.partition("/")[0] for name in found})[:3])
        raise ValueError(f"{place.address} holds other things ({other}): choose another --out.")


def _cover(first: int, last: int, known: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Runs that have the seeds first to last: those that are there, and new ones for the seeds between them."""
    found: list[tuple[int, int]] = []
    at = first
    for low, high in sorted(known, key=lambda run: (run[0], -run[1])):
        if high < at or low > last or (found and low <= found[-1][1]):
            continue
        if low > at:
            found.append((at, low - 1))
        found.append((low, high))
        at = high + 1
    if at <= last:
        found.append((at, last))
    return found


def _done(place: Place, name: str) -> bool:
    return any(each.get("outcome") == "done" for each in attempts(read_record(place, name))[-1:])


def _tried(place: Place, name: str, standing: Standing) -> Standing:
    known = attempts(read_record(place, name))
    if known and known[-1].get("outcome") == "failed":
        return dataclasses.replace(standing, state="failed", reason=str(known[-1].get("reason", "")))
    return standing
