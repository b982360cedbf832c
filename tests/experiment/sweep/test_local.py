"""The executor of one machine: what has room, which GPU a run gets, and how the end of a process is told."""

import dataclasses
import os
import signal

import pytest

from hpml.experiment.sweep.job import Executor, Job
from hpml.experiment.sweep.local import LocalExecutor
from hpml.experiment.sweep.machine import Machine


@pytest.fixture
def job(tmp_path):
    """A job that fails as soon as its process has started: it has no config."""
    return Job(str(tmp_path), "runs/game/a/seeds-0-0", {}, cores=1.0, gpu=0.6)


def test_rooms_gpus_and_ends(job):
    executor = LocalExecutor(Machine(3, (10.0, 10.0)))
    assert isinstance(executor, Executor)
    b, c = (dataclasses.replace(job, name=f"runs/game/{name}/seeds-0-0") for name in "bc")
    huge = dataclasses.replace(c, cores=100.0, gpu=1.0)
    try:
        assert executor.room(huge)  # alone it may have all there is
        executor.start(job)
        executor.start(b)
        assert {executor._running[each.name].gpu for each in (job, b)} == {0, 1}
        assert not executor.room(huge)
        assert not executor.room(c)  # a core is left, but on no GPU is there as much
        assert executor.room(dataclasses.replace(c, gpu=0.4))
        assert not executor.room(dataclasses.replace(c, cores=2.0, gpu=0.0))
        os.kill(executor.pids()[job.name], signal.SIGKILL)
        ends = {}
        while len(ends) < 2:
            ends |= {news.name: news.outcome for news in executor.poll(0.5) if news.outcome}
        assert ends[job.name].state == "lost"
        assert "SIGKILL" in ends[job.name].reason
        assert ends[b.name].state == "failed"
        assert "config.json" in ends[b.name].reason
        assert not executor.pids()
        assert executor.room(huge)
    finally:
        executor.close()
    assert not executor.scratch.exists()


def test_the_number_at_once_goes_before_cores_and_memory(job):
    executor = LocalExecutor(Machine(1, (10.0,)), at_once=2)
    try:
        executor.start(job)
        assert executor.room(job)
        executor.start(dataclasses.replace(job, name="runs/game/b/seeds-0-0"))
        assert not executor.room(job)
    finally:
        pids = executor.pids()
        executor.close()  # which ends them
    assert len(pids) == 2
    for running in executor._running.values():
        assert running.process.poll() is not None


def test_what_a_killed_driver_left_is_removed_and_what_a_living_one_has_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = tmp_path / "hpml-sweep-dead"
    dead.mkdir()
    (dead / "lock").touch()
    first = LocalExecutor(Machine(1))
    second = LocalExecutor(Machine(1))
    assert sorted(tmp_path.iterdir()) == sorted([first.scratch, second.scratch])
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []
