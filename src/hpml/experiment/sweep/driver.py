"""The driver: gives jobs to an executor, hears how they go, and loses nothing, whoever dies.

What is finished is skipped, what was interrupted goes on, what fails is shown with its reason and stops nothing else.
The driver keeps nothing to itself: all that counts lies at the place, so a new one starts where the old one ended.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from hpml.experiment.stopping import Stop, interruptible
from hpml.experiment.sweep.board import Board, Line, View, duration
from hpml.experiment.sweep.claim import Busy
from hpml.experiment.sweep.job import Executor, Job, News, Outcome
from hpml.experiment.sweep.jobs import Look, Standing
from hpml.experiment.sweep.place import Folder, open_place

RETRIES = 3  # times that a lost run is started again
PAUSE = 5.0  # seconds before a run that somebody else works on is looked at again
TICK = 0.5  # seconds between two looks at the clock and the signals


@dataclass(frozen=True)
class Swept:
    """How a sweep ended: its runs by state, the reasons of those that did not finish, the signal that stopped it."""

    lines: tuple[Line, ...]
    stopped: int | None = None

    @property
    def failed(self) -> tuple[Line, ...]:
        """Runs that failed, were set aside, or were left to somebody else."""
        return tuple(line for line in self.lines if line.state in ("failed", "aside"))


def sweep(
    jobs: Sequence[Job],
    executor: Executor,
    console: Console | None = None,
    title: str = "",
    look: Look | None = None,
    at_once: int = 0,
) -> Swept:
    """Run jobs over an executor until none is left; the executor is closed.

    `look` is what is known of the place already; `at_once` is the most jobs that run together, 0 for no limit but the
    executor's.
    """
    console = console or Console(stderr=True)
    try:
        look = look or Look(open_place(jobs[0].place), jobs[0].name.partition("/")[0])
        board = Board(title, {job.name: _line(job, look.standing(job)) for job in jobs})
        with interruptible() as stop, View(board, console) as view:
            _Drive(board, executor, view, stop, at_once).go()
        return Swept(tuple(board.lines.values()), stop.signal)
    finally:
        executor.close()


def _line(job: Job, standing: Standing) -> Line:
    line = Line(job, before=standing.state in ("interrupted", "failed"))
    steps, batch = job.config["steps"], job.config["settings"]["environments"] * job.config["settings"]["rollout"]
    line.update, line.total = standing.update, -(-steps // batch)
    if standing.state in ("finished", "aside"):
        line.state = standing.state
    if standing.state != "failed":  # what failed is tried again
        line.reason = standing.reason
    return line


class _Drive:
    """One start of a driver, from the first job to the last."""

    def __init__(self, board: Board, executor: Executor, view: View, stop: Stop, at_once: int = 0) -> None:
        self.board, self.executor, self.view, self.stop = board, executor, view, stop
        self.waiting = [name for name, line in board.lines.items() if line.state == "waiting"]
        self.running: set[str] = set()
        self.others: set[str] = set()  # runs that somebody else works on
        self.not_before: dict[str, float] = {}
        self.asked, self.at_once = False, at_once

    def go(self) -> None:
        """Until nothing runs and nothing waits."""
        for line in self.board.lines.values():
            if line.state == "aside":
                self.view.changed(line)
            elif line.reason and line.state == "waiting":
                self.view.say(f"{line.title} goes on, and {line.reason}.")
                line.reason = ""
        while self.running or (self.waiting and self.stop.signal is None):
            if self.stop.signal is not None and not self.asked:
                self.asked = True
                self.view.say("Stopping: every run writes a checkpoint first. Once more stops at once.")
                self.executor.stop()
            if self.stop.signal is None:
                self._start()
            for news in self.executor.poll(TICK):
                self._hear(news)
            self.view.refresh()

    def _start(self) -> None:
        """Start what there is room for, in order; smaller ones do not overtake, or large ones would never run."""
        now = time.monotonic()
        for name in [name for name in self.waiting if self.not_before.get(name, 0.0) <= now]:
            line = self.board.lines[name]
            if (self.at_once and len(self.running) >= self.at_once) or not self.executor.room(line.job):
                return
            self.waiting.remove(name)
            if self._elsewhere(line):
                continue
            self.running.add(name)
            line.state, line.began = "running", now
            if name not in self.others:
                self.view.changed(line)
            self.executor.start(line.job)

    def _elsewhere(self, line: Line) -> bool:
        """Whether somebody else works on a run, or has finished it since the sweep began: no process need start."""
        place = open_place(line.job.place)
        if isinstance(place, Folder):  # where asking costs nothing
            try:
                with place.work(line.job.name):
                    pass
            except Busy:
                self._wait(line)
                return True
        if Look(place, line.job.name).standing(line.job).state != "finished":
            return False
        self._set(line, "finished", "by somebody else")
        return True

    def _wait(self, line: Line) -> None:
        """Look again later at a run that somebody else works on."""
        line.state = "busy"
        if line.job.name not in self.others:
            self.others.add(line.job.name)
            self.view.changed(line)
        self._again(line, PAUSE)

    def _hear(self, news: News) -> None:
        line = self.board.lines.get(news.name)
        if line is None or news.name not in self.running:
            return
        if news.outcome is None:
            line.update, line.total, line.gain = max(news.update, 0), news.total, news.gain
            return
        self.running.discard(news.name)
        self._ended(line, news.outcome)

    def _ended(self, line: Line, outcome: Outcome) -> None:
        stopping = self.stop.signal is not None
        if outcome.state == "done":
            self._set(line, "finished")
        elif outcome.state == "failed":
            self._set(line, "failed", outcome.reason)
        elif outcome.state == "busy":
            self._wait(line)
        elif outcome.state == "stopped" or stopping:
            self._set(line, "stopped")
            if not stopping:  # somebody else asked it to
                self._lose(line, "it was asked to stop")
        else:
            self._lose(line, outcome.reason)

    def _lose(self, line: Line, reason: str) -> None:
        line.lost += 1
        if line.lost > RETRIES:
            self._set(line, "failed", f"it was lost {line.lost} times, the last time because {reason}")
            return
        line.before = True
        line.state = "waiting"
        self.view.say(f"{line.title} is lost, and goes on from its last checkpoint: {reason}")
        self._again(line, 0.0)

    def _again(self, line: Line, seconds: float) -> None:
        name = line.job.name
        self.not_before[name] = time.monotonic() + seconds
        self.waiting.insert(0, name) if not seconds else self.waiting.append(name)

    def _set(self, line: Line, state: str, reason: str = "") -> None:
        line.state, line.reason = state, reason
        self.view.changed(line)


def last_words(swept: Swept, seconds: float, place: str, command: str) -> list[str]:
    """What there is to say at the end of a sweep."""
    board = Board("", {line.job.name: line for line in swept.lines})
    found = [f"{board.summary()}; {duration(seconds)}."]
    if swept.failed:
        logs = {"failed": "; its log is beside its folder", "aside": ""}
        found += [f"  {line.title}: {line.reason.rstrip('.')}{logs[line.state]}." for line in swept.failed]
        if swept.stopped is None and any(line.state == "failed" for line in swept.failed):
            found.append(f"The same command tries what failed again, and leaves what is finished alone: {command}")
    if swept.stopped is not None:
        found.append(f"Stopped. Go on with: {command}")
    found.append(f"results: {place}")
    return found
