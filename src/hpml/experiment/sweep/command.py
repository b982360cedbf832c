"""`hpml sweep`: from a suite and a few options to runs."""

import dataclasses
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.table import Table

from hpml.experiment.build import use_device
from hpml.experiment.sweep.asked import Asked, read_requests, with_requests
from hpml.experiment.sweep.driver import Swept, last_words, sweep
from hpml.experiment.sweep.job import Executor
from hpml.experiment.sweep.jobs import RUNS, Cell, Look, cells, check_place, jobs
from hpml.experiment.sweep.local import LocalExecutor
from hpml.experiment.sweep.machine import Machine, sized
from hpml.experiment.sweep.place import Place, open_place
from hpml.experiment.sweep.suite import Suite, parse_options, read_suite
from hpml.experiment.sweep.tune import FOLDER, trials, tune


@dataclasses.dataclass(frozen=True)
class Request:
    """What a sweep is asked for besides the suite; see `hpml sweep --help`."""

    out: str = ""
    budget: float | None = None
    seeds: int | None = None
    only: tuple[str, ...] = ()
    set: tuple[str, ...] = ()
    jobs: int = 0
    workers: int = 0
    device: str = ""
    tune: bool = False
    ray: str = ""
    command: str = ""

    def __post_init__(self) -> None:
        """One sentence for the first number that cannot be."""
        for name in ("jobs", "workers"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name} must not be negative, got {getattr(self, name)}.")


def run_suite(given: str, request: Request, console: Console | None = None) -> int:
    """Run a suite; the exit status: 1 where a run failed, 128 and more where a signal stopped the sweep."""
    console = console or Console()
    use_device("cpu")  # the driver only checks; a GPU is for the runs
    suite = _suite(given, request)
    asked = cells(suite, request.only, request.budget, request.seeds)
    place = open_place(_address(suite, request))
    check_place(place)
    start = time.monotonic()
    missing = 0
    if request.tune:
        tuned = tune(suite, asked, place, partial(_swept, suite, request=request, console=console))
        for sentence in tuned.said:
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
        if tuned.stopped is not None or not tuned.chosen:
            return 1 if tuned.stopped is None else 128 + tuned.stopped
        missing = len(asked) - len(tuned.chosen)
        asked = cells(suite, request.only, request.budget, request.seeds, tuned.chosen)
        asked = [each for each in asked if (each.environment, each.method.key) in tuned.chosen]
    swept = _swept(suite, asked, Look(place), request, console)
    for sentence in last_words(swept, time.monotonic() - start, place.address, request.command):
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
    if swept.stopped is not None:
        return 128 + swept.stopped
    return 1 if swept.failed or missing else 0


def list_suite(given: str, request: Request) -> Table:
    """What a sweep would run, and what stands of it already; nothing is started."""
    use_device("cpu")
    suite = _suite(given, request)
    place = open_place(_address(suite, request))
    table = Table(title=f"{suite.name} at {place.address}", title_justify="left")
    for name in ("run", "method", "seeds", "steps", "stands"):
        table.add_column(name, justify="right" if name == "steps" else "left")
    asked = cells(suite, request.only, request.budget, request.seeds)
    look = Look(place)
    if request.tune:  # what runs after the trials depends on what they find
        asked = [each for _, found in trials(suite, asked, look) for each in found]
        look = Look(place, FOLDER)
    for job in jobs(asked, suite, look):
        standing = look.standing(job)
        words = standing.state + (f" at update {standing.update}" if standing.state == "interrupted" else "")
        words += f": {standing.reason}" if standing.reason else ""
        seeds = job.name.rpartition("/seeds-")[2].replace("-", " to ")
        table.add_row(job.record["environment"], job.record["label"], seeds, f"{job.config['steps']:,}", words)
    return table


def keep_suite(place: Place, suite: Suite, request: Request) -> None:
    """Keep the suite beside its results, with what was asked of it so far."""
    name = f"suites/{suite.name}.toml"
    steps = round(request.budget) if request.budget else suite.steps
    now = Asked(request.command, steps, request.seeds or 0, request.only)
    try:
        before = _requests(place.read(name))
        place.write(name, with_requests(suite.text, [*before, now]).encode())
    except OSError as error:
        raise ValueError(f"{place.address} cannot be written to ({(error.strerror or str(error)).lower()}).") from error


def _requests(kept: bytes | None) -> list[Asked]:
    try:
        return read_requests((kept or b"steps = 1").decode())
    except (ValueError, KeyError, TypeError, AttributeError):  # changed by hand: what it said is not known
        return []


@runtime_checkable
class MachineExecutor(Executor, Protocol):
    """An executor that says by what machine runs are sized."""

    machine: Machine


def executor(request: Request) -> MachineExecutor:
    """What runs the jobs: this machine, or a Ray cluster."""
    if request.ray:
        from hpml.experiment.sweep.ray import RayExecutor

        return RayExecutor(request.ray)
    return LocalExecutor(at_once=request.jobs)


def _swept(suite: Suite, asked: Sequence[Cell], look: Look, request: Request, console: Console) -> Swept:
    runs = executor(request)
    try:
        if look.folder == RUNS:
            keep_suite(look.place, suite, request)
        at_once = 0 if request.ray else request.jobs
        share = partial(sized, machine=runs.machine, at_once=at_once, workers=request.workers, device=request.device)
        found = [share(job) for job in jobs(asked, suite, look)]
    except BaseException:
        runs.close()
        raise
    return sweep(found, runs, console, f"{suite.name} at {look.place.address}", look, request.jobs)


def _suite(given: str, request: Request) -> Suite:
    return dataclasses.replace(read_suite(given), fixed=parse_options(request.set))


def _address(suite: Suite, request: Request) -> str:
    address = request.out or str(Path("out/sweep") / suite.name)
    return address if "://" in address else str(Path(address))
