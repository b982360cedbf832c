"""What a driver knows about its runs, and how it is shown: a table where somebody watches, lines where a file does."""

import math
import time
from dataclasses import dataclass, field
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hpml.experiment.progress import number
from hpml.experiment.sweep.job import Job

DRAWN = 0.4  # seconds between two drawings of the table
EVERY = 60.0  # seconds between two lines about the whole where nobody watches
SHOWN = 6  # runs and reasons that are shown below the table
WORDS = {
    "waiting": "dim",
    "running": "cyan",
    "finished": "green",
    "failed": "red",
    "aside": "red",
    "busy": "yellow",
    "stopped": "yellow",
}


@dataclass
class Line:
    """Where a run stands. `state` is one of WORDS, `share` how much of it is done."""

    job: Job
    state: str = "waiting"
    update: int = 0
    total: int = 0
    gain: float = math.nan
    reason: str = ""
    lost: int = 0
    before: bool = False
    began: float = math.nan

    @property
    def share(self) -> float:
        """How much of the run is done, 0 to 1."""
        if self.state == "finished":
            return 1.0
        return min(1.0, self.update / self.total) if self.total else 0.0

    @property
    def title(self) -> str:
        """Environment, method and seeds."""
        return self.job.name.partition("runs/")[2]


@dataclass
class Board:
    """All runs of a sweep, by name."""

    title: str
    lines: dict[str, Line]
    began: float = field(default_factory=time.monotonic)
    _share: float = field(init=False)

    def __post_init__(self) -> None:
        """Remember what was done before the sweep began: it says nothing about the speed."""
        self._share = self.share

    def count(self, state: str) -> int:
        """How many runs are in a state."""
        return sum(line.state == state for line in self.lines.values())

    @property
    def share(self) -> float:
        """How much of all that can be done is done, by environment steps."""
        weights = {name: line.job.config["steps"] * line.job.config["seeds"] for name, line in self.lines.items()}
        total = sum(weights.values())
        gone = ("finished", "failed", "aside")
        return sum(weights[k] * (1.0 if v.state in gone else v.share) for k, v in self.lines.items()) / max(total, 1)

    def left(self) -> float:
        """Seconds that are left at the speed so far; NaN before there is one."""
        share = self.share
        if share <= self._share:
            return math.nan
        return (time.monotonic() - self.began) * (1.0 - share) / (share - self._share)

    def summary(self) -> str:
        """The whole in one line."""
        parts = [f"{self.count('finished')} of {len(self.lines)} finished"]
        parts += [
            f"{count} {state}" for state in ("running", "busy", "failed", "stopped") if (count := self.count(state))
        ]
        if aside := self.count("aside"):
            parts.append(f"{aside} set aside")
        parts.append(f"{100 * self.share:.0f} %")
        if self.count("running") and math.isfinite(self.left()):
            parts.append(f"{duration(self.left())} left")
        return ", ".join(parts)


class View:
    """Shows a board; used as a context."""

    def __init__(self, board: Board, console: Console) -> None:
        self.board, self.console = board, console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._said, self._drawn = time.monotonic(), -math.inf

    def __enter__(self) -> "View":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, sentence: str) -> None:
        """A line that stays."""
        self.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def changed(self, line: Line) -> None:
        """A line about a run whose state has changed, for those who do not see the table."""
        if self._live is None or line.state in ("failed", "aside"):
            why = f": {line.reason}" if line.reason else ""
            gain = f", return {number(line.gain)}" if line.state == "finished" and math.isfinite(line.gain) else ""
            took = f" in {duration(time.monotonic() - line.began)}" if math.isfinite(line.began) else ""
            took = took if line.state in ("finished", "failed", "stopped") else ""
            self.say(f"{line.title} {said(line)}{took}{gain}{why}")

    def refresh(self) -> None:
        """Draw the table, or say a line about the whole once a minute."""
        if self._live is not None:
            if time.monotonic() - self._drawn > DRAWN:
                self._drawn = time.monotonic()
                self._live.update(table(self.board), refresh=True)
        elif time.monotonic() - self._said > EVERY:
            self._said = time.monotonic()
            self.say(self.board.summary())


def said(line: Line) -> str:
    """A run's state in words."""
    if line.state == "running":
        return "goes on" if line.before else "starts"
    return {"aside": "is set aside", "busy": "is being worked on by somebody else"}.get(line.state, line.state)


def table(board: Board) -> RenderableType:
    """Environments by methods, what runs, and what failed."""
    lines = list(board.lines.values())
    methods = list(dict.fromkeys(line.job.record["method"] for line in lines))
    environments = list(dict.fromkeys(line.job.record["environment"] for line in lines))
    grid = Table(title=board.title, title_justify="left")
    grid.add_column("")
    for method in methods:
        grid.add_column(method, justify="right", overflow="fold")
    for environment in environments:
        row = []
        for method in methods:
            own = [
                ln for ln in lines if (ln.job.record["environment"], ln.job.record["method"]) == (environment, method)
            ]
            row.append(_cell(own))
        grid.add_row(environment, *row)
    parts: list[RenderableType] = [grid, Text(board.summary())]
    running = [line for line in lines if line.state == "running"]
    for line in running[:SHOWN]:
        share = f"{100 * line.share:.0f} %" if line.total else "compiling"
        parts.append(Text(f"  {line.title}  {share}  return {number(line.gain)}", style="cyan"))
    wrong = [line for line in lines if line.state in ("failed", "aside")]
    for line in wrong[-SHOWN:]:
        parts.append(Text(f"  {line.title} {said(line)}: {line.reason}", style="red"))
    return Group(*parts)


def duration(seconds: float) -> str:
    """A time in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def _cell(lines: list[Line]) -> Text:
    if not lines:
        return Text("")
    for state in ("failed", "aside", "busy", "running", "stopped"):
        if any(line.state == state for line in lines):
            words = {"running": f"{100 * sum(line.share for line in lines) / len(lines):.0f} %"}
            return Text(words.get(state, state), style=WORDS[state])
    if all(line.state == "finished" for line in lines):
        return Text("done", style=WORDS["finished"])
    share = sum(line.share for line in lines) / len(lines)
    return Text(f"{100 * share:.0f} %" if share else "-", style=WORDS["waiting"])
