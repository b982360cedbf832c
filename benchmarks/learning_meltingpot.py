"""Does each algorithm learn on real Melting Pot? Returns of an agent before and after training, from finished runs.

    hpml sweep learning --out results/learning          # some hours of two cores
    python benchmarks/learning_meltingpot.py [results/learning] [--until STEPS]

"random" is the evaluation before the first update, when the policies are uniform over the actions but for a percent;
"trained" is the last one, or the last until some number of steps, on new episodes. Intervals are Student's at 95 % over
the seeds; "gain" is that of the seeds' differences. `--level` is for those who look more than once.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet
from scipy import stats

COLUMN = "evaluation/return"


def interval(values: np.ndarray, level: float) -> str:
    """Mean and Student's interval."""
    return f"{values.mean():.1f} ± {stats.t.ppf(0.5 + level / 2, len(values) - 1) * stats.sem(values):.1f}"


def evaluations(folder: Path) -> dict[int, np.ndarray]:
    """Returns of the seeds at every evaluation that all had, by steps; a cell's seeds may lie in several runs."""
    found: dict[int, dict[int, float]] = {}
    for part in sorted(folder.glob("*/metrics/*.parquet")):
        table = pyarrow.parquet.read_table(part)
        if COLUMN not in table.column_names:
            continue
        for row in table.select(["steps", "seed", COLUMN]).to_pylist():
            if row[COLUMN] is not None:
                found.setdefault(row["steps"], {})[row["seed"]] = row[COLUMN]
    most = max(map(len, found.values()), default=0)
    return {at: np.array([of[seed] for seed in sorted(of)]) for at, of in sorted(found.items()) if len(of) == most}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("results/learning"))
    parser.add_argument("--until", type=int, help="leave out what was seen after so many steps")
    parser.add_argument("--level", type=float, default=0.95, help="of the intervals")
    options = parser.parse_args()
    cells = sorted({path.parent.parent for path in options.folder.glob("runs/*/*/*/metrics")})
    if not cells:
        parser.error("no runs there: train them by `hpml sweep learning --out FOLDER`.")
    print("| substrate | algorithm | seeds | steps | random | trained | gain |\n|---|---|---:|---:|---:|---:|---:|")
    for cell in cells:
        seen = {at: found for at, found in evaluations(cell).items() if options.until is None or at <= options.until}
        if not seen:
            continue
        first, last = seen[min(seen)], seen[max(seen)]
        returns = (interval(values, options.level) for values in (first, last, last - first))
        print("|", " | ".join(map(str, (*cell.parts[-2:], len(last), f"{max(seen):,}", *returns))), "|")


if __name__ == "__main__":
    main()
