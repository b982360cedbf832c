"""`train`: the loop that plays, learns, measures, evaluates and keeps, and that loses nothing when it is stopped.

After every leg of a few updates rows are logged; at a checkpoint the rows reach the disk first and the state second, so
that a run that goes on drops the rows that its checkpoint does not know and writes them again, bit for bit.
"""

import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from hpml.experiment.build import plan, use_device
from hpml.experiment.checkpoint import checkpoints, load_checkpoint, save_checkpoint
from hpml.experiment.config import MAY_CHANGE, TrainConfig, complete, to_json
from hpml.experiment.course import Course, Row
from hpml.experiment.evaluation import summarise
from hpml.experiment.memory import keep_memory
from hpml.experiment.metrics import MetricsWriter, parquet_package
from hpml.experiment.progress import Watch
from hpml.experiment.stopping import Stop, explained, interruptible
from hpml.experiment.store import RunFolder, create_run, note_versions, open_run, write_json
from hpml.experiment.trackers import TensorBoard, Tracker, WeightsAndBiases, tensorboard_package, wandb_package
from hpml.experiment.video import film_package, filming

SECONDS = 300.0  # between two checkpoints where no number of updates is given


@dataclass(frozen=True)
class Result:
    """Where a run stands: its `folder`, the `update` that it reached out of `total`, and the signal that stopped it.

    An `update` of -1: there is no checkpoint yet.
    """

    folder: Path
    update: int
    total: int
    stopped: int | None = None


def train(
    config: TrainConfig,
    console: Console | None = None,
    plan: Callable[[TrainConfig], Callable[[], Course]] = plan,
    watch: Callable[[int, int, float], bool] | None = None,
    saved: Callable[[int], None] | None = None,
) -> Result:
    """Train, or go on training, and keep everything in the run folder.

    - `plan` says what is wrong with the config before there is a folder, and gives what makes the course.
    - `watch` hears the update, the last update and the return after every leg; where it says True the run stops with a
      checkpoint as it does at SIGTERM.
    - `saved` hears the update of every checkpoint once it is on the disk.
    """
    console = console or Console(stderr=True)
    config = complete(config)
    device = use_device(config.device)
    keep_memory()
    make = plan(config)
    _check_packages(config)
    stored, seeds = to_json(config), list(config.all_seeds)
    with interruptible() as stop, explained(config.folder):
        if config.resume:
            folder = open_run(config.folder, stored, seeds, MAY_CHANGE)
        else:
            folder = create_run(config.folder, stored, seeds)
        try:
            course = make()
            try:
                if stop.signal is not None:  # a checkpoint that is there need not be restored to be left
                    newest = max(checkpoints(folder.checkpoints), default=-1)
                    return Result(folder.path, newest, _lengths(config, course)[1], stop.signal)
                return _Run(config, course, folder, console, device, saved).go(stop, watch)
            finally:
                course.close()
        finally:
            folder.close()


def _check_packages(config: TrainConfig) -> None:
    """Import what the run writes with: a package that is missing is said before there is a folder."""
    parquet_package()
    if config.tensorboard:
        tensorboard_package()
    if config.wandb:
        wandb_package()
    if config.video != "none":
        film_package()


def _lengths(config: TrainConfig, course: Course) -> tuple[int, int]:
    """How many updates a leg has, and the run."""
    # All legs have one length: another one would be compiled anew, and could round otherwise.
    leg = max(k for k in range(1, course.longest + 1) if config.evaluate_every % k == 0)
    return leg, -(-config.updates // leg) * leg


class _Cut(Exception):
    """A signal came while the film was made."""


class _Run:
    """One start of a run, from its checkpoint to its end or to a signal."""

    def __init__(
        self,
        config: TrainConfig,
        course: Course,
        folder: RunFolder,
        console: Console,
        device: str,
        saved: Callable[[int], None] | None = None,
    ) -> None:
        self.config, self.course, self.folder, self.console, self.saved = config, course, folder, console, saved
        self.update = -1  # nothing is done yet, not even the evaluation before the first update
        self.leg, self.total = _lengths(config, course)
        self.frequent = np.full((config.seeds, course.spec.agents), -1, np.int32)
        said: list[str] = []
        if config.resume:
            said += self._restore()
        self.metrics = MetricsWriter(folder.metrics)
        self.metrics.forget_after(self.update)
        changed = note_versions(folder, device, max(self.update, 0), course.versions)
        write_json(folder.path / "parameters.json", course.parameters())
        for sentence in [*said, *([changed] if changed else [])]:
            console.print(sentence, highlight=False, markup=False, soft_wrap=True)
        self.trackers: list[Tracker] = []
        if config.tensorboard:
            after = self._steps(self.update) if config.resume and self.update >= 0 else None
            self.trackers.append(TensorBoard(folder.events, config.all_seeds, after))
        if config.wandb:
            self.trackers.append(WeightsAndBiases(config.wandb, folder.path.name, folder.path, to_json(config)))

    def go(self, stop: Stop, ask: Callable[[int, int, float], bool] | None = None) -> Result:
        """Run to the end, to a signal that `stop` has noted, or until `ask` says so."""
        config, total = self.config, self.total
        saved, when = self.update, time.monotonic()
        every = config.checkpoint_every
        gain = share = math.nan
        with Watch(self.console, self._title(), *self._bar()) as watch:
            try:
                while self.update < total and stop.signal is None:
                    rows = self._advance()
                    gain, share = _shown(rows, gain, share)
                    watch.show(self._steps(self.update) * config.seeds, gain, share)
                    if "evaluation/return" in rows[-1]:
                        watch.evaluated(self.update, self._steps(self.update) * config.seeds, gain)
                    passed = self.update // every > saved // every if every else time.monotonic() - when > SECONDS
                    if passed or saved < 0:
                        self._save()
                        saved, when = self.update, time.monotonic()
                    asked = ask is not None and ask(self.update, total, gain)
                    if asked and stop.signal is None and self.update < total:  # at the end only the film is left
                        stop.signal = signal.SIGTERM
                if saved < self.update:
                    self._save()
            finally:
                for tracker in self.trackers:
                    tracker.close()
        whole = self.update >= total and (config.video == "none" or self._film(stop))
        return Result(self.folder.path, self.update, total, None if whole else stop.signal)

    def _film(self, stop: Stop) -> bool:
        """Film an episode; False where a signal cut it short, and left no film."""
        if stop.signal is not None:
            return False
        path = self.folder.videos / f"{self.update:010d}.{self.config.video}"
        try:
            with filming(path) as add:

                def add_unless_stopped(frame: Any) -> None:
                    if stop.signal is not None:
                        raise _Cut
                    add(frame)

                self.course.film(self.update, add_unless_stopped)
        except _Cut:
            return False
        return True

    def _advance(self) -> list[Row]:
        """The next few updates, or the evaluation before the first; the rows of the last update, a seed each."""
        config = self.config
        if self.update < 0:
            self.update = 0
            rows: list[list[Row]] = [[{} for _ in config.all_seeds]]
        else:
            leg = self.course.advance(self.leg)
            self._check(leg.rows, leg.finite)
            self.update, rows = self.update + len(leg.rows), leg.rows
        if config.episodes and (self.update % config.evaluate_every == 0 or self.update == self.total):
            rows[-1] = [row | more for row, more in zip(rows[-1], self._evaluate(), strict=True)]
        self._log(rows, self.update)
        return rows[-1]

    def _log(self, rows: list[list[Row]], last: int) -> None:
        first = last - len(rows) + 1
        for number, seeds in enumerate(rows, first):
            for seed, row in zip(self.config.all_seeds, seeds, strict=True):
                self.metrics.log(number, self._steps(number), seed, row)
                if number == last:  # curves need not have every point
                    seen = {name: value for name, value in row.items() if math.isfinite(value)}
                    for tracker in self.trackers:
                        tracker.log(number, self._steps(number), seed, seen)

    def _evaluate(self) -> list[Row]:
        start = time.perf_counter()
        rows: list[Row] = []
        spec = self.course.spec
        for place, played in enumerate(self.course.evaluate(self.update, self.config.episodes)):
            row, self.frequent[place] = summarise(played, spec.conventions > 0, self.frequent[place])
            rows.append(row)
        for row, more in zip(rows, self.course.exact() or [{}] * len(rows), strict=True):
            row.update({f"evaluation/{name}": value for name, value in more.items()})
        seconds = time.perf_counter() - start
        return [row | {"seconds/evaluate": seconds} for row in rows]

    def _check(self, rows: list[list[Row]], finite: Any) -> None:
        """Stop at the first number that is none; what was logged before it is kept for the reader."""
        bad = np.argwhere(~np.asarray(finite))
        if not len(bad):
            return
        place, which = bad[0]
        self._log(rows[: place + 1], self.update + int(place) + 1)
        self.metrics.flush()
        known = checkpoints(self.folder.checkpoints)
        raise ValueError(
            f"Update {self.update + place + 1} of seed {self.config.all_seeds[which]} has a loss, a field or a "
            f"parameter that is not a number: the run stopped, and its checkpoint of update {known[-1]} is whole. Try "
            "a smaller --actor-rate and --critic-rate in a new run."
        )

    def _save(self) -> None:
        self.metrics.flush()
        tree = {"course": self.course.tree(), "frequent": self.frequent}
        save_checkpoint(self.folder.checkpoints, self.update, tree, self.config.keep)
        if self.saved is not None:
            self.saved(self.update)

    def _restore(self) -> list[str]:
        template = {"course": self.course.template(), "frequent": self.frequent}
        found = load_checkpoint(self.folder.checkpoints, template)
        if found is None:
            return ["The run had no checkpoint yet: it starts again."]
        self.update, self.frequent = found.update, found.tree["frequent"]
        self.course.restore(found.tree["course"])
        return [*found.passed_over, f"Going on from update {self.update} of {self.total}."]

    def _steps(self, update: int) -> int:
        return max(update, 0) * self.config.batch

    def _title(self) -> str:
        parts = (self.config.env, self.config.algo, *[self.config.projection] * (self.config.projection != "none"))
        return " ".join(parts)

    def _bar(self) -> tuple[int, int]:
        return self.config.seeds * self._steps(self.total), self.config.seeds * self._steps(self.update)


def _shown(rows: list[Row], gain: float, share: float) -> tuple[float, float]:
    """What the bar shows: the newest return and non-potentiality, means over the seeds."""

    def newest(names: tuple[str, ...], before: float) -> float:
        for name in names:
            values = [row[name] for row in rows if math.isfinite(row.get(name, math.nan))]
            if values:
                return float(np.mean(values))
        return before

    return newest(("return", "evaluation/return"), gain), newest(("nonpot_held_out", "nonpot"), share)
