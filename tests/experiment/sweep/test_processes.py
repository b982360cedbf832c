"""Real sweeps of real processes, really killed: what was finished is intact, and nothing runs twice."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from hpml.experiment.checkpoint import checkpoints
from hpml.experiment.metrics import read_metrics
from hpml.experiment.sweep.place import Folder
from hpml.experiment.sweep.record import attempts, read_record

UPDATES = 192
# The methods differ in what is kept only, so that one program is compiled for all of them.
SUITE = f"""
name = "small"
steps = {UPDATES * 8}
seeds = 1
environments = ["rps"]
[train]
environments = 2
rollout = 4
hidden = 4
passes = 1
episodes = 0
measure = false
tensorboard = false
evaluate_every = 1
checkpoint_every = 1
device = "cpu"
[methods.first]
algo = "ippo"
[methods.second]
algo = "ippo"
keep = 3
[methods.third]
algo = "ippo"
keep = 4
"""
# Most of the time goes into compiling; what is compiled need not be fast here.
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
NAMES = [f"runs/rps/{method}/seeds-0-0" for method in ("first", "second", "third")]


def start(folder, *options):
    file = folder / "small.toml"
    file.write_text(SUITE)
    command = [sys.executable, "-m", "hpml.cli", "sweep", str(file), "--out", str(folder / "out"), *options]
    env = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {QUICK}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def until(process, happened):
    while not happened():
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)


def newest(out, name):
    return max(checkpoints(out / name / "checkpoints"), default=-1)


def last(out, name):
    """The last attempt at a run."""
    return (attempts(read_record(Folder(out), name)) or [{}])[-1]


def starts(out, name):
    """From which update each start of a run went on."""
    with contextlib.suppress(FileNotFoundError):
        return [each["update"] for each in json.loads((out / name / "versions.json").read_text())["starts"]]
    return []


def kept(out, name):
    """The table without times, and the bytes of the last checkpoint."""
    table = read_metrics(out / name)
    timeless = [column for column in table.column_names if not column.startswith("seconds")]
    file = sorted((out / name / "checkpoints").iterdir())[-1]
    return table.select(timeless).to_pylist(), file.name, file.read_bytes()


def state(out, name):
    """Every file of a run folder and when it was written."""
    return {path: path.stat().st_mtime_ns for path in (out / name).rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep whose first worker is killed, then its driver, and which two drivers at once then finish."""
    folder = tmp_path_factory.mktemp("swept")
    out = folder / "out"
    driver = start(folder, "--jobs", "1")
    until(driver, lambda: newest(out, NAMES[0]) >= 4)
    os.kill(last(out, NAMES[0])["pid"], signal.SIGKILL)
    until(driver, lambda: newest(out, NAMES[1]) >= 4)
    finished = state(out, NAMES[0])
    orphan = last(out, NAMES[1])["pid"]
    driver.kill()
    said = driver.communicate()[0]
    both = [start(folder, "--jobs", "2"), start(folder, "--jobs", "2")]
    ends = [(*process.communicate(), process.returncode) for process in both]
    return out, said, finished, orphan, ends


def test_every_run_is_finished_and_none_ran_twice(swept):
    out, said, finished, _, ends = swept
    assert "first/seeds-0-0 is lost, and goes on from its last checkpoint: its process was killed (SIGKILL)" in said
    for words, _, status in ends:
        assert status == 0, words
        assert "3 of 3 finished" in words
    assert state(out, NAMES[0]) == finished  # nobody has touched it since
    outcomes = {name: [each["outcome"] for each in attempts(read_record(Folder(out), name))] for name in NAMES}
    assert outcomes[NAMES[0]] == ["lost", "done"]
    assert outcomes[NAMES[1]][-1] == outcomes[NAMES[2]][-1] == "done"
    assert sum(each.count("done") for each in outcomes.values()) == 3
    for name in NAMES:
        assert newest(out, name) == UPDATES
        # A start goes on from where the one before it was, and never from the beginning again.
        assert starts(out, name) == sorted(starts(out, name))
        assert starts(out, name).count(0) == 1
    assert len(starts(out, NAMES[2])) == 1


def test_a_worker_whose_driver_is_gone_leaves_a_checkpoint_and_ends(swept):
    out, _, _, orphan, _ = swept
    first = attempts(read_record(Folder(out), NAMES[1]))[0]
    assert first["pid"] == orphan
    assert first["outcome"] == "stopped"
    assert starts(out, NAMES[1])[1] >= 4


def test_the_numbers_are_those_of_runs_that_nobody_killed(swept):
    """The three methods are one method under three names: one that was never touched says what the others should be."""
    out = swept[0]
    table, name, _ = kept(out, NAMES[2])
    for other in NAMES[:2]:
        assert kept(out, other)[0] == table
        assert kept(out, other) == (table, name, kept(out, NAMES[2])[2])


def test_a_finished_sweep_starts_nothing(swept):
    out = swept[0]
    before = {name: state(out, name) for name in NAMES}
    process = start(out.parent)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    assert "starts" not in said
    assert {name: state(out, name) for name in NAMES} == before


def test_a_stopped_sweep_goes_on_and_what_fails_stops_nothing(swept, tmp_path):
    out = tmp_path / "out"
    stranger = out / NAMES[0] / "photo.jpg"
    stranger.parent.mkdir(parents=True)
    stranger.touch()
    shutil.copytree(swept[0] / NAMES[1], out / NAMES[1])
    for number, path in enumerate(sorted((out / NAMES[1] / "checkpoints").iterdir())):
        path.rename(path.with_name(f"{number:010d}.safetensors")).write_bytes(b"torn")
    damaged = state(out, NAMES[1])
    driver = start(tmp_path, "--jobs", "1")
    until(driver, lambda: newest(out, NAMES[2]) >= 2)
    driver.send_signal(signal.SIGINT)
    said, _ = driver.communicate()
    assert driver.returncode == 128 + signal.SIGINT, said
    left = newest(out, NAMES[2])
    assert last(out, NAMES[2])["outcome"] == ("stopped" if left < UPDATES else "done")  # which may be before the signal
    for again in (False, True):
        assert "first/seeds-0-0 is set aside: runs/rps/first/seeds-0-0 holds other things (photo.jpg)" in said
        assert "second/seeds-0-0 failed" in said
        assert "No checkpoint in" in last(out, NAMES[1])["reason"]
        assert stranger.exists()
        assert {path for path in state(out, NAMES[1]) if path.parent.name == "checkpoints"} < set(damaged)
        if not again:
            process = start(tmp_path)
            said, _ = process.communicate()
            assert process.returncode == 1, said
            assert ("third/seeds-0-0 goes on" in said) == (left < UPDATES)
            assert "1 of 3 finished, 1 failed, 1 set aside" in said
    assert [each["outcome"] for each in attempts(read_record(Folder(out), NAMES[1]))] == ["failed", "failed"]
    assert kept(out, NAMES[2]) == kept(swept[0], NAMES[2])
