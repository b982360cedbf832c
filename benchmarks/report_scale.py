"""Time and memory of `hpml report` over many run folders: 400 of 10,000 rows each unless told otherwise.

The folders have the paper's ten scenarios, eight methods and five seeds, and Parquet parts as `hpml train` writes them.
The report runs in a process of its own, whose peak memory the system measures.

    python benchmarks/report_scale.py
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet

from hpml.experiment.config import complete, to_json, train_config
from hpml.experiment.store import write_json

SCENARIOS = (
    "bos_repeated",
    "pure_coordination_repeated",
    "rationalizable_coordination_repeated",
    "stag_hunt_repeated",
    "prisoners_dilemma_repeated",
    "collaborative_cooking_circuit",
    "collaborative_cooking_crowded",
    "collaborative_cooking_figure_eight",
    "commons_harvest_partnership",
    "clean_up",
)
METHODS = {
    "ia2c": ("IA2C", {"algo": "ia2c"}),
    "ippo": ("IPPO", {"algo": "ippo"}),
    "mappo": ("MAPPO", {"algo": "mappo"}),
    "happo": ("HAPPO", {"algo": "happo"}),
    "coma": ("COMA", {"algo": "coma"}),
    "hpml_graph": ("HPML-MAPPO (Graph)", {"algo": "mappo", "projection": "graph"}),
    "hpml_neural": ("HPML-MAPPO (Neural)", {"algo": "mappo", "projection": "neural"}),
    "hpml_kernel": ("HPML-MAPPO (Kernel)", {"algo": "mappo", "projection": "kernel"}),
}
PLAIN = ("episodes", "switch_rate", "clipped", "critic", "divergence", "entropy", "explained", "gain", "gradient")
MEASURED = ("angle", "identifiable", "noise_share", "nonpot", "nonpot_held_out", "potential_share")
ENERGY = ("residual_clean", "residual_energy")
SECONDS = ("seconds/collect", "seconds/learn", "seconds/measure")


def table(rng: np.random.Generator, rows: int, batch: int, seed: int, level: float, speed: float, cost: float):
    """The metrics of one seed that learns towards `level`, with an evaluation every twentieth of the run."""
    update = np.arange(rows)
    steps = update * batch
    learnt = level * (1 - np.exp(-speed * update / rows)) + 0.05 * level * rng.standard_normal(rows)
    columns = {"update": update, "steps": steps, "seed": np.full(rows, seed)}
    columns["return"] = np.where(rng.random(rows) < 0.2, learnt, np.nan)
    columns["collective_return"] = 2 * columns["return"]
    for agent in range(2):
        columns[f"return/{agent}"] = columns["return"] + 0.1 * rng.standard_normal(rows)
    for name in (*PLAIN, *MEASURED):
        columns[name] = rng.random(rows)
    for name in ENERGY:
        columns[name] = rng.exponential(0.1, rows)
    for name in SECONDS:
        columns[name] = 0.05 + 0.01 * rng.random(rows)
    columns["seconds/learn"] += cost
    evaluated = (update % max(rows // 20, 1) == 0) | (update == rows - 1)
    for name in ("return", "collective_return", "equality", "length", "switch_rate", "interactions", "switched"):
        value = learnt if "return" in name else rng.random(rows)
        columns[f"evaluation/{name}"] = np.where(evaluated, value, np.nan)
    columns["seconds/evaluate"] = np.where(evaluated, 1.0, np.nan)
    mask = {name: np.isnan(value) if value.dtype.kind == "f" else None for name, value in columns.items()}
    return pyarrow.table({name: pyarrow.array(value, mask=mask[name]) for name, value in columns.items()})


def make(folder: Path, runs: int, rows: int, parts: int) -> None:
    """Write `runs` run folders: seeds first over all cells, so that fewer runs are fewer seeds."""
    rng = np.random.default_rng(0)
    cells = [(scenario, method) for scenario in SCENARIOS for method in METHODS]
    for number in range(runs):
        seed, (scenario, method) = number // len(cells), cells[number % len(cells)]
        label, options = METHODS[method]
        config = complete(train_config(scenario, seed=seed, steps=256 * (rows - 1), out="run", **options))
        path = folder / "runs" / scenario / method / f"seeds-{seed}-{seed}"
        (path / "metrics").mkdir(parents=True)
        write_json(path / "config.json", to_json(config))
        write_json(path / "versions.json", {"starts": [{"update": 0, "versions": {"hpml": "0.1.0", "jax": "0.10.2"}}]})
        record = {"environment": scenario, "method": method, "label": label, "suite": "scale", "attempts": []}
        path.with_suffix(".json").write_text(json.dumps(record))
        place = list(METHODS).index(method)
        level = 10 + 3 * (place + SCENARIOS.index(scenario)) % 17 + rng.standard_normal()
        data = table(rng, rows, config.batch, seed, level, 2 + place, 0.02 * ("hpml" in method))
        for start in range(0, rows, -(-rows // parts)):
            some = data.slice(start, -(-rows // parts))
            pyarrow.parquet.write_table(some, path / "metrics" / f"{start + len(some) - 1:010d}.parquet")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--parts", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="keep the folders and the report here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        if not (folder / "runs").exists():
            make(folder, given.runs, given.rows, given.parts)
        size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
        start = time.perf_counter()
        command = [sys.executable, "-m", "hpml.cli", "report", str(folder), "--out", str(folder / "report")]
        subprocess.run(command, check=True, env={**os.environ, "COLUMNS": "160"})
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        page = (folder / "report" / "report.html").stat().st_size
        print(
            f"{given.runs} runs of {given.rows} rows, {size / 2**20:.0f} MB of Parquet: {seconds:.1f} s, {peak:.2f} GB"
        )
        print(f"page: {page / 2**20:.1f} MB")


if __name__ == "__main__":
    main()
