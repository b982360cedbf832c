"""The executor of one machine: a fresh process for each run, as many at once as there is room for."""

import contextlib
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hpml.experiment.sweep.job import Job, News, Outcome
from hpml.experiment.sweep.machine import Machine, this_machine
from hpml.experiment.sweep.place import fcntl
from hpml.experiment.sweep.wire import job_line, read_news

PATIENCE = 10.0  # seconds that a process has to end once nobody waits for its checkpoint any more
PREFIX = "hpml-sweep-"
CACHE = "JAX_COMPILATION_CACHE_DIR"


@dataclass
class Running:
    """A process, its job, the GPU that it was given, and where it complains before it has a log."""

    process: subprocess.Popen[str]
    job: Job
    gpu: int
    early: Path
    began: float


class LocalExecutor:
    """Runs jobs as processes of this machine (see `Executor`).

    What one run has compiled the others of the sweep load, from a folder that goes with the sweep: it is only used by
    this machine, whose processor the code was made for, and by this user.
    """

    def __init__(self, machine: Machine | None = None, at_once: int = 0) -> None:
        self.machine, self.at_once = machine or this_machine(), at_once
        self.scratch, self._lock = _scratch()
        self._running: dict[str, Running] = {}
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()

    def room(self, job: Job) -> bool:
        """Whether a job can start now: cores and a GPU's memory are left, or nothing else runs."""
        if not self._running:
            return True
        if self.at_once:
            return len(self._running) < self.at_once
        cores = sum(each.job.cores for each in self._running.values())
        return cores + job.cores <= self.machine.cores and (not job.gpu or self._gpu(job) is not None)

    def start(self, job: Job) -> None:
        """Start a process for a job."""
        gpu = self._gpu(job)
        early = self.scratch / f"{len(list(self.scratch.iterdir()))}-{time.monotonic_ns()}.txt"
        with early.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "hpml.experiment.sweep.unit"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=self._environment(job, gpu),
                start_new_session=True,  # Ctrl-C is for the driver, which asks its runs to stop
            )
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # one that is gone already is seen by its reader
            process.stdin.write(job_line(job) + "\n")
            process.stdin.flush()
        running = Running(process, job, -1 if gpu is None else gpu, early, time.monotonic())
        self._running[job.name] = running
        threading.Thread(target=self._listen, args=(running,), daemon=True, name=job.name).start()

    def poll(self, seconds: float) -> list[News]:
        """Wait for news, at most so long; the end of a process makes room."""
        found: list[News] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._news.get(timeout=seconds))
            while True:
                found.append(self._news.get_nowait())
        for news in found:
            if news.outcome is not None:
                self._running.pop(news.name, None)
        return found

    def stop(self) -> None:
        """Ask every run for a checkpoint and its end."""
        for running in self._running.values():
            _hang_up(running.process)

    def close(self) -> None:
        """End what is left."""
        left = [running.process for running in self._running.values()]
        for process in left:
            _hang_up(process)
            with contextlib.suppress(OSError):
                process.send_signal(signal.SIGTERM)
        until = time.monotonic() + PATIENCE
        for process in left:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)
        self._lock.close()

    def pids(self) -> dict[str, int]:
        """The process number of every job that runs."""
        return {name: running.process.pid for name, running in self._running.items()}

    def _listen(self, running: Running) -> None:
        process, job = running.process, running.job
        outcome: Outcome | None = None
        assert process.stdout is not None
        for line in process.stdout:
            news = read_news(line)
            if news is None:
                continue
            if news.outcome is not None:
                outcome = news.outcome
            else:
                self._news.put(news)
        status = process.wait()
        if outcome is None:
            outcome = Outcome("lost", _lost(status, running.early), time.monotonic() - running.began)
        self._news.put(News(job.name, outcome=outcome))

    def _gpu(self, job: Job) -> int | None:
        """The GPU with the most room for a job; None where there is none."""
        if not job.gpu or not self.machine.gpus:
            return None
        used = [0.0] * len(self.machine.gpus)
        for running in self._running.values():
            if running.gpu >= 0:
                used[running.gpu] += running.job.gpu
        best = min(range(len(used)), key=used.__getitem__)
        return best if used[best] + job.gpu <= 1.0 + 1e-9 or self.at_once else None

    def _environment(self, job: Job, gpu: int | None) -> dict[str, str]:
        env = dict(os.environ)
        env.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several runs share a GPU
        if CACHE not in env:
            env[CACHE] = str(self.scratch / "compiled")
            env.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
        if gpu is not None and len(self.machine.gpus) > 1:
            seen = os.environ.get("CUDA_VISIBLE_DEVICES")
            env["CUDA_VISIBLE_DEVICES"] = seen.split(",")[gpu] if seen else str(gpu)
        return env


def _scratch() -> tuple[Path, IO[str]]:
    """A folder of this driver's own, and the lock that says so; those of drivers that were killed are removed."""
    for old in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock"):
        with contextlib.suppress(OSError), old.open("r+") as handle:  # other people's cannot be opened
            if _locked(handle):
                shutil.rmtree(old.parent, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    handle = (folder / "lock").open("w")
    _locked(handle)
    return folder, handle


def _locked(handle: IO[str]) -> bool:
    """Whether this process could lock a file."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _hang_up(process: subprocess.Popen[str]) -> None:
    """Close the process's input, which asks it to stop."""
    if process.stdin is not None and not process.stdin.closed:
        with contextlib.suppress(OSError):
            process.stdin.close()


def _lost(status: int, early: Path) -> str:
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = str(-status)
        return f"its process was killed ({name})"
    said = early.read_text().strip().splitlines() if early.exists() else []
    return f"its process ended with status {status}" + (f": {said[-1]}" if said else "")
