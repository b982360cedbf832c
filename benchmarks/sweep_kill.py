"""A sweep of tiny runs whose driver and workers are killed again and again: what is finished stays, nothing runs twice.

    python benchmarks/sweep_kill.py --runs 100

Every few seconds a worker, or one time in three the driver, gets SIGKILL; a driver that is gone is started again by the
same command. Every run folder is fingerprinted when it is first seen finished and once more at the end. Prints one line
of JSON: how many kills there were, how many runs are finished, how many of them changed after that (none should), and
how many were finished more than once (none should).
"""

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from sweep_overhead import write_suite


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="how many runs")
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)), help="processes at once")
    parser.add_argument("--every", type=float, default=8.0, help="seconds between two kills, on average")
    parser.add_argument("--steps", type=int, default=8192, help="environment steps of a run")
    asked = parser.parse_args()
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        file, out = write_suite(place, asked.runs, asked.steps, checkpoint_every=16), place / "out"
        env = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(place / "compiled"), "JAX_PLATFORMS": "cpu"}
        command = [
            sys.executable,
            "-m",
            "hpml.cli",
            "sweep",
            str(file),
            "--out",
            str(out),
            "--jobs",
            str(asked.at_once),
        ]
        kills = {"worker": 0, "driver": 0}
        prints: dict[Path, str] = {}
        ended = 0
        while True:
            driver = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
            while driver.poll() is None:
                time.sleep(chance.expovariate(1.0 / asked.every))
                look(out, prints)
                side = "driver" if chance.random() < 1 / 3 else "worker"
                units = children(driver.pid)
                if driver.poll() is None and (side == "driver" or units):
                    os.kill(driver.pid if side == "driver" else chance.choice(units), signal.SIGKILL)
                    kills[side] += 1
            ended += driver.wait() >= 0  # a run that was killed four times under one driver is left to the next
            if driver.returncode == 0 or ended == 10:
                break
        before = dict(prints)
        look(out, prints)
        changed = sum(fingerprint(record) != known for record, known in before.items())
        ends = [[each["outcome"] for each in _record(path)["attempts"]] for path in _records(out)]
    found = {"runs": asked.runs, "kills": kills, "status": driver.returncode, "finished": len(prints)}
    found |= {"changed": changed, "finished_twice": sum(each.count("done") > 1 for each in ends)}
    print(json.dumps(found | {"attempts": sum(map(len, ends))}))


def look(out: Path, prints: dict[Path, str]) -> None:
    """Take the fingerprint of every run that is finished and has none."""
    for path in _records(out):
        if path not in prints and _record(path)["attempts"][-1]["outcome"] == "done":
            prints[path] = fingerprint(path)


def fingerprint(record: Path) -> str:
    """Names, bytes and times of all files of a run and of its record."""
    digest = hashlib.sha256()
    for path in [record, *sorted(record.with_suffix("").rglob("*"))]:
        if path.is_file():
            digest.update(f"{path} {path.stat().st_mtime_ns}".encode() + path.read_bytes())
    return digest.hexdigest()


def children(pid: int) -> list[int]:
    """The workers of a driver."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _records(out: Path) -> list[Path]:
    return sorted(out.glob("runs/*/*/seeds-*.json"))


def _record(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


if __name__ == "__main__":
    main()
