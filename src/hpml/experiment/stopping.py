"""How a run ends before its end: signals that wait for the update under way, and what ran out, in one sentence."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax

from hpml.experiment.checkpoint import FULL, checkpoints


class Stop:
    """Whether a signal asked the run to stop; a second one stops it at once."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __call__(self, number: int, frame: Any) -> None:
        """Take note of a signal."""
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = number


@contextmanager
def interruptible() -> Iterator[Stop]:
    """Ctrl-C and SIGTERM are noted and not obeyed at once; outside the main thread signals are left alone."""
    stop = Stop()
    try:
        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:
        before = {}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """What the run in a folder can run out of, and workers that cannot go on, in one sentence."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise ValueError(
            f"The device ran out of memory{_whole(folder)}. Use fewer --seeds, a smaller --minibatch or fewer "
            "--environments in a new run, or go on with --resume --device cpu."
        ) from error
    except RuntimeError as error:
        if "worker" not in str(error):
            raise
        raise ValueError(f"{str(error).rstrip('.')}{_whole(folder)}; --resume goes on from it.") from error
    except OSError as error:
        if error.errno not in FULL:
            raise
        begun = (folder / "config.json").exists()  # a folder without one is no run yet
        advice = "make room and go on with --resume" if begun else "make room and give the same command again"
        raise ValueError(f"The disk is full{_whole(folder)}: {advice}.") from error


def _whole(folder: Path) -> str:
    known = checkpoints(folder / "checkpoints")
    return f"; the checkpoint of update {known[-1]} is whole" if known else ""
