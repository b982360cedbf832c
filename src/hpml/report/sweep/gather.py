"""What the report asks of the metrics: a few queries that add up inside, and curves in buckets of steps."""

from typing import Any

import numpy as np

from hpml.report.sweep.parquet import Rows, Table, fetch

BUCKETS = 200
"""Points of a curve; a run may have a hundred times as many rows."""
BUCKET = f"CAST(ceil(steps * {BUCKETS}.0 / greatest(k.bound, 1)) AS INTEGER)"
"""The point that a row belongs to."""
TIMED = 1000
LAST = 0.1
"""The final return is the mean over the evaluations in this last share of the steps."""
FINAL = ("evaluated", "collective", "equality", "exploitability", "switch_rate", "trained")
AVERAGE = ("residual_energy", "residual_clean", "nonpot", "nonpot_fitted", "noise_share", "identifiable", "switched")
CURVES = ("evaluated", "trained", "nonpot", "switch_rate", "exploitability")


def scores(rows: Rows, kept: Table) -> Table:
    """A line a run and seed of `kept` (run, seed, limit): final values and training averages up to `limit` steps.

    - Final values are means over the evaluations after the last tenth of the limit began, or the last one before it;
      that before the first update does not count.
    - `evaluations` counts them. Averages are over all updates.
    """
    _tell(rows.link, kept)
    late = f"steps <= k.bound AND steps > {1 - LAST} * k.bound"
    last = "arg_max({0}, steps) FILTER ({0} IS NOT NULL AND steps > 0)"
    final = [f"coalesce(avg({name}) FILTER ({late}), {last.format(name)}) AS {name}" for name in FINAL]
    average = [f"avg({name}) AS {name}" for name in AVERAGE]
    counted = f"count(evaluated) FILTER ({late}) AS evaluations"
    return fetch(
        rows.link,
        f"SELECT run, seed, {', '.join([*final, *average, counted])} FROM rows JOIN kept k USING (run, seed) "
        "WHERE steps <= k.bound GROUP BY run, seed ORDER BY run, seed",
    )


def curves(rows: Rows, kept: Table) -> Table:
    """Means over buckets of steps, a line a run, seed and bucket; `kept` has the steps (`limit`) that fill the axis."""
    _tell(rows.link, kept)
    means = ", ".join(f"avg({name}) AS {name}" for name in CURVES)
    return fetch(
        rows.link,
        f"SELECT run, seed, {BUCKET} AS bucket, avg(steps) AS steps, {means} FROM rows JOIN kept k USING (run, seed) "
        "GROUP BY ALL ORDER BY run, seed, bucket",
    )


def evaluations(rows: Rows, kept: Table) -> Table:
    """The evaluations up to `limit` steps, a line each: the last one of every bucket, so at most 200 a seed."""
    _tell(rows.link, kept)
    return fetch(
        rows.link,
        "SELECT run, seed, steps, evaluated, collective FROM rows JOIN kept k USING (run, seed) WHERE evaluated IS "
        "NOT NULL "
        f"AND steps <= k.bound QUALIFY row_number() OVER (PARTITION BY run, seed, {BUCKET} ORDER BY steps DESC) = 1 "
        "ORDER BY run, seed, steps",
    )


def speeds(rows: Rows) -> Table:
    """A line a run: seconds of its median update; a process trains all its seeds at once.

    Every seed's row has the seconds of an update of the whole process, so one seed is looked at, at up to 2,000 of its
    updates; the median leaves out compiling.
    """
    firsts = {
        int(run): int(seed) for run, seed in zip(rows.extents["run"][::-1], rows.extents["seed"][::-1], strict=True)
    }
    runs, seeds = np.array([*firsts], np.int64), np.array([*firsts.values()], np.int64)
    last = {int(run): float(update) for run, update in zip(rows.extents["run"], rows.extents["last"], strict=True)}
    thin = np.array([max(1.0, last[int(run)] // TIMED) for run in runs])
    _tell(rows.link, {"run": runs, "seed": seeds, "limit": thin})
    timed = ", ".join(f"median({name}) AS {name}" for name in ("collect", "learn", "train", "measure"))
    return fetch(
        rows.link,
        f"SELECT run, {timed}, count(*) AS updates FROM rows JOIN kept k USING (run, seed) "
        "WHERE update > 0 AND update % k.bound::BIGINT = 0 GROUP BY run ORDER BY run",
    )


def _tell(link: Any, kept: Table) -> None:
    link.register("told", {"run": kept["run"], "seed": kept["seed"], "bound": np.asarray(kept["limit"], float)})
    link.execute("CREATE OR REPLACE TABLE kept AS SELECT * FROM told")
    link.unregister("told")
