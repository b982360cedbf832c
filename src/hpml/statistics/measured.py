"""The coverage of the intervals as measured once, so that a report can print it without simulating.

The rows are the output of `python benchmarks/coverage.py --code`; `coverage.coverage_table` measures them afresh.
"""

from hpml.statistics.coverage import Coverage

MEASURED = (
    Coverage("normal", "mean", 3, 0.7472, 0.8150, 0.9495, 4000, (1.541, 2.792, 4.071)),
    Coverage("normal", "mean", 5, 0.8360, 0.9450, 0.9503, 4000, (1.397, 2.965, 2.258)),
    Coverage("normal", "mean", 10, 0.8992, 0.9443, 0.9475, 4000, (1.124, 1.465, 1.382)),
    Coverage("skewed", "mean", 3, 0.6385, 0.7420, 0.8327, 4000, (0.778, 1.646, 2.064)),
    Coverage("skewed", "mean", 5, 0.7170, 0.8952, 0.8227, 4000, (0.797, 2.206, 1.304)),
    Coverage("skewed", "mean", 10, 0.7957, 0.9060, 0.8360, 4000, (0.717, 1.195, 0.890)),
    Coverage("bimodal", "mean", 3, 0.5667, 0.6552, 0.7328, 4000, (1.979, 4.815, 5.518)),
    Coverage("bimodal", "mean", 5, 0.7372, 0.7967, 0.7565, 4000, (1.527, 6.166, 2.600)),
    Coverage("bimodal", "mean", 10, 0.9213, 0.9460, 0.9365, 4000, (1.194, 2.123, 1.468)),
    Coverage("normal", "macro", 3, 0.8655, 0.9610, 0.9607, 4000, (0.570, 0.801, 0.789)),
    Coverage("normal", "macro", 5, 0.9097, 0.9517, 0.9520, 4000, (0.489, 0.574, 0.575)),
    Coverage("normal", "macro", 10, 0.9330, 0.9507, 0.9505, 4000, (0.369, 0.395, 0.398)),
    Coverage("skewed", "macro", 3, 0.8077, 0.9263, 0.9005, 4000, (0.447, 0.779, 0.698)),
    Coverage("skewed", "macro", 5, 0.8708, 0.9383, 0.9145, 4000, (0.403, 0.535, 0.498)),
    Coverage("skewed", "macro", 10, 0.9035, 0.9350, 0.9220, 4000, (0.327, 0.382, 0.358)),
    Coverage("bimodal", "macro", 3, 0.8692, 0.9795, 0.9587, 4000, (0.576, 0.833, 0.799)),
    Coverage("bimodal", "macro", 5, 0.9062, 0.9643, 0.9447, 4000, (0.493, 0.587, 0.578)),
    Coverage("bimodal", "macro", 10, 0.9265, 0.9503, 0.9420, 4000, (0.370, 0.400, 0.399)),
    Coverage("normal", "iqm", 3, 0.8742, 0.9657, 0.9683, 4000, (0.639, 0.945, 0.945)),
    Coverage("normal", "iqm", 5, 0.9173, 0.9550, 0.9627, 4000, (0.550, 0.662, 0.684)),
    Coverage("normal", "iqm", 10, 0.9335, 0.9485, 0.9525, 4000, (0.417, 0.452, 0.455)),
    Coverage("skewed", "iqm", 3, 0.8725, 0.9637, 0.9637, 4000, (0.380, 0.603, 0.633)),
    Coverage("skewed", "iqm", 5, 0.9115, 0.9597, 0.9623, 4000, (0.324, 0.399, 0.427)),
    Coverage("skewed", "iqm", 10, 0.9325, 0.9545, 0.9580, 4000, (0.245, 0.269, 0.279)),
    Coverage("bimodal", "iqm", 3, 0.8778, 0.9690, 0.9725, 4000, (0.637, 1.027, 0.981)),
    Coverage("bimodal", "iqm", 5, 0.9085, 0.9635, 0.9583, 4000, (0.538, 0.661, 0.692)),
    Coverage("bimodal", "iqm", 10, 0.9335, 0.9603, 0.9575, 4000, (0.399, 0.435, 0.463)),
)


def measured(kind: str, quantity: str, seeds: int) -> Coverage | None:
    """The measured coverage in a setting, or None where it was not measured."""
    found = [row for row in MEASURED if (row.kind, row.quantity, row.seeds) == (kind, quantity, seeds)]
    return found[0] if found else None


def next_measured(kind: str, quantity: str, seeds: int) -> Coverage | None:
    """The measured coverage at the fewest seeds that are no fewer than these: with fewer it is no better."""
    rows = [row for row in MEASURED if (row.kind, row.quantity) == (kind, quantity) and row.seeds >= seeds]
    return min(rows, key=lambda row: row.seeds, default=None)
