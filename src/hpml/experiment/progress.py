"""What a run shows while it goes on: a bar where somebody watches, a line at each evaluation where a file does."""

import math
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


class Watch:
    """A bar with steps a second, time left, return and non-potentiality; used as a context."""

    def __init__(self, console: Console, title: str, total: int, done: int) -> None:
        self.console, self.total = console, total
        self._start, self._from = math.nan, done  # the clock starts after the first leg, which compiles
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f} %"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[words]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=total, completed=done, words="compiling")

    def __enter__(self) -> "Watch":
        self._bar.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def rate(self, steps: int) -> float:
        """Environment steps a second of all seeds together, without the time that compiling took."""
        seconds = time.monotonic() - self._start
        return (steps - self._from) / seconds if steps > self._from and seconds > 0 else math.nan

    def show(self, steps: int, gain: float, share: float) -> None:
        """The bar after `steps` environment steps of all seeds; `gain` is the return, `share` the non-potentiality."""
        if steps > self._from and math.isnan(self._start):
            self._start, self._from = time.monotonic(), steps
        words = f"{number(self.rate(steps))} steps/s  return {number(gain)}  NonPot {number(share)}"
        self._bar.update(self._task, completed=steps, words=words)

    def say(self, sentence: str) -> None:
        """A line above the bar."""
        self._bar.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def evaluated(self, update: int, steps: int, gain: float) -> None:
        """A line for those who do not see the bar."""
        if not self.console.is_terminal:
            share = 100.0 * steps / self.total
            self.say(f"update {update}  {share:.0f} %  {number(self.rate(steps))} steps/s  return {number(gain)}")


def number(value: float) -> str:
    """A number that fits in a cell; a dash where there is none yet."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
