"""What a GPU run survives: killed and resumed it is the run that nobody stopped, and out of memory it says so.

    XLA_FLAGS=--xla_gpu_deterministic_ops=true python benchmarks/gpu_faults.py [--device gpu]

Three runs of MAPPO with the kernel projection, in a matrix game and on bos_repeated: one whole, one whole once more,
and one that gets SIGKILL after the checkpoint of update 4 and is resumed. Their tables of metrics (without times) and
the bytes of their last checkpoints (parameters, optimiser, history, environments) are compared. At last a run is
resumed with almost no memory on the GPU: it has to end with a sentence and leave its checkpoints as they were.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hpml.experiment.checkpoint import checkpoints
from hpml.experiment.metrics import read_metrics

RUN = ["--projection", "kernel", "--seeds", "2", "--episodes", "0", "--checkpoint-every", "2", "--keep", "20"]
UPDATES = 12


def start(out: Path, *options: str, **env: str) -> subprocess.Popen[str]:
    """`hpml train` in a process of its own."""
    command = [sys.executable, "-m", "hpml.cli", "train", "--out", str(out), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | env)


def finish(process: subprocess.Popen[str]) -> None:
    """Wait for an end that has to be good."""
    _, err = process.communicate()
    if process.returncode:
        raise SystemExit(f"a run failed:\n{err[-2000:]}")


def kill_after(process: subprocess.Popen[str], out: Path, update: int) -> None:
    """SIGKILL as soon as the checkpoint of an update is there."""
    while max(checkpoints(out / "checkpoints"), default=-1) < update:
        if process.poll() is not None:
            raise SystemExit(f"the run ended before it could be killed:\n{process.communicate()[1][-2000:]}")
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def compare(one: Path, other: Path) -> str:
    """Words for what is equal."""
    tables = [read_metrics(out) for out in (one, other)]
    names = [name for name in tables[0].column_names if not name.startswith("seconds")]
    newest = [sorted((out / "checkpoints").iterdir())[-1] for out in (one, other)]
    same = tables[0].select(names).equals(tables[1].select(names))
    bytes_same = newest[0].name == newest[1].name and newest[0].read_bytes() == newest[1].read_bytes()
    return f"metrics {'identical' if same else 'DIFFER'}, checkpoint {'identical' if bytes_same else 'DIFFERS'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="gpu")
    asked = parser.parse_args()
    print(f"XLA_FLAGS={os.environ.get('XLA_FLAGS', '')}")
    with tempfile.TemporaryDirectory() as folder:
        for env, steps in (("rps", 32 * 128), ("bos_repeated", 2 * 128)):
            options = ["--env", env, "--steps", str(UPDATES * steps), "--device", asked.device, *RUN]
            options += ["--environments", str(steps // 128), "--rollout", "128"]
            outs = [Path(folder) / f"{env}-{name}" for name in ("whole", "again", "killed")]
            runs = [start(out, *options) for out in outs[:2]]
            kill_after(start(outs[2], *options), outs[2], 4)
            kept = checkpoints(outs[2] / "checkpoints")[-1]
            runs.append(start(outs[2], "--resume", "--device", asked.device))
            for run in runs:
                finish(run)
            print(f"{env}, whole against whole: {compare(*outs[:2])}")
            print(f"{env}, killed at update {kept} of {UPDATES}: {compare(outs[0], outs[2])}", flush=True)
        if asked.device == "gpu":
            out = Path(folder) / "bos_repeated-whole"
            before = {path.name: path.read_bytes() for path in (out / "checkpoints").iterdir()}
            small = {"XLA_PYTHON_CLIENT_PREALLOCATE": "true", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.0002"}
            process = start(out, "--resume", "--device", "gpu", "--steps", str(2 * UPDATES * 256), **small)
            _, err = process.communicate()
            after = {path.name: path.read_bytes() for path in (out / "checkpoints").iterdir()}
            print(f"out of memory: exit status {process.returncode}, {err.strip().splitlines()[-1:]}")
            print(f"its checkpoints are {'as they were' if before == after else 'NOT as they were'}")


if __name__ == "__main__":
    main()
