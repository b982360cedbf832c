"""Coverage: known in closed form where it can be, and what is kept with the package is what is measured."""

from pathlib import Path

import numpy as np
import pytest

from hpml.statistics.aggregate import IQM
from hpml.statistics.cautions import claim, seeds_caution, too_few
from hpml.statistics.compare import difference, probability_of_improvement
from hpml.statistics.coverage import (
    INTERVALS,
    KINDS,
    QUANTITIES,
    SEEDS,
    TASKS,
    centres,
    coverage_table,
    distribution,
    draw,
    measure_coverage,
    measure_improvement,
    truth,
)
from hpml.statistics.measured import MEASURED, measured, next_measured


@pytest.mark.parametrize("kind", KINDS)
def test_simulated_scores_are_what_they_are_said_to_be(kind):
    x = draw(kind, (400_000,), np.random.default_rng(0))
    assert x.mean() == pytest.approx(0.0, abs=0.02)
    assert x.std() == pytest.approx(1.0, abs=0.03)
    for at in (-1.0, -0.3, 0.0, 0.5, 2.0):
        assert (x <= at).mean() == pytest.approx(distribution(kind, np.array([at]))[0], abs=0.004)
    table = x[: 40_000 * TASKS].reshape(-1, TASKS) + centres(TASKS)
    assert truth(kind, "iqm") == pytest.approx(IQM(table), abs=0.01)


def test_three_runs_cover_what_theory_says():
    # The percentile interval of three runs is their range: it misses the middle when all fall on one side, 2 / 8.
    found = measure_coverage("normal", "mean", 3, trials=3000, resamples=600)
    assert found.percentile == pytest.approx(0.75, abs=0.03)
    assert found.student == pytest.approx(0.95, abs=4 * found.error("student"))


@pytest.mark.parametrize(
    ("kind", "quantity", "seeds"), [("skewed", "mean", 5), ("bimodal", "macro", 3), ("normal", "iqm", 5)]
)
def test_what_is_kept_is_what_is_measured(kind, quantity, seeds):
    fresh, kept = measure_coverage(kind, quantity, seeds, 600, 400, seed=3), measured(kind, quantity, seeds)
    for interval in INTERVALS:
        noise = np.hypot(fresh.error(interval), kept.error(interval))
        assert getattr(fresh, interval) == pytest.approx(getattr(kept, interval), abs=4 * noise + 0.01)


def test_every_setting_is_kept():
    kept = {(row.kind, row.quantity, row.seeds) for row in MEASURED}
    assert kept == {(kind, quantity, n) for kind in KINDS for quantity in QUANTITIES for n in SEEDS}
    assert len(coverage_table(20, 20, (3,))) == len(KINDS) * len(QUANTITIES)
    assert measured("normal", "mean", 4) is None
    assert next_measured("normal", "mean", 4).seeds == 5
    assert next_measured("normal", "mean", 11) is None


def test_a_score_interval_covers_where_a_percentile_interval_does_not():
    _, percentile, score = measure_improvement("normal", 3, 1, 2.0, trials=150, resamples=100)
    assert percentile < 0.5
    assert score > 0.9


def test_too_few_seeds_are_said_in_numbers():
    assert "the smallest p of a two-sided Mann-Whitney test in one scenario is 0.1:" in too_few(3)
    assert "covers 75 %" in too_few(3)
    assert "smallest p" not in too_few(4)  # 2 of 70 orders
    assert "smallest p" in too_few(2, 5)  # 2 of 21
    assert "Even with 5 seeds" in too_few(4)
    assert too_few(10) == ""
    assert too_few(1).startswith("One seed has no scatter")
    assert too_few(0) == "There is no run: nothing can be said."


def test_missing_cells_and_unequal_seeds_are_named():
    a, b = np.ones((5, 2)), np.ones((5, 2))
    b[3:, 0], b[:, 1] = np.nan, np.nan
    said = seeds_caution({"a": a, "b": b}, ("first", "second"))
    assert said[0].startswith("No finished run of b on second:")
    assert said[1] == too_few(3)
    assert said[2] == "Cells have between 3 and 5 seeds; the sentence is about the fewest."


def test_a_claim_says_what_the_runs_settle():
    key = np.random.default_rng(1)
    x, y = key.normal(size=(3, 1)), key.normal(size=(3, 1))
    apart = claim("A", "B", difference(x + 50, y), probability_of_improvement(x + 50, y))
    assert apart.startswith("A is ahead of B:")
    assert apart.endswith("No outcome of so few runs has p below 0.1.")
    assert claim("A", "B", difference(x, y + 50)).startswith("B is ahead of A:")
    assert claim("A", "B", difference(x, x)).startswith("The runs do not settle whether A or B is better")
    assert claim("A", "B", difference(x[:1], y)).startswith("Nothing can be said")
    ten = key.normal(size=(2, 5, 10))
    assert "p = " in claim("A", "B", difference(*ten), probability_of_improvement(*ten))


def test_the_page_has_the_coverage_that_is_kept():
    page = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text()
    names = {"mean": "mean of one cell", "macro": "mean over ten scenarios", "iqm": "IQM over ten scenarios"}
    for row in MEASURED:
        shares = " | ".join(f"{100 * getattr(row, interval):.0f}" for interval in INTERVALS)
        assert f"| {names[row.quantity]} | {row.kind} | {row.seeds} | {shares} | " in page
