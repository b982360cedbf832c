"""What a sweep adds to its runs: the same tiny runs by `hpml sweep` and as plain `hpml train` processes.

    python benchmarks/sweep_overhead.py --runs 100

Both sides run the same number of processes at once and load what is compiled from the same folder, which is filled
before the clock starts, so that a run is short and what is added shows. The order is sweep, plain, plain, sweep: a
machine that grows slower or faster favours nobody. Prints one line of JSON; ratio is the sweep's time over that of the
plain runs, and the same for the processor's time, which other people's work on the machine disturbs less.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OPTIONS = {"environments": 4, "rollout": 8, "hidden": 8, "passes": 1, "checkpoint_every": 0, "device": "cpu"}
SWITCHES = ("measure", "tensorboard")  # off


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100, help="how many runs")
    parser.add_argument("--at-once", type=int, default=len(os.sched_getaffinity(0)), help="processes at once")
    parser.add_argument("--steps", type=int, default=4096, help="environment steps of a run")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        env = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(place / "compiled"), "JAX_PLATFORMS": "cpu"}
        env |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
        plain(place / "warm", 1, 1, asked.steps, env)
        seconds: dict[str, list[float]] = {"sweep": [], "plain": []}
        cpu = {"sweep": 0.0, "plain": 0.0}
        for number, side in enumerate(("sweep", "plain", "plain", "sweep")):
            run = sweep if side == "sweep" else plain
            start, before = time.perf_counter(), _cpu()
            run(place / str(number), asked.runs, asked.at_once, asked.steps, env)
            seconds[side].append(time.perf_counter() - start)
            cpu[side] += _cpu() - before
            done = len(list((place / str(number)).rglob("parameters.json")))
            assert done == asked.runs, f"{done} of {asked.runs} runs"
    ratio = sum(seconds["sweep"]) / sum(seconds["plain"])
    told = {side: [round(each, 2) for each in found] for side, found in seconds.items()}
    found = {"runs": asked.runs, "at_once": asked.at_once, "seconds": told, "ratio": round(ratio, 4)}
    print(json.dumps(found | {"cpu_ratio": round(cpu["sweep"] / cpu["plain"], 4)}))


def _cpu() -> float:
    """Processor seconds of all children that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def write_suite(folder: Path, runs: int, steps: int, **more: int) -> Path:
    """A suite of tiny runs, all of one program."""
    lines = ['name = "tiny"', f"steps = {steps}", "seeds = 1", 'environments = ["rps"]', "[train]", "episodes = 1"]
    lines += [f"{name} = {json.dumps(value)}" for name, value in (OPTIONS | more).items()]
    lines += [f"{name} = false" for name in SWITCHES]
    lines += [f'[methods.m{number}]\nalgo = "ippo"' for number in range(runs)]
    file = folder / "tiny.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def sweep(out: Path, runs: int, at_once: int, steps: int, env: dict[str, str]) -> None:
    out.mkdir()
    file = write_suite(out, runs, steps)
    _hpml(["sweep", str(file), "--out", str(out / "out"), "--jobs", str(at_once)], env)


def plain(out: Path, runs: int, at_once: int, steps: int, env: dict[str, str]) -> None:
    options = ["train", "--env", "rps", "--algo", "ippo", "--steps", str(steps), "--episodes", "1"]
    for name, value in OPTIONS.items():
        options += [f"--{name.replace('_', '-')}", str(value)]
    options += [f"--no-{name}" for name in SWITCHES]
    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(lambda number: _hpml([*options, "--out", str(out / f"run{number}")], env), range(runs)))


def _hpml(arguments: list[str], env: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-m", "hpml.cli", *arguments], env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


if __name__ == "__main__":
    main()
