"""How often the 95 % intervals of a report hold the truth, at 3, 5 and 10 seeds.

python benchmarks/coverage.py            # the table, 4,000 trials a row, minutes
python benchmarks/coverage.py --trials 500 --resamples 300
python benchmarks/coverage.py --code     # the rows of src/hpml/statistics/measured.py
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from dataclasses import dataclass

import numpy as np
import tyro

from hpml.statistics.coverage import (
    INTERVALS,
    KINDS,
    QUANTITIES,
    SEEDS,
    Coverage,
    measure_coverage,
    measure_improvement,
)
from hpml.statistics.interval import student_interval
from hpml.statistics.normalise import paper_scale


@dataclass(frozen=True)
class Options:
    """What to simulate."""

    trials: int = 4000  # tables drawn for each row
    resamples: int = 1000  # bootstrap resamples of each table
    seeds: tuple[int, ...] = SEEDS  # numbers of runs
    improvement: bool = False  # the intervals of the probability of improvement in place of the others
    anchors: bool = False  # what the paper's scale does to a macro average
    code: bool = False  # print the rows as Python, to be kept with the package


def main(options: Options) -> None:
    """Print a row for each quantity, kind of scores and number of seeds."""
    began = time.perf_counter()
    if options.improvement:
        show_improvement(options)
        return
    if options.anchors:
        show_anchors(options)
        return
    if not options.code:
        print("Coverage of nominal 95 % intervals in %, with Monte Carlo standard errors; median widths in brackets")
        print(f"{'quantity':10}{'scores':10}{'seeds':>5}  " + "".join(f"{name:>20}" for name in INTERVALS))
    for quantity in QUANTITIES:
        for kind in KINDS:
            for seeds in options.seeds:
                show(measure_coverage(kind, quantity, seeds, options.trials, options.resamples), options.code)
    if not options.code:
        print(f"{options.trials:,} trials a row, {options.resamples:,} resamples, {time.perf_counter() - began:.0f} s")


def show_improvement(options: Options) -> None:
    trials = min(options.trials, 500)
    print("Coverage of nominal 95 % intervals of the probability of improvement in %, and the true probability")
    print(f"{'scores':10}{'tasks':>5}{'seeds':>6}{'truth':>8}{'percentile':>12}{'score':>8}")
    for kind in KINDS:
        for tasks in (1, 10):
            for seeds in options.seeds:
                for shift in (0.5, 2.0):
                    true, percentile, score = measure_improvement(kind, seeds, tasks, shift, trials)
                    print(
                        f"{kind:10}{tasks:>5}{seeds:>6}{true:>8.2f}{100 * percentile:>12.1f}{100 * score:>8.1f}",
                        flush=True,
                    )
    print(f"{trials:,} trials a row")


def show_anchors(options: Options) -> None:
    """Seven methods on ten scenarios: does Student's interval of the macro average hold that on the true scale?"""
    trials, methods, tasks = min(options.trials, 400), 7, 10
    print(
        "Macro averages on the paper's scale: coverage of Student's 95 % interval in %, and bias, for the method that"
    )
    print("is truly worst, in the middle and best on average; noise is a run's standard deviation on the true scale")
    for noise in (10.0, 20.0, 40.0):
        for seeds in options.seeds:
            key = np.random.default_rng(seeds)
            held, bias = np.zeros((trials, methods)), np.zeros((trials, methods))
            for trial in range(trials):
                true = key.random((methods, tasks))
                true = 100.0 * (true - true.min(0)) / np.ptp(true, 0)
                true = true[np.argsort(true.mean(1))]
                runs = true[:, None] + noise * key.standard_normal((methods, seeds, tasks))
                scaled = paper_scale({str(i): table for i, table in enumerate(runs)}).apply(runs)
                low, high = student_interval(scaled).T
                held[trial] = (low <= true.mean(1)) & (true.mean(1) <= high)
                bias[trial] = scaled.mean((1, 2)) - true.mean(1)
            shown = [f"{100 * held[:, i].mean():.0f} ({bias[:, i].mean():+.1f})" for i in (0, methods // 2, -1)]
            print(f"noise {noise:>3.0f}, {seeds:>2} seeds: " + "".join(f"{text:>12}" for text in shown), flush=True)


def show(row: Coverage, code: bool) -> None:
    if code:
        shares = ", ".join(f"{getattr(row, name):.4f}" for name in INTERVALS)
        widths = ", ".join(f"{width:.3f}" for width in row.widths)
        print(
            f'    Coverage("{row.kind}", "{row.quantity}", {row.seeds}, {shares}, {row.trials}, ({widths})),',
            flush=True,
        )
        return
    shown = [
        f"{100 * getattr(row, name):.1f} ± {100 * row.error(name):.1f} [{width:.2f}]"
        for name, width in zip(INTERVALS, row.widths, strict=True)
    ]
    print(f"{row.quantity:10}{row.kind:10}{row.seeds:>5}  " + "".join(f"{text:>20}" for text in shown), flush=True)


if __name__ == "__main__":
    main(tyro.cli(Options))
