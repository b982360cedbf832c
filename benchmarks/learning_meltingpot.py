"""Does each algorithm learn on real Melting Pot? Raw collective returns before and after training.

    python benchmarks/learning_meltingpot.py [--substrates bos_repeated stag_hunt_repeated] [--steps 150000] [--seeds 3]
        [--episodes 8] [--jobs 2] [--out out/learning]

Every run is `hpml train` with the paper's settings. "random" is the evaluation before the first update, when the
policies are uniform over the actions but for a percent; "trained" the one at the end, on new episodes. Intervals are
Student's at 95 % over the seeds. Runs that are finished are not run again, and interrupted ones go on.
"""

import argparse
import os
import queue
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow.dataset
from scipy import stats

ALGORITHMS = ("ia2c", "ippo", "mappo", "happo", "coma")


def share_cores(jobs: int) -> "queue.Queue[set[int]]":
    """The cores of each job that runs at a time: at least two, neighbours may share one."""
    cores = sorted(os.sched_getaffinity(0))
    places: queue.Queue[set[int]] = queue.Queue()
    for job in range(jobs):
        first = job * len(cores) // jobs
        places.put(set(cores[first : first + max(2, len(cores) // jobs)]))
    return places


def train(substrate: str, algorithm: str, options: argparse.Namespace, places: "queue.Queue[set[int]]") -> str:
    """One run in a process of its own; an empty string, or what went wrong."""
    folder = Path(options.out) / f"{substrate}-{algorithm}"
    command = [sys.executable, "-m", "hpml.cli", "train", "--env", substrate, "--algo", algorithm, "--out", str(folder)]
    command += ["--steps", str(options.steps), "--seeds", str(options.seeds), "--episodes", str(options.episodes)]
    command += [
        "--evaluate-every",
        str(-(-options.steps // 1024)),
        "--workers",
        str(options.workers),
        "--device",
        "cpu",
    ]
    command += ["--no-tensorboard", "--checkpoint-every", "100", *(["--resume"] if folder.exists() else [])]
    cores = places.get()
    try:
        pin = lambda: os.sched_setaffinity(0, cores)  # noqa: E731
        run = subprocess.run(command, capture_output=True, text=True, preexec_fn=pin)
    finally:
        places.put(cores)
    return run.stderr[-600:] if run.returncode else ""


def interval(values: np.ndarray) -> str:
    """Mean and Student's 95 % interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) if len(values) > 1 else np.nan
    return f"{values.mean():.2f} ({values.mean() - half:.2f} to {values.mean() + half:.2f})"


def returns(folder: Path) -> tuple[np.ndarray, np.ndarray, int]:
    """Collective returns of each seed before and after training, and the steps trained."""
    columns = ["update", "steps", "seed", "evaluation/collective_return"]
    rows = pyarrow.dataset.dataset(folder / "metrics").to_table(columns=columns).to_pylist()
    seen = sorted((row for row in rows if row[columns[3]] is not None and np.isfinite(row[columns[3]])), key=str)
    first, last = min(row["update"] for row in seen), max(row["update"] for row in seen)
    pick = lambda update: np.array([row[columns[3]] for row in seen if row["update"] == update])  # noqa: E731
    return pick(first), pick(last), max(row["steps"] for row in seen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--substrates", nargs="+", default=["bos_repeated", "stag_hunt_repeated"])
    parser.add_argument("--algorithms", nargs="+", default=list(ALGORITHMS))
    for name, default in (("steps", 150_000), ("seeds", 3), ("episodes", 8), ("jobs", 2), ("workers", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--out", default="out/learning")
    options = parser.parse_args()
    cells = [(substrate, algorithm) for substrate in options.substrates for algorithm in options.algorithms]
    places = share_cores(options.jobs)
    with ThreadPoolExecutor(options.jobs) as pool:
        problems = list(pool.map(lambda cell: train(*cell, options, places), cells))
    print("| substrate | algorithm | steps | random | trained |\n|---|---|---:|---:|---:|")
    for (substrate, algorithm), problem in zip(cells, problems, strict=True):
        folder = Path(options.out) / f"{substrate}-{algorithm}"
        if problem:
            print(f"| {substrate} | {algorithm} | | | failed: {problem.splitlines()[-1]} |")
            continue
        before, after, steps = returns(folder)
        print(f"| {substrate} | {algorithm} | {steps:,} | {interval(before)} | {interval(after)} |", flush=True)


if __name__ == "__main__":
    main()
