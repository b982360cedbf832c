"""Real processes, really killed: `hpml train` goes on with the numbers that it would have had."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpml import cli
from hpml.experiment.checkpoint import checkpoints
from hpml.experiment.metrics import read_metrics
from hpml.marl.engine import package

COMMAND = (sys.executable, "-m", "hpml.cli", "train")
GAME = ("--env", "rps", "--steps", "512", "--environments", "4", "--rollout", "8", "--hidden", "8", "--passes", "1")
GAME += ("--seeds", "2", "--seed", "7", "--evaluate-every", "4", "--checkpoint-every", "4", "--device", "cpu")
POT = (
    "--env",
    "bos_repeated",
    "--steps",
    "48",
    "--environments",
    "2",
    "--rollout",
    "4",
    "--hidden",
    "8",
    "--sprites",
    "4",
)
POT += ("--no-measure", "--episodes", "0", "--checkpoint-every", "1", "--device", "cpu")

# Most of the time goes into compiling; what is compiled need not be fast here.
QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def start(out, *options):
    command = [*COMMAND, "--out", str(out), *options]
    env = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {QUICK}"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def finish(process):
    out, err = process.communicate()
    return process.returncode, out, err


def stop_after(process, out, update, number):
    """Send the signal when the checkpoint of an update, or a later one, is there."""
    while max(checkpoints(out / "checkpoints"), default=-1) < update:
        assert process.poll() is None, process.communicate()
        time.sleep(0.002)
    process.send_signal(number)
    return finish(process)


def kept(out):
    """The table without times, and the bytes of the last checkpoint: parameters, optimiser, environments, keys."""
    table = read_metrics(out)
    timeless = [name for name in table.column_names if not name.startswith("seconds")]
    newest = sorted((out / "checkpoints").iterdir())[-1]
    return table.select(timeless), newest.name, newest.read_bytes()


def assert_same(out, expected):
    found = kept(out)
    assert found[0].equals(expected[0])
    assert found[1:] == expected[1:]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody stopped."""
    out = tmp_path_factory.mktemp("whole") / "run"
    status, said, err = finish(start(out, *GAME))
    assert status == 0, err
    assert str(out) in said
    return kept(out)


def test_a_matrix_game_that_is_killed_stopped_and_damaged(tmp_path, whole, capsys):
    out = tmp_path / "run"
    status, _, _ = stop_after(start(out, *GAME), out, 4, signal.SIGKILL)
    assert status == -signal.SIGKILL
    # The options of a run need not be said again; those that are must be its own.
    status, said, err = stop_after(start(out, "--resume"), out, 8, signal.SIGTERM)
    if status:  # else it came to its end before the signal did
        assert status == 128 + signal.SIGTERM, err
        assert f"Go on with: hpml train --resume --out {out}" in said
    newest = sorted((out / "checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(SystemExit):
        cli.main(["train", "--resume", "--out", str(out), "--clip", "0.3"])
    assert "has --clip 0.2, and 0.3 was asked for" in capsys.readouterr().err
    status, said, err = finish(start(out, *GAME, "--resume"))
    assert status == 0, err
    assert "is damaged" in said
    assert_same(out, whole)


def test_numbers_that_are_none_stop_the_run(tmp_path):
    out = tmp_path / "run"
    status, _, err = finish(start(out, *GAME, "--no-measure", "--actor-rate", "1e30"))
    assert status == 2
    assert "not a number" in err.splitlines()[-1]
    assert checkpoints(out / "checkpoints") == [0]


@pytest.mark.skipif(bool(package.missing()), reason="there is no engine here")
def test_melting_pot_is_killed_and_goes_on_with_other_workers(tmp_path):
    """The engines are rebuilt from the actions: everything is as it would have been, whoever steps them."""
    for name, workers in (("whole", "1"), ("killed", "2")):
        out = tmp_path / name
        process = start(out, *POT, "--workers", workers)
        if name == "killed":
            stop_after(process, out, 2, signal.SIGKILL)
            process = start(out, *POT, "--resume", "--workers", "1")
        status, _, err = finish(process)
        assert status == 0, err
    assert_same(Path(tmp_path / "killed"), kept(tmp_path / "whole"))
