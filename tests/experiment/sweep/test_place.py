"""Places: what is pushed is pulled again, in an order that leaves no half state, and a run has one worker at a time."""

import json
import os
import socket
import subprocess
import sys
import threading
import uuid
from contextlib import ExitStack

import pytest

from hpml.experiment.sweep import claim as claims
from hpml.experiment.sweep.claim import Busy, identity, take
from hpml.experiment.sweep.jobs import Look
from hpml.experiment.sweep.place import Folder, open_place
from hpml.experiment.sweep.remote import Store

pytest.importorskip("fsspec")
RUN = "runs/stag_hunt/mappo/seeds-0-1"


@pytest.fixture(scope="module")
def bucket():
    """A bucket of a server that talks like S3, where there is one to be had."""
    moto = pytest.importorskip("moto.server", reason="moto's server is not installed")
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    server = moto.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        s3fs.S3FileSystem().mkdir("sweeps")
        yield "sweeps"
    server.stop()


def _address(kind, request, tmp_path):
    if kind == "s3":
        return f"s3://{request.getfixturevalue('bucket')}/{uuid.uuid4().hex}"
    return {"folder": f"{tmp_path}/a", "file": f"file://{tmp_path}/a", "memory": f"memory://{uuid.uuid4().hex}/a"}[kind]


@pytest.fixture(params=["memory", "file", "s3"])
def address(request, tmp_path):
    return _address(request.param, request, tmp_path)


@pytest.fixture(params=["folder", "file", "memory", "s3"])
def place(request, tmp_path):
    return open_place(_address(request.param, request, tmp_path))


def _save(folder, update, keep=2, content="state"):
    """What `train` leaves at a checkpoint."""
    for part in ("metrics", "checkpoints", "events"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "lock").touch()
    (folder / "events" / f"{update}.curve").write_text("curve")
    (folder / "metrics" / f"{update:010d}.parquet").write_text(f"rows to {update}")
    (folder / "checkpoints" / f"{update:010d}.safetensors").write_text(f"{content} {update}")
    for old in sorted((folder / "checkpoints").iterdir())[:-keep]:
        old.unlink()


def _gone(place, **changes):
    """A claim of a process of another machine that has said nothing since."""
    held = identity() | {"machine": "another"} | changes
    place.write(f"claims/{RUN}/00000007.json", json.dumps(held).encode())
    return held


class Clock:
    """Sleeping that takes no time; `each` is called at every sleep."""

    def __init__(self, each=lambda: None):
        self.slept, self.each = 0.0, each

    def __call__(self, seconds):
        self.slept += seconds
        self.each()


def test_files_are_written_read_listed_and_removed(place):
    assert place.read("suites/quick.toml") is None
    assert place.names() == place.names("suites") == []
    place.write("suites/quick.toml", b"one")
    place.write("suites/quick.toml", b"two")
    place.write("runs/a.json", b"{}")
    assert place.read("suites/quick.toml") == b"two"
    assert place.names() == ["runs/a.json", "suites/quick.toml"]
    assert place.names("suites") == ["suites/quick.toml"]
    place.remove("suites/quick.toml")
    place.remove("suites/quick.toml")
    assert place.names("suites") == []


def test_run_goes_on_elsewhere_from_what_was_pushed(place):
    with place.work(RUN) as work:
        _save(work.folder, 10)
        work.log.write_text("begun\n")
        work.push()
    with place.work(RUN) as work:
        assert (work.folder / "checkpoints" / "0000000010.safetensors").read_text() == "state 10"
        assert (work.folder / "metrics" / "0000000010.parquet").read_text() == "rows to 10"
        assert work.log.read_text() == "begun\n"
        for update in (20, 30):
            _save(work.folder, update)
            work.push()
        (work.folder / "metrics" / "0000000030.parquet").unlink()  # as a run that goes on drops rows
        work.push()
    assert Look(place).newest == {RUN: 30}
    kept = {name.removeprefix(f"{RUN}/") for name in place.names(RUN)} - {"lock"}
    assert kept == {
        "config.json",
        *(f"events/{update}.curve" for update in (10, 20, 30)),
        *(f"metrics/{update:010d}.parquet" for update in (10, 20)),
        *(f"checkpoints/{update:010d}.safetensors" for update in (20, 30)),
    }


def test_whenever_a_push_breaks_a_whole_state_is_there(address, monkeypatch):
    """Cut the push off after each of its operations in turn: there is a checkpoint, and its rows are there."""
    monkeypatch.setattr("hpml.experiment.sweep.remote.TRIES", 1)
    operations = 0
    for cut in range(100):
        store = Store(f"{address}-{cut}")
        with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
            work = stack.enter_context(store.work(RUN))
            _save(work.folder, 10, keep=1)
            work.push()
            _save(work.folder, 20, keep=1)
            done = _cut_after(patch, store, cut)
            try:
                work.push()
            except ValueError:
                pass
            else:
                operations = cut
            state = {name.removeprefix(f"{RUN}/") for name in Store(store.address).names(RUN)}
            patch.undo()
        updates = [update for update in (10, 20) if f"checkpoints/{update:010d}.safetensors" in state]
        assert updates
        assert all(f"metrics/{update:010d}.parquet" in state for update in updates)
        if operations:
            break
    assert updates == [20]
    assert operations == done["count"] == 5  # curve, rows, checkpoint, config (touched), and the old checkpoint


def _cut_after(patch, store, cut):
    done = {"count": 0}
    for name, real in (("put", store.put), ("remove", store.remove)):

        def counted(*arguments, real=real):
            if done["count"] == cut:
                raise ConnectionError("the line is dead")
            done["count"] += 1
            return real(*arguments)

        patch.setattr(store, name, counted)
    return done


def test_two_do_not_work_on_one_run(place):
    with place.work(RUN):
        with pytest.raises(Busy), open_place(place.address).work(RUN):
            pass
        with place.work(RUN.replace("0-1", "2-3")):  # another one is free
            pass
    with place.work(RUN):
        pass


def test_many_at_once_one_gets_it(address):
    store, got, start = Store(address), [], threading.Barrier(8)
    if address.startswith("memory"):
        pytest.skip("memory:// looks first and writes then")

    def claim():
        start.wait()
        try:
            got.append(take(store, f"claims/{RUN}"))
        except Busy:
            got.append(None)

    for _ in range(5):
        threads = [threading.Thread(target=claim) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        held = [each for each in got if each is not None]
        assert len(got) == 8
        assert len(held) == 1
        held[0].release()
        got.clear()


def test_claim_of_a_dead_process_is_free_at_once(address):
    store = Store(address)
    code = (
        "import os; from hpml.experiment.sweep.claim import take; from hpml.experiment.sweep.place import open_place\n"
        f"take(open_place({address!r}), 'claims/{RUN}'); os.kill(os.getpid(), 9)"
    )
    if address.startswith("memory"):
        child = subprocess.Popen([sys.executable, "-c", "pass"])
        child.wait()
        _gone(store, machine=identity()["machine"], pid=child.pid)
    else:
        subprocess.run([sys.executable, "-c", code], check=False, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    assert len(store.names(f"claims/{RUN}")) == 1
    clock = Clock()
    take(store, f"claims/{RUN}", clock)
    assert clock.slept == 0.0


def test_claim_of_another_machine_is_watched(address):
    store = Store(address)
    held, count = _gone(store), iter(range(1000))
    clock = Clock()
    mine = take(store, f"claims/{RUN}", clock)  # it never changes: its holder is gone
    assert mine.number == 8
    assert clock.slept >= claims.STALE
    assert store.names(f"claims/{RUN}") == [f"claims/{RUN}/00000008.json"]

    def renew():
        if clock.slept >= claims.RENEW:
            store.write(f"claims/{RUN}/00000009.json", json.dumps(held | {"renewals": next(count)}).encode())

    mine.release()
    store.write(f"claims/{RUN}/00000009.json", json.dumps(held).encode())
    clock = Clock(renew)
    with pytest.raises(Busy):  # it changes: its holder is at work
        take(store, f"claims/{RUN}", clock)
    assert clock.slept < 2 * claims.RENEW


def test_who_was_taken_over_writes_nothing_more(address):
    store = Store(address)

    def lose():
        with store.work(RUN) as work:
            _save(work.folder, 10)
            work.push()
            store.write(f"claims/{RUN}/00000002.json", json.dumps(identity()).encode())
            _save(work.folder, 20)
            work.push()

    with pytest.raises(Busy, match="taken over"):
        lose()
    assert Look(store).newest == {RUN: 10}


def test_who_could_not_renew_stops_before_another_may_take_over(address, monkeypatch):
    store = Store(address)
    held = take(store, f"claims/{RUN}")
    monkeypatch.setattr(held, "renewed", held.renewed - 0.8 * claims.STALE)
    with pytest.raises(Busy):
        held.renew()


def test_store_that_ignores_exclusive_creation_is_read_again(tmp_path, monkeypatch):
    """Two create the same number; the second write counts, and the first finds it when it looks again."""
    store = Store(f"file://{tmp_path}/sweep")
    store.exclusive = False
    monkeypatch.setattr(store, "create", lambda name, data: store.write(name, data) or True)
    other = identity() | {"machine": "another"}

    def overwrite():
        if store.names(f"claims/{RUN}") and clock.slept <= claims.PAUSE:
            store.write(f"claims/{RUN}/00000001.json", json.dumps(other).encode())
        else:
            store.write(f"claims/{RUN}/00000001.json", json.dumps(other | {"renewals": clock.slept}).encode())

    clock = Clock(overwrite)
    with pytest.raises(Busy):
        take(store, f"claims/{RUN}", clock)


@pytest.mark.parametrize(
    ("address", "words"),
    [("s4://bucket/x", "Did you mean"), ("nothing://x", "no address that fsspec knows"), ("dropbox://x", "package")],
)
def test_address_that_is_none_is_said(address, words):
    with pytest.raises(ValueError, match=words):
        open_place(address)


def test_store_that_is_not_reached_is_said(bucket, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    pytest.importorskip("s3fs").S3FileSystem.clear_instance_cache()
    with pytest.raises(ValueError, match=r"s3://sweeps/x cannot be reached \(could not connect"):
        open_place("s3://sweeps/x")


def test_file_system_without_locks_is_said(tmp_path, monkeypatch):
    def flock(handle, kind):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("hpml.experiment.sweep.place.fcntl.flock", flock)
    with pytest.raises(ValueError, match=f"no locks .*give it as file://{tmp_path}"), Folder(tmp_path).work(RUN):
        pass
