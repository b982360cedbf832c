"""Verdicts say what the runs can show and no more; scales and averages are over what all methods have."""

import numpy as np
import pytest
from report.sweep.folders import write_run
from scipy import stats

from hpml.report.sweep.analysis import analyse
from hpml.report.sweep.study import read_study
from hpml.report.sweep.tables import full_table
from hpml.report.sweep.verdicts import sentence

GRAPH = {"projection": "graph"}
NAME = "HPML-MAPPO (graph)"


def two(tmp_path, seeds, gap, spread=1.0):
    """MAPPO and the graph projection, `gap` above it, on the same seeds."""
    rng = np.random.default_rng(1)
    own = spread * rng.standard_normal((2, max(seeds) + 1))
    write_run(tmp_path / "a", lambda seed, update: own[0, seed], seeds, updates=4)
    write_run(tmp_path / "b", lambda seed, update: gap + own[1, seed], seeds, updates=4, **GRAPH)
    return analyse(read_study([str(tmp_path)]), resamples=200), own


@pytest.mark.parametrize(
    ("seeds", "gap", "word"),
    [
        (range(5), 50.0, "better"),
        (range(5), -50.0, "worse"),
        (range(3), 50.0, "likely better"),  # no outcome of three against three has p below 0.1
        (range(3), -50.0, "likely worse"),
        (range(5), 0.2, "none"),
        (range(1), 50.0, "none"),  # one seed has no scatter
    ],
)
def test_verdicts(tmp_path, seeds, gap, word):
    analysis, _ = two(tmp_path, tuple(seeds), gap)
    verdict = analysis.verdicts[NAME, "matrix/stag_hunt"]
    assert verdict.word == word
    if word == "none":
        assert verdict.words == f"no difference that {len(seeds)} seed{'s' * (len(seeds) > 1)} can show"


def test_the_interval_is_welchs_and_the_test_is_mann_and_whitneys(tmp_path):
    analysis, own = two(tmp_path, (0, 1, 2, 3), 0.8)
    verdict = analysis.verdicts[NAME, "matrix/stag_hunt"]
    other = stats.ttest_ind(0.8 + own[1], own[0], equal_var=False).confidence_interval()
    assert verdict.difference.interval == pytest.approx((other.low, other.high))
    assert verdict.chance.p == pytest.approx(stats.mannwhitneyu(0.8 + own[1], own[0], method="exact").pvalue)
    assert "no difference that 4 seeds can show in stag_hunt" in sentence(analysis, NAME)


def test_what_is_not_alike_is_said(tmp_path):
    """Fewer evaluations behind one method's number, and returns that are 0 in evaluations but not in training."""
    write_run(tmp_path / "a", lambda seed, update: 0.0, (0, 1), updates=40, every=1)
    write_run(tmp_path / "b", lambda seed, update: 0.0, (0, 1), updates=40, every=4, **GRAPH)
    said = " ".join(analyse(read_study([str(tmp_path)]), resamples=200).cautions)
    assert f"final returns are means of so many evaluations: 1: {NAME}; 4: MAPPO" in said
    assert "nobody got anything in the last evaluations, though in training at the end (at most 1)" in said


def test_returns_before_training_are_those_of_the_first_evaluation(tmp_path):
    """All methods together: the mean over methods of each seed, then over seeds."""
    write_run(tmp_path / "a", lambda seed, update: 2.0 + 2 * seed if update == 0 else 50.0, (0, 1), updates=4)
    write_run(tmp_path / "b", lambda seed, update: 4.0 + 2 * seed if update == 0 else 60.0, (0, 1), updates=4, **GRAPH)
    rows = full_table(analyse(read_study([str(tmp_path)]), resamples=200), "raw").rows
    name, value = (cell.text for cell in rows[-1])
    assert (name, value.replace("\u00a0", " ")) == ("before training", "4.0 ± 1.0")


def test_worst_is_0_best_is_100_and_averages_are_over_what_all_have(tmp_path):
    games = ("matrix/stag_hunt", "matrix/climbing", "matrix/penalty")
    for place, game in enumerate(games):
        write_run(tmp_path / f"a{place}", lambda seed, update: 10.0 + seed, (0, 1, 2), 4, env=game)
        write_run(tmp_path / f"b{place}", lambda seed, update: 20.0 + seed, (0, 1, 2), 4, env=game, algo="ippo")
        if place:
            write_run(tmp_path / f"c{place}", lambda seed, update: 15.0 + seed, (0, 1, 2), 4, env=game, algo="coma")
    analysis = analyse(read_study([str(tmp_path)]), resamples=200)
    means = {name: analysis.mean(analysis.normalised, name)[0] for name in analysis.normalised}
    assert np.allclose(means["MAPPO"], 0)
    assert np.allclose(means["IPPO"], 100)
    assert np.allclose(means["COMA"], [50, 50, np.nan], equal_nan=True)  # by name: climbing, penalty, stag_hunt
    whole, shared = analysis.blocks
    assert (whole.methods, len(whole.environments)) == (("IPPO", "MAPPO"), 3)
    assert shared.methods == ("IPPO", "MAPPO", "COMA")
    assert shared.environments == ("matrix/climbing", "matrix/penalty")
    assert shared.estimates["COMA"]["mean"].value == pytest.approx(50)
    assert analysis.overall["IPPO"].chance.value == 1.0


def test_a_projection_that_changed_nothing_is_named(tmp_path):
    write_run(tmp_path / "a", seeds=(0, 1), updates=4)
    write_run(tmp_path / "b", seeds=(0, 1), updates=4, **GRAPH)
    analysis = analyse(read_study([str(tmp_path)]), resamples=50)
    assert any(f"{NAME} has exactly the returns of MAPPO" in words for words in analysis.cautions)


def test_a_method_is_compared_with_its_own_algorithm(tmp_path):
    for name, options in {
        "a": {},
        "b": {"algo": "ippo"},
        "c": {"algo": "ippo", **GRAPH},
        "d": {"algo": "coma", **GRAPH},
    }.items():
        write_run(tmp_path / name, seeds=(0, 1), updates=4, **options)
    study = read_study([str(tmp_path)])
    against = {method.name: study.baseline(method) for method in study.methods}
    assert {name: base.name if base else None for name, base in against.items()} == {
        "MAPPO": None,
        "IPPO": "MAPPO",
        "HPML-IPPO (graph)": "IPPO",
        "HPML-COMA (graph)": "MAPPO",
    }
