"""Metrics come back as they were logged; a run that goes on leaves no trace of the rows that it takes back."""

import os
import subprocess
import sys

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from hpml.experiment.metrics import MetricsWriter, columns, read_metrics
from hpml.experiment.trackers import TensorBoard, WeightsAndBiases


def log(writer, updates, offset=0.0):
    for update in updates:
        for seed in (3, 4):
            more = {"evaluation/return": 0.1} if update % 2 == 0 else {}
            writer.log(update, 10 * update, seed, {"loss": update / 3 + seed + offset, **more})


def test_rows_come_back_in_order_and_exactly(tmp_path):
    writer = MetricsWriter(tmp_path / "metrics")
    for updates in ([1], [2, 3], [4]):
        log(writer, updates)
        writer.flush()
    found = columns(read_metrics(tmp_path))
    np.testing.assert_array_equal(found["update"], np.repeat([1, 2, 3, 4], 2))
    np.testing.assert_array_equal(found["steps"], 10 * found["update"])
    np.testing.assert_array_equal(found["seed"], [3, 4] * 4)
    np.testing.assert_array_equal(found["loss"], found["update"] / 3 + found["seed"])
    np.testing.assert_array_equal(found["evaluation/return"], np.where(found["update"] % 2, np.nan, 0.1))


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("after", [0, 1, 2, 3, 4, 5])
def test_going_on_from_any_update_gives_the_uninterrupted_table(tmp_path, after, flushed):
    whole = MetricsWriter(tmp_path / "whole")
    log(whole, range(1, 7))
    whole.flush()
    killed = MetricsWriter(tmp_path / "killed")
    for updates in ([1, 2], [3, 4, 5]):
        log(killed, updates)
        if flushed or updates[0] == 1:
            killed.flush()
    (killed.folder / "0000000009.tmp").write_bytes(b"half")
    resumed = MetricsWriter(tmp_path / "killed")
    known = 5 if flushed else 2
    resumed.forget_after(after)
    log(resumed, range(min(after, known) + 1, 7))
    resumed.flush()
    assert read_metrics(tmp_path / "killed").equals(read_metrics(tmp_path / "whole"))
    assert not list(resumed.folder.glob("*.tmp"))


def test_no_metrics_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="has no metrics yet"):
        read_metrics(tmp_path)


def read_events(folder):
    found = EventAccumulator(str(folder))
    found.Reload()
    return [(event.step, event.value) for event in found.Scalars("loss")]


def test_tensorboard_reads_the_curves_and_takes_back_what_a_resumed_run_writes_again(tmp_path):
    first = TensorBoard(tmp_path, (0, 1))
    for update in range(1, 6):
        first.log(update, 10 * update, 1, {"loss": float(update)})
    # It was killed in the middle of a record, without closing.
    (path,) = (tmp_path / "seed-1").iterdir()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 5)
    second = TensorBoard(tmp_path, (0, 1), after=30)
    second.log(4, 40, 1, {"loss": -4.0})
    second.close()
    assert read_events(tmp_path / "seed-1") == [(10, 1.0), (20, 2.0), (30, 3.0), (40, -4.0)]


LIGHT = """
import sys, pathlib
from hpml.experiment.trackers import TensorBoard
TensorBoard(pathlib.Path(sys.argv[1]), (0,)).log(1, 1, 0, {"x": 1.0})
print(sorted({name.split(".")[0] for name in sys.modules} & {"tensorflow", "torch", "wandb"}))
"""


def test_curves_need_no_other_framework(tmp_path):
    """A stand-in that refuses to be imported shows that nobody tries."""
    for name in ("tensorflow", "torch"):
        (tmp_path / f"{name}.py").write_text("raise SystemError('imported')")
    arguments = [sys.executable, "-c", LIGHT, str(tmp_path / "events")]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"


def test_a_missing_tracker_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match="pip install wandb"):
        WeightsAndBiases("hpml", "run", tmp_path, {})
