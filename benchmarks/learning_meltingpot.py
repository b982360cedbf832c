"""Does each algorithm learn on real Melting Pot? Returns of an agent before and after training, from finished runs.

    hpml sweep learning --out results/learning          # about an hour of two cores
    python benchmarks/learning_meltingpot.py [results/learning] [--until STEPS]

"random" is the evaluation before the first update, when the policies are uniform over the actions but for a percent;
"trained" is the last one, or the last until some number of steps, on new episodes. Intervals are Student's at 95 % over
the seeds; "gain" is that of the seeds' differences.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet
from scipy import stats

COLUMN = "evaluation/return"


def interval(values: np.ndarray) -> str:
    """Mean and Student's 95 % interval."""
    return f"{values.mean():.1f} ± {stats.t.ppf(0.975, len(values) - 1) * stats.sem(values):.1f}"


def evaluations(folder: Path) -> dict[int, np.ndarray]:
    """Returns of the seeds at every evaluation, by steps."""
    found: dict[int, dict[int, float]] = {}
    for part in sorted((folder / "metrics").glob("*.parquet")):
        table = pyarrow.parquet.read_table(part)
        if COLUMN not in table.column_names:
            continue
        for row in table.select(["steps", "seed", COLUMN]).to_pylist():
            if row[COLUMN] is not None:
                found.setdefault(row["steps"], {})[row["seed"]] = row[COLUMN]
    return {steps: np.array([of[seed] for seed in sorted(of)]) for steps, of in sorted(found.items())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results/learning"))
    parser.add_argument("--until", type=int, help="leave out what was seen after so many steps")
    options = parser.parse_args()
    runs = sorted(path.parent for path in options.folder.glob("runs/*/*/*/metrics"))
    if not runs:
        parser.error("no runs there: train them by `hpml sweep learning --out FOLDER`.")
    print("| substrate | algorithm | seeds | steps | random | trained | gain |\n|---|---|---:|---:|---:|---:|---:|")
    for run in runs:
        seen = {at: found for at, found in evaluations(run).items() if options.until is None or at <= options.until}
        if not seen:
            continue
        first, last = seen[min(seen)], seen[max(seen)]
        cells = (*run.parts[-3:-1], len(last), f"{max(seen):,}", *map(interval, (first, last, last - first)))
        print("|", " | ".join(map(str, cells)), "|")


if __name__ == "__main__":
    main()
