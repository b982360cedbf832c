"""The actor of one run on a Ray cluster: starts the run's process on its machine, and says how it goes.

Imports neither JAX nor Ray: it is a process beside the one that trains.
"""

import glob
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

from hpml.experiment.sweep.job import News
from hpml.experiment.sweep.local import CACHE, LocalExecutor
from hpml.experiment.sweep.machine import Machine
from hpml.experiment.sweep.wire import news_line, read_job

QUIET = 30.0  # seconds after which an actor answers although it has no news
APART = 1.0  # seconds between two news of one run


class Runner:
    """The actor of one run, on the machine that Ray found for it."""

    def __init__(self, token: str) -> None:
        import ray  # which is there: it made this

        self.node = ray.get_runtime_context().get_node_id()
        self.compiled = _folder(token, "compiled")
        self.scratch = tempfile.mkdtemp(prefix=_folder(token))
        os.environ["TMPDIR"] = tempfile.tempdir = self.scratch  # for what a killed process leaves
        self.changed = threading.Condition()
        self.count, self.newest, self.told = 0, "", 0.0
        self.stopping = False
        self.executor: LocalExecutor | None = None

    def run(self, line: str) -> str:
        """Run a job to its end, and say how it ended."""
        job = read_job(line)
        os.environ.setdefault(CACHE, self.compiled)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
        if not job.gpu:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        # Which GPU it is, Ray has said in the environment.
        executor = LocalExecutor(Machine(max(1, round(job.cores))), at_once=1)
        try:
            executor.start(job)
            self.executor = executor
            if self.stopping:
                executor.stop()
            while True:
                for news in executor.poll(QUIET):
                    if news.outcome is not None:
                        return news_line(news)
                    self._tell(news)
        finally:
            self.executor = None
            executor.close()
            shutil.rmtree(self.scratch, ignore_errors=True)

    def news(self, count: int) -> tuple[str, int, str]:
        """This machine, and the newest news: once its count is another one, or after a while."""
        with self.changed:
            if self.count == count:
                self.changed.wait(QUIET)
            pause = self.told + APART - time.monotonic()
        if pause > 0 and count >= 0:
            time.sleep(pause)
        with self.changed:
            self.told = time.monotonic()
            return self.node, self.count, self.newest

    def stop(self) -> None:
        """Ask for a checkpoint and the end."""
        self.stopping = True
        if self.executor is not None:
            self.executor.stop()

    def _tell(self, news: News) -> None:
        with self.changed:
            self.count, self.newest = self.count + 1, news_line(news)
            self.changed.notify_all()


def forget(token: str) -> None:
    """Delete what a sweep's runs have compiled on this machine, and what those that were killed have left."""
    for path in glob.glob(f"{_folder(token)}*"):
        shutil.rmtree(path, ignore_errors=True)


def _folder(token: str, name: str = "") -> str:
    """A folder of a sweep on this machine; nobody can guess its name, so nobody else can put compiled code there."""
    return str(Path(tempfile.gettempdir()) / f"hpml-{token}-{name}")
