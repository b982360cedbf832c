"""The coverage of the intervals as measured once, so that a report can print it without simulating.

The rows are the output of `python benchmarks/coverage.py --code`; `coverage.coverage_table` measures them afresh.
"""

from hpml.statistics.coverage import Coverage

MEASURED = (
    Coverage("normal", "mean", 3, 0.7180, 0.8120, 0.9420, 500, (1.450, 2.818, 4.012)),
    Coverage("normal", "mean", 5, 0.8480, 0.9420, 0.9520, 500, (1.365, 2.904, 2.261)),
    Coverage("normal", "mean", 10, 0.8720, 0.9380, 0.9440, 500, (1.116, 1.431, 1.391)),
    Coverage("skewed", "mean", 3, 0.5860, 0.7260, 0.8100, 500, (0.705, 1.611, 2.005)),
    Coverage("skewed", "mean", 5, 0.6820, 0.9020, 0.8080, 500, (0.799, 2.150, 1.298)),
    Coverage("skewed", "mean", 10, 0.7540, 0.8780, 0.8040, 500, (0.657, 1.071, 0.818)),
    Coverage("bimodal", "mean", 3, 0.5680, 0.6620, 0.7300, 500, (1.670, 4.999, 5.572)),
    Coverage("bimodal", "mean", 5, 0.7240, 0.7840, 0.7400, 500, (1.484, 6.104, 2.543)),
    Coverage("bimodal", "mean", 10, 0.9160, 0.9560, 0.9440, 500, (1.179, 2.083, 1.475)),
    Coverage("normal", "iqm", 3, 0.8580, 0.9640, 0.9500, 500, (0.629, 0.934, 0.837)),
    Coverage("normal", "iqm", 5, 0.9000, 0.9340, 0.9380, 500, (0.545, 0.654, 0.625)),
    Coverage("normal", "iqm", 10, 0.9360, 0.9520, 0.9580, 500, (0.410, 0.446, 0.444)),
    Coverage("skewed", "iqm", 3, 0.8540, 0.9580, 0.9400, 500, (0.369, 0.587, 0.524)),
    Coverage("skewed", "iqm", 5, 0.9000, 0.9560, 0.9440, 500, (0.323, 0.398, 0.374)),
    Coverage("skewed", "iqm", 10, 0.9320, 0.9500, 0.9440, 500, (0.246, 0.270, 0.265)),
    Coverage("bimodal", "iqm", 3, 0.8680, 0.9640, 0.9400, 500, (0.623, 1.009, 0.828)),
    Coverage("bimodal", "iqm", 5, 0.9200, 0.9700, 0.9400, 500, (0.533, 0.640, 0.585)),
    Coverage("bimodal", "iqm", 10, 0.9220, 0.9540, 0.9440, 500, (0.396, 0.428, 0.408)),
)


def measured(kind: str, quantity: str, seeds: int) -> Coverage | None:
    """The measured coverage in a setting, or None where it was not measured."""
    found = [row for row in MEASURED if (row.kind, row.quantity, row.seeds) == (kind, quantity, seeds)]
    return found[0] if found else None


def next_measured(kind: str, quantity: str, seeds: int) -> Coverage | None:
    """The measured coverage at the fewest seeds that are no fewer than these: with fewer it is no better."""
    rows = [row for row in MEASURED if (row.kind, row.quantity) == (kind, quantity) and row.seeds >= seeds]
    return min(rows, key=lambda row: row.seeds, default=None)
