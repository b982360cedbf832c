"""Files for other programs: the paper's own numbers give the paper's tables back, CSV and JSON can be read again."""

import csv
import io
import json
import re

import numpy as np
import pytest
from rliable import metrics
from scipy import stats

from hpml.report.sweep import paper
from hpml.report.sweep.exports import cells_csv, marl_eval, runs_csv
from hpml.report.sweep.latex import full_latex, summary_latex
from hpml.report.sweep.results import Results, Track

NAMES = tuple(scenario.name for scenario in paper.SCENARIOS)


def papers_results():
    """Two runs in each cell, one standard error above and below the paper's mean."""
    final = {}
    for method in paper.METHODS:
        mean, error = (np.array([table[method][name] for name in NAMES]) for table in (paper.NORMALISED, paper.ERRORS))
        final[method] = np.stack([mean - error, mean + error])
    residual = {method: np.full((2, len(NAMES)), energy) for method, energy in paper.RESIDUAL.items()}
    columns = {scenario.name: scenario.column for scenario in paper.SCENARIOS}
    return Results(NAMES, final, residual=residual, steps=dict.fromkeys(NAMES, paper.STEPS), columns=columns)


def small_results(ragged=True, seed=0):
    """Three methods on two scenarios; one cell has two of three seeds, one run is shorter."""
    key = np.random.default_rng(seed)
    scenarios, methods = ("matrix/stag_hunt", "clean_up"), ("MAPPO", "HPML-MAPPO (Graph)", "HPML-MAPPO (Graph, adjust)")
    final = {method: key.normal(size=(3, 2)) for method in methods}
    seeds = {method: np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]) for method in methods}
    if ragged:
        final["MAPPO"][2, 1] = seeds["MAPPO"][2, 1] = np.nan
    tracks = {}
    for column, scenario in enumerate(scenarios):
        for method in methods:
            for row in np.flatnonzero(np.isfinite(final[method][:, column])):
                n = 4 if ragged and method == "MAPPO" else 7
                values = {
                    "return": key.normal(size=n),
                    "nonpot": np.full(n, np.nan) if method == "MAPPO" else np.ones(n),
                }
                tracks[scenario, method, int(row)] = Track(100 * np.arange(1, n + 1), values)
    residual = {methods[1]: np.array([[1.0, 4.0], [3.0, np.nan], [np.nan, np.nan]])}
    return Results(scenarios, final, seeds, residual, {"clean_up": 700}, {"clean_up": "Clean Up"}, tracks)


def rows_of(text):
    return {
        line.split(" & ")[0]: line.removesuffix(r" \\").split(" & ")[1:]
        for line in text.splitlines()
        if line.endswith(r"\\") and not line.startswith("Method")
    }


def test_the_papers_numbers_give_the_papers_full_table():
    text = full_latex(papers_results())
    rows = rows_of(text)
    assert tuple(rows) == paper.METHODS
    for method, cells in rows.items():
        expected = [rf"{paper.NORMALISED[method][name]:.1f} $\pm$ {paper.ERRORS[method][name]:.1f}" for name in NAMES]
        assert cells[:-1] == expected
        macro = [float(number) for number in cells[-1].split(r" $\pm$ ")]
        assert macro == pytest.approx([paper.MACRO[method], paper.MACRO_ERRORS[method]], abs=0.1001)
    head = next(line for line in text.splitlines() if line.startswith("Method"))
    assert head == rf"Method & {' & '.join(scenario.column for scenario in paper.SCENARIOS)} & Macro Avg \\"
    assert r"\begin{tabular}{lccccccccccc}" in text
    assert "10,000,000" in text
    assert text.index(r"COMA &") < text.rindex(r"\midrule") < text.index("HPML-MAPPO (Graph) &")


def test_the_papers_numbers_give_the_papers_summary():
    text = summary_latex(papers_results(), paper.SUMMARY)
    for method, cells in rows_of(text).items():
        assert cells[:3] == [f"{paper.NORMALISED[method][name]:.1f}" for name in paper.SUMMARY]
        assert float(cells[3]) == pytest.approx(paper.SHOWN[method], abs=0.1001)
        assert cells[4] == (f"{paper.RESIDUAL[method]:.3f}" if method in paper.RESIDUAL else "--")
    assert r"Method & BoS-Rep & CC-Circuit & Clean Up & Shown Avg & Raw residual energy$\downarrow$ \\" in text


def test_half_finished_results_have_dashes_and_say_what_the_average_is_over():
    results = small_results()
    final = {**results.final, "MAPPO": results.final["MAPPO"].copy()}
    final["MAPPO"][:, 0] = np.nan
    text = full_latex(Results(results.scenarios, final, columns=results.columns))
    rows = rows_of(text)
    assert [cell == "--" for cell in rows["MAPPO"]] == [True, False, True, False]
    assert rows["MAPPO"][1] == rows["MAPPO"][3]  # the one scenario that every method has
    assert "--" not in rows["HPML-MAPPO (Graph)"]
    assert "Shared Avg: over the 1 scenarios that every method has." in text
    assert "Seeds in a cell: 2 to 3" in text
    assert r"matrix/stag\_hunt" in text
    body = re.sub(r"\\[{}]", "", text)
    assert body.count("{") == body.count("}")
    assert {line.count("&") for line in text.splitlines() if line.endswith(r"\\")} == {4}


def test_a_scenario_where_methods_are_alike_is_named_and_left_out_of_averages():
    final = {"a": np.array([[1.0, 0.0], [1.0, 2.0]]), "b": np.array([[1.0, 4.0], [1.0, 6.0]])}
    text = full_latex(Results(("same", "other"), final))
    assert "No scale, as no two means differ there: same." in text
    assert rows_of(text)["b"] == ["--", r"100.0 $\pm$ 25.0", r"100.0 $\pm$ 25.0"]


def test_a_tiny_energy_is_not_zero():
    results = small_results()
    energies = {"MAPPO": np.full((3, 2), 2e-6), "HPML-MAPPO (Graph)": np.zeros((3, 2))}
    rows = rows_of(summary_latex(Results(results.scenarios, results.final, residual=energies), paper.SUMMARY))
    assert rows["MAPPO"][-1] == r"$2.0\cdot 10^{-6}$"
    assert rows["HPML-MAPPO (Graph)"][-1] == "0.000"


def test_a_summary_without_the_papers_scenarios_has_those_that_are_there():
    text = summary_latex(small_results(), paper.SUMMARY)
    assert r"Method & Clean Up & Shown Avg & Raw residual energy$\downarrow$ \\" in text


def test_cells_in_csv_are_the_cells():
    results = small_results()
    lines = list(csv.DictReader(io.StringIO(cells_csv(results, resamples=50))))
    assert [(line["scenario"], line["method"]) for line in lines] == [
        (scenario, method) for scenario in results.scenarios for method in results.methods
    ]
    for line in lines:
        column = results.final[line["method"]][:, results.scenarios.index(line["scenario"])]
        column = column[np.isfinite(column)]
        assert int(line["seeds"]) == len(column)
        assert float(line["raw_mean"]) == pytest.approx(column.mean())
        assert float(line["raw_se"]) == pytest.approx(stats.sem(column))
        low, high = stats.ttest_1samp(column, 0.0).confidence_interval(0.95)
        assert (float(line["raw_student_low"]), float(line["raw_student_high"])) == pytest.approx((low, high))
        assert (line["raw_studentised_low"] == "") == (len(column) < 3)
    energy = {
        (line["scenario"], line["method"]): (line["residual_energy"], line["residual_energy_se"]) for line in lines
    }
    assert energy["matrix/stag_hunt", "HPML-MAPPO (Graph)"] == ("2.0", "1.0")
    assert energy["clean_up", "HPML-MAPPO (Graph)"] == ("4.0", "")
    assert energy["clean_up", "MAPPO"] == ("", "")
    best = [max(float(line["normalised_mean"]) for line in lines if line["scenario"] == s) for s in results.scenarios]
    assert best == pytest.approx([100.0, 100.0])


def test_the_numbers_can_be_made_again_from_the_runs_in_csv():
    results = small_results(ragged=False)
    lines = list(csv.DictReader(io.StringIO(runs_csv(results))))
    for method in results.methods:
        scores = np.array([float(line["raw"]) for line in lines if line["method"] == method]).reshape(2, 3).T
        assert scores.tolist() == results.final[method].tolist()
        assert metrics.aggregate_mean(scores) == pytest.approx(results.final[method].mean())
    assert [line["seed"] for line in lines[:3]] == ["0", "1", "2"]
    assert (lines[0]["steps"], lines[-1]["steps"]) == ("", "700")


def test_marl_eval_gets_what_every_method_has():
    results = small_results()
    file, notes = marl_eval(results)
    assert json.loads(json.dumps(file, allow_nan=False)) == file
    assert {family: list(tasks) for family, tasks in file.items()} == {
        "matrix": ["stag_hunt"],
        "meltingpot": ["clean_up"],
    }
    assert notes == (
        "The marl-eval file has the seeds that every method has on every scenario only: 0, 1.",
        "The marl-eval file has 4 evaluations of each run, as many as the shortest has.",
    )
    for tasks in file.values():
        for algorithms in tasks.values():
            assert list(algorithms) == ["MAPPO", "HPML-MAPPO (Graph)", "HPML-MAPPO (Graph adjust)"]
            for runs in algorithms.values():
                assert list(runs) == ["seed_0", "seed_1"]
                for steps in runs.values():
                    assert list(steps) == ["step_0", "step_1", "step_2", "step_3", "absolute_metrics"]
                    assert all(set(step) == {"step_count", "return"} for name, step in steps.items() if "step" in name)
    graph, mappo = (file["meltingpot"]["clean_up"][name]["seed_1"] for name in ("HPML-MAPPO (Graph)", "MAPPO"))
    assert [graph[f"step_{j}"]["step_count"] for j in range(4)] == [100, 300, 500, 700]
    assert mappo["step_3"]["return"] == [results.tracks["clean_up", "MAPPO", 1].metrics["return"][3]]
    assert mappo["absolute_metrics"] == {"return": [results.final["MAPPO"][1, 1]]}


def test_marl_eval_leaves_out_what_was_not_evaluated():
    results = small_results()
    tracks = {key: track for key, track in results.tracks.items() if key[:2] != ("clean_up", "MAPPO")}
    file, notes = marl_eval(Results(results.scenarios, results.final, results.seeds, tracks=tracks))
    assert list(file) == ["matrix"]
    assert notes[0] == "Left out of the marl-eval file, as not every method was evaluated there: clean_up."
    assert marl_eval(Results(results.scenarios, results.final))[0] == {}


def test_marl_evals_own_check_finds_the_file_valid():
    errors = pytest.importorskip("marl_eval.utils.diagnose_data_errors", reason="marl-eval pins an old pandas")
    for checks in errors.DiagnoseData(marl_eval(small_results())[0]).check_data().values():
        assert all(checks.values())


def test_part_of_the_results_has_its_own_scale():
    results = small_results()
    part = results.only(methods=("MAPPO", "HPML-MAPPO (Graph)"), scenarios=("clean_up",))
    assert part.scenarios == ("clean_up",)
    assert np.array_equal(part.final["MAPPO"], results.final["MAPPO"][:, 1:], equal_nan=True)
    means = sorted(float(np.nanmean(table)) for table in part.normalised.values())
    assert means == pytest.approx([0.0, 100.0], abs=1e-9)
    assert set(part.tracks) == {key for key in results.tracks if key[0] == "clean_up" and key[1] in part.methods}
    with pytest.raises(ValueError, match="near: HPML-MAPPO"):
        results.only(methods=("HPML-MAPPO",))
