"""One run of a sweep in a process of its own: `python -m hpml.experiment.sweep.unit`.

The job is the first line of standard input. News go to standard output, a line each, and the last one is the outcome;
everything else that is said goes to the run's log. The run ends with a checkpoint at SIGTERM, and when standard input
is closed, which happens however the parent ends.
"""

import contextlib
import dataclasses
import json
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from hpml.experiment.build import plan
from hpml.experiment.checkpoint import checkpoints
from hpml.experiment.config import TrainConfig, from_json
from hpml.experiment.run import train
from hpml.experiment.store import InUse
from hpml.experiment.sweep.claim import Busy
from hpml.experiment.sweep.job import Job, News, Outcome
from hpml.experiment.sweep.place import Work, open_place
from hpml.experiment.sweep.record import note_end, note_start
from hpml.experiment.sweep.wire import news_line, read_job

APART = 0.5  # seconds between two news of a run
Say = Callable[[News], None]


def work(job: Job, say: Say, ending: threading.Event, log: Callable[[Path], None] = lambda path: None) -> Outcome:
    """Train the run of a job, or go on with it, until it is finished or `ending` is set.

    `log` hears once where the run's log lies.
    """
    start = time.monotonic()

    def ended(state: Any, reason: str = "") -> Outcome:
        return Outcome(state, reason, time.monotonic() - start)

    try:
        place = open_place(job.place)
        with place.work(job.name) as held:
            log(held.log)
            config = going_on(job, held.folder)
            newest = max(checkpoints(held.folder / "checkpoints"), default=-1)
            if newest >= config.updates:
                say(News(job.name, newest, newest))
                return ended("done")
            note_start(place, job)
            try:
                outcome = ended(*_train(job, config, held, say, ending))
            except Busy:
                raise
            except InUse as error:  # by `hpml train`, which knows nothing of claims
                outcome = ended("busy", str(error))
            except Exception as error:
                traceback.print_exc()
                outcome = ended("failed", _sentence(error))
            note_end(place, job, outcome)
            return outcome
    except Busy as error:
        return ended("busy", str(error))
    except Exception as error:
        traceback.print_exc()
        return ended("failed", _sentence(error))


def going_on(job: Job, folder: Path) -> TrainConfig:
    """The job's config for a folder: a run that is there goes on, and keeps the rhythm of its evaluations."""
    config = dataclasses.replace(from_json(job.config), out=folder, resume=False)
    file = folder / "config.json"
    if not file.exists():
        return config
    stored = json.loads(file.read_text())
    return dataclasses.replace(config, evaluate_every=stored["evaluate_every"], resume=True)


def _train(job: Job, config: TrainConfig, held: Work, say: Say, ending: threading.Event) -> tuple[str, str]:
    told = -math.inf

    def watch(update: int, total: int, gain: float) -> bool:
        nonlocal told
        now = time.monotonic()
        if now - told >= APART or update >= total:
            told = now
            say(News(job.name, update, total, gain))
        return ending.is_set()

    if ending.is_set():
        return "stopped", ""
    console = Console(stderr=True, width=120)
    result = train(config, console, plan, watch, lambda update: held.push())
    if result.update < result.total:
        return "stopped", ""
    return "done", ""


def _sentence(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else "no reason given"
    return said if isinstance(error, ValueError) else f"{type(error).__name__}: {said}"


def main() -> None:
    """Read a job, work on it, say how it ended."""
    channel = os.dup(1)  # what prints, prints to the log
    os.dup2(2, 1)
    job = read_job(sys.stdin.readline())
    ending = threading.Event()

    def say(news: News) -> None:
        try:
            os.write(channel, (news_line(news) + "\n").encode())
        except OSError:  # nobody listens any more
            ending.set()

    def wait_for_end() -> None:
        with contextlib.suppress(OSError, ValueError):
            os.read(0, 1)
        ending.set()

    threading.Thread(target=wait_for_end, daemon=True, name="parent").start()

    def log(path: Path) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(handle, 1)
        os.dup2(handle, 2)

    outcome = work(job, say, ending, log)
    say(News(job.name, 0, 0, math.nan, outcome))
    sys.stderr.flush()
    os._exit(0)  # the run is on the disk; there is nothing to tidy up that the system does not


if __name__ == "__main__":
    main()
