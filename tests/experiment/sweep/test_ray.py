"""A real Ray cluster of several nodes on this machine, with a node and a worker killed in mid-sweep."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from hpml.experiment.config import complete, to_json, train_config
from hpml.experiment.metrics import read_metrics
from hpml.experiment.sweep import cluster as clusters
from hpml.experiment.sweep.driver import sweep
from hpml.experiment.sweep.job import Job
from hpml.experiment.sweep.jobs import Look
from hpml.experiment.sweep.place import open_place
from hpml.experiment.sweep.ray import RayExecutor

ray = pytest.importorskip("ray", reason="Ray has no wheel for this Python")
pytest.importorskip("fsspec")
Cluster = pytest.importorskip("ray.cluster_utils").Cluster

UPDATES = 960
# Most of the time goes into compiling; what is compiled need not be fast here.
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
QUIETLY = {"RAY_USAGE_STATS_ENABLED": "0", "XLA_FLAGS": QUICK, "OPENBLAS_NUM_THREADS": "1"}
SMALL = 80 * 2**20  # bytes of a node's object store
SOON = {"health_check_period_ms": 500, "health_check_failure_threshold": 2, "health_check_initial_delay_ms": 500}


def add_node(cluster, **options):
    """One more node; only what runs there sees the environment, for this process may have other tests to run."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in QUIETLY.items():
            patch.setenv(name, value)
        return cluster.add_node(object_store_memory=SMALL, **options)


@pytest.fixture(scope="module")
def cluster():
    found, folder = Cluster(), tempfile.mkdtemp(prefix="ray-")  # sockets lie in it: its name must be short
    os.mkdir(os.path.join(folder, "ray"))  # where Ray notes the address; on a fresh machine its own is not there
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        try:
            add_node(found, num_cpus=0, include_dashboard=False, temp_dir=folder, _system_config=SOON)
            for _ in range(2):
                add_node(found, num_cpus=1)
            yield found
        finally:
            ray.shutdown()
            found.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def job(place, seed, updates=UPDATES, cores=1.0):
    options = {"environments": 2, "rollout": 4, "hidden": 8, "passes": 1, "episodes": 0, "measure": False}
    options |= {"checkpoint_every": 32, "evaluate_every": 16, "tensorboard": False, "device": "cpu"}
    config = complete(train_config("matrix/stag_hunt", seed=seed, steps=updates * 8, **options))
    name = f"runs/stag_hunt/mappo/seeds-{seed}-{seed}"
    record = {"environment": "stag_hunt", "method": "mappo", "label": "MAPPO", "suite": "small"}
    return Job(str(place), name, to_json(config), cores, record=record)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The runs without interruption, by a process that knows nothing of sweeps."""
    out = tmp_path_factory.mktemp("whole")
    code = (
        "import json, sys; from pathlib import Path; from dataclasses import replace\n"
        "from hpml.experiment.config import from_json; from hpml.experiment.run import train\n"
        "for path, config in json.load(sys.stdin): train(replace(from_json(config), out=Path(path)))"
    )
    asked = [(str(out / str(seed)), job(out, seed).config) for seed in range(3)]
    command, env = [sys.executable, "-c", code], os.environ | QUIETLY
    subprocess.run(command, input=json.dumps(asked), text=True, check=True, capture_output=True, env=env)
    return [kept(out / str(seed)) for seed in range(3)]


def kept(folder):
    """The table without times, and the bytes of the last checkpoint: parameters, optimiser, environments, keys."""
    table = read_metrics(folder)
    timeless = [name for name in table.column_names if not name.startswith("seconds")]
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    return table.select(timeless), newest.name, newest.read_bytes()


def holder(place, name):
    """The process that holds the claim on a run."""
    return json.loads(place.read(max(place.names(f"claims/{name}"))))["pid"]


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Killer(threading.Thread):
    """Kills the worker of the run of seed 0 and the node of the run of seed 1 once they have a checkpoint or two."""

    def __init__(self, cluster, executor, place):
        super().__init__(daemon=True)
        self.cluster, self.executor, self.place, self.over = cluster, executor, place, threading.Event()
        self.left = {job(place.address, 0).name: self.worker, job(place.address, 1).name: self.node}
        self.seen = {}

    def run(self):
        while self.left and not self.over.wait(0.01):
            for name, update in Look(self.place).newest.items():
                running = self.executor._running.get(name)
                if name in self.left and update >= 32 and running and running.node:
                    self.seen[name] = update
                    self.left.pop(name)(name)

    def worker(self, name):
        os.kill(parent(holder(self.place, name)), signal.SIGKILL)

    def node(self, name):
        # All that runs on a lost machine stops with it; a raylet's end alone would leave the run time to finish.
        run = holder(self.place, name)
        there = [run, parent(run)]
        for pid in there:
            os.kill(pid, signal.SIGSTOP)
        number = self.executor._running[name].node
        store = next(each["ObjectStoreSocketName"] for each in ray.nodes() if each["NodeID"] == number)
        lost = next(each for each in self.cluster.worker_nodes if each.plasma_store_socket_name == store)
        self.cluster.remove_node(lost, allow_graceful=False)
        for pid in there:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_killed_worker_and_killed_node_cost_no_number(cluster, tmp_path, whole):
    place = open_place(f"file://{tmp_path}/sweep")
    executor = RayExecutor(cluster.address)
    killer = Killer(cluster, executor, place)
    killer.start()
    swept = sweep([job(place.address, seed) for seed in range(3)], executor)
    killer.over.set()
    killer.join()
    assert not killer.left
    assert [line.state for line in swept.lines] == ["finished"] * 3
    assert all(line.lost for line in swept.lines[:2])
    for seed, expected in enumerate(whole):
        name = job(place.address, seed).name
        assert killer.seen.get(name, 0) < UPDATES
        found = kept(tmp_path / "sweep" / name)
        assert found[0].equals(expected[0])
        assert found[1:] == expected[1:]
        states = [each["outcome"] for each in json.loads(place.read(f"{name}.json"))["attempts"]]
        assert states[-1] == "done"
        assert states.count("done") == 1
        # A process that outlives its actor for a moment writes a checkpoint and says that it stopped.
        assert set(states[:-1]) <= {"lost", "stopped"}
        assert len(states) > 1 or seed == 2
    add_node(cluster, num_cpus=1)


def test_stop_asks_for_a_checkpoint(cluster, tmp_path):
    place = open_place(str(tmp_path / "sweep"))
    asked = job(place.address, 0, updates=10**8)
    executor = RayExecutor(cluster.address)
    try:
        assert executor.room(asked)
        executor.start(asked)
        news = []
        while not any(each.update > 0 for each in news):
            news += executor.poll(1.0)
        executor.stop()
        while not any(each.outcome for each in news):
            news += executor.poll(1.0)
    finally:
        executor.close()
    assert news[-1].outcome.state == "stopped"
    assert news[-1].name == asked.name
    assert Look(place).newest[asked.name] >= max(each.update for each in news) > 0
    assert not ray.is_initialized()


def test_what_cannot_run_there_is_said(cluster, tmp_path, monkeypatch):
    """A run that fits no machine fails alone; a place that other machines do not see is refused before any run."""
    monkeypatch.chdir(tmp_path)
    executor = RayExecutor(cluster.address)
    try:
        assert executor.machine.cores == 1
        large = job(tmp_path, 0, cores=64.0)
        assert executor.room(large)
        executor.start(large)
        assert "64 cores" in executor.poll(1.0)[0].outcome.reason
        with pytest.raises(ValueError, match=r"cannot read memory://.*same access"):
            executor.start(job("memory://only/here", 0))
        with pytest.raises(ValueError, match=r"does not see .*folder that all machines share"):
            executor.start(job("/proc/self/cwd/sweep", 0))  # another folder for each process
        assert not executor._running
        assert not list(tmp_path.rglob("*.token"))
    finally:
        executor.close()


def test_locks_that_do_not_reach_are_seen(tmp_path):
    """Where nobody is kept out by a lock that is held, the machine says so."""
    token, place = "0" * 32, open_place(str(tmp_path))
    with clusters._marked(str(tmp_path), token):
        assert clusters.inspect(str(tmp_path), token)["locks"] is False
    place.write(f"claims/{token}.token", b"seen")
    found = clusters.inspect(str(tmp_path), token)
    assert (found["place"], found["locks"]) == ("", True)


def test_other_versions_are_said(cluster):
    from ray._private import ray_constants

    key, room = b"CLUSTER_METADATA", ray_constants.KV_NAMESPACE_CLUSTER
    notes = ray._raylet.GcsClient(address=cluster.address)
    true = notes.internal_kv_get(key, room)
    other = json.loads(true) | {"ray_version": "2.39.0", "python_version": "3.10.1"}
    notes.internal_kv_put(key, json.dumps(other).encode(), True, room)
    try:
        with pytest.raises(ValueError, match=r"has Ray 2\.39\.0 and Python 3\.10\.1, and this process has Ray"):
            RayExecutor(cluster.address)
    finally:
        notes.internal_kv_put(key, true, True, room)


def test_addresses_that_do_not_answer_are_said(monkeypatch):
    start = time.monotonic()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address, words in (
        (f"127.0.0.1:{port}", "No Ray cluster answers at"),
        ("no.such.host.invalid:6379", "No Ray cluster answers at"),
        ("127.0.0.1:99999", "No Ray cluster answers at"),
        ("head", "is no address"),
        ("ray://head:10001", "--ray auto"),
    ):
        with pytest.raises(ValueError, match=words) as caught:
            RayExecutor(address)
        assert str(caught.value).count("\n") == 0
    assert time.monotonic() - start < 60
    monkeypatch.setattr(clusters, "GREET", 3.0)
    with socket.socket() as other:  # it takes calls and says nothing
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ValueError, match="no Ray cluster"):
            RayExecutor(f"127.0.0.1:{other.getsockname()[1]}")
