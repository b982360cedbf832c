"""The executor of a Ray cluster: each run is an actor with its cores and its share of a GPU, wherever there is room.

An actor runs the same process for its run as the executor of one machine does. When a machine or an actor is lost the
driver hears so and starts the run again elsewhere, where it goes on from its last checkpoint at the place. Nothing that
counts lies in Ray: results are at the place, and a claim there keeps two processes from one run.
"""

import contextlib
import dataclasses
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml.experiment.sweep.actor import Runner, forget
from hpml.experiment.sweep.cluster import ask, check, connect, here, nodes, on_each
from hpml.experiment.sweep.job import Job, News, Outcome
from hpml.experiment.sweep.wire import job_line, read_news

Room = tuple[float, float]  # cores and GPUs
AGE = 2.0  # seconds for which what is known of the cluster's machines is good
PATIENCE = 10.0  # seconds that actors have to end


@dataclass
class Running:
    """A job, its actor, and the two questions that are open: how it ends, and what is new."""

    job: Job
    actor: Any
    end: Any
    news: Any
    began: float
    node: str = ""


class RayExecutor:
    """Runs jobs on a Ray cluster (see `Executor`).

    `address` is that of the cluster's head, `host:port`, or `auto` for the cluster that this machine belongs to. The
    cluster is connected and its machines are looked at when this is made; the place is tried from each of them before
    the first run starts.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.ray, self._ours = connect(address)
        self.token = uuid.uuid4().hex
        self._running: dict[str, Running] = {}
        self._ended: list[News] = []
        self._checked: set[str] = set()
        self._known: tuple[float, dict[str, Room]] = (-AGE, {})
        self._most: set[Room] = set()  # of all machines that were ever there
        self._doubts: dict[str, Any] = {}  # machines that lost a run, and the question whether they are still there
        try:
            self.machine = check(self.ray)
        except BaseException:
            self.close()
            raise

    def room(self, job: Job) -> bool:
        """Whether the cluster has cores and GPUs left for a job; one that fits no machine is let in, and fails."""
        machines = self._machines().values()
        if not _fits(job, self._most):
            return True
        cores = sum(each.job.cores for each in self._running.values()) + job.cores
        gpus = sum(each.job.gpu for each in self._running.values()) + job.gpu
        enough = cores <= sum(each for each, _ in machines) and gpus <= sum(each for _, each in machines) + 1e-9
        return enough and _fits(job, machines) and not self._in_doubt()

    def start(self, job: Job) -> None:
        """Start an actor for a job; Ray finds the machine."""
        if "://" not in job.place:
            job = dataclasses.replace(job, place=str(Path(job.place).absolute()))
        if job.place not in self._checked:
            check(self.ray, job.place)
            self._checked.add(job.place)
        self._machines()
        if not _fits(job, self._most):
            needs = f"{job.cores:g} cores" + (f" and {job.gpu:g} of a GPU" if job.gpu else "")
            reason = f"no machine of the cluster has the {needs} that the run is given: try fewer --workers"
            self._ended.append(News(job.name, outcome=Outcome("failed", reason)))
            return
        make = self.ray.remote(num_cpus=job.cores, num_gpus=round(job.gpu, 4), max_restarts=0, max_concurrency=4)(
            Runner
        )
        actor = make.remote(self.token)
        end, news = actor.run.remote(job_line(job)), actor.news.remote(-1)
        self._running[job.name] = Running(job, actor, end, news, time.monotonic())

    def poll(self, seconds: float) -> list[News]:
        """Wait for news, at most so long."""
        found, self._ended = self._ended, []
        asked = {ref: each for each in self._running.values() for ref in (each.end, each.news)}
        if not asked:
            if not found:
                time.sleep(seconds)
            return found
        ready, _ = self.ray.wait(list(asked), num_returns=1, timeout=0 if found else seconds)
        if ready:
            ready, _ = self.ray.wait(list(asked), num_returns=len(asked), timeout=0)
        for ref in ready:
            running = asked[ref]
            if ref == running.news:
                found += self._heard(running)
        for ref in ready:
            running = asked[ref]
            if ref == running.end:
                outcome = self._outcome(running)
                found.append(News(running.job.name, outcome=outcome))
                self._drop(running)
                if outcome.state == "lost" and running.node in nodes(self.ray):
                    self._doubts[running.node] = ask(self.ray, running.node, here)
        return found

    def stop(self) -> None:
        """Ask every run for a checkpoint and its end; one that still waits for a machine ends at once."""
        for running in list(self._running.values()):
            if running.node:
                running.actor.stop.remote()
            else:
                self._ended.append(News(running.job.name, outcome=Outcome("stopped")))
                self._drop(running)

    def close(self) -> None:
        """End what is left, and leave the cluster as it was."""
        left = list(self._running.values())
        with contextlib.suppress(Exception):  # the cluster may be what is gone
            for running in left:
                running.actor.stop.remote()
            if left:
                self.ray.wait([each.end for each in left], num_returns=len(left), timeout=PATIENCE)
            for running in left:
                self._drop(running)
            if not left:  # else their processes may still be writing
                on_each(self.ray, forget, (self.token,), PATIENCE)
            if self._ours:
                self.ray.shutdown()

    def _heard(self, running: Running) -> list[News]:
        """News of a run, and the next question; where there is no answer the run's end says why."""
        try:
            running.node, count, line = self.ray.get(running.news)
        except self.ray.exceptions.RayError:
            running.news = running.end
            return []
        running.news = running.actor.news.remote(count)
        news = read_news(line)
        return [] if news is None else [news]

    def _outcome(self, running: Running) -> Outcome:
        errors = self.ray.exceptions
        seconds = time.monotonic() - running.began
        try:
            news = read_news(self.ray.get(running.end))
        except errors.RayTaskError as error:  # our own doing, and the same everywhere
            return Outcome("failed", f"the actor of the run broke: {error.cause!r}", seconds)
        except errors.RayError as error:
            return Outcome("lost", f"its machine or its actor is gone ({type(error).__name__})", seconds)
        assert news is not None
        assert news.outcome is not None
        return news.outcome

    def _drop(self, running: Running) -> None:
        self._running.pop(running.job.name, None)
        with contextlib.suppress(Exception):
            self.ray.kill(running.actor)  # its process ends with it

    def _machines(self) -> dict[str, Room]:
        """Cores and GPUs of each machine that is there now."""
        when, known = self._known
        if time.monotonic() - when > AGE:
            resources = {name: node["Resources"] for name, node in nodes(self.ray).items()}
            known = {name: (has["CPU"], has.get("GPU", 0.0)) for name, has in resources.items()}
            self._known = time.monotonic(), known
            self._most |= set(known.values())
        return known

    def _in_doubt(self) -> bool:
        """Whether a machine that lost a run may be gone: Ray takes a while to know, and gives it new runs till then."""
        known = self._machines()
        for name, ref in list(self._doubts.items()):
            if name not in known or self.ray.wait([ref], timeout=0)[0]:
                del self._doubts[name]
        return bool(self._doubts)


def _fits(job: Job, machines: Iterable[Room]) -> bool:
    return any(job.cores <= cores and job.gpu <= gpus for cores, gpus in machines)
