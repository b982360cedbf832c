"""What a suite asked for and is not there is said, and so is what failed."""

import json

from report.sweep.folders import BATCH, write_run

from hpml.report.sweep.missing import failures, gaps, wanted_cells
from hpml.report.sweep.study import read_study

SUITE = f"""
name = "small"
steps = {20 * BATCH}
seeds = 3
environments = ["stag_hunt", "climbing"]

[methods.mappo]
label = "MAPPO"

[methods.hpml_graph]
label = "HPML-MAPPO (graph)"
algo = "mappo"
projection = "graph"

[scenario.climbing]
steps = {10 * BATCH}
methods = ["mappo"]
"""
ASKED = f"""
[asked]  # what the last sweep asked of this suite
command = "hpml sweep small"
steps = {40 * BATCH}
seeds = 2
only = ["env=stag_hunt method=mappo"]
"""


def test_a_suite_asks_for_cells_with_seeds_and_steps():
    wanted = wanted_cells(SUITE)
    assert wanted == {
        ("matrix/stag_hunt", "MAPPO"): ((0, 1, 2), 20 * BATCH),
        ("matrix/stag_hunt", "HPML-MAPPO (graph)"): ((0, 1, 2), 20 * BATCH),
        ("matrix/climbing", "MAPPO"): ((0, 1, 2), 10 * BATCH),
    }
    assert wanted_cells(SUITE + ASKED) == {("matrix/stag_hunt", "MAPPO"): ((0, 1), 40 * BATCH)}


def sweep(tmp_path):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites/small.toml").write_text(SUITE)
    write_run(tmp_path / "runs/stag_hunt/mappo/seeds-0-2", seeds=(0, 1, 2), updates=20)
    write_run(tmp_path / "runs/stag_hunt/hpml_graph/seeds-0-1", seeds=(0, 1), updates=20, projection="graph")
    write_run(tmp_path / "runs/climbing/mappo/seeds-0-2", seeds=(0, 1, 2), updates=10, upto=6, env="matrix/climbing")
    record = {
        "environment": "climbing",
        "method": "mappo",
        "label": "MAPPO",
        "attempts": [{"outcome": "lost", "reason": ""}, {"outcome": "failed", "reason": "The disk is full."}],
    }
    (tmp_path / "runs/climbing/mappo/seeds-0-2.json").write_text(json.dumps(record))
    return read_study([str(tmp_path)])


def test_what_is_not_finished_is_listed_and_what_is_finished_is_not(tmp_path):
    study = sweep(tmp_path)
    found, troubles = gaps(study)
    assert {(gap.environment, gap.method): gap.words for gap in found} == {
        ("matrix/stag_hunt", "HPML-MAPPO (graph)"): "2 of 3, 0\u00a0%",
        ("matrix/climbing", "MAPPO"): "0 of 3, 60\u00a0%",
    }
    assert not troubles
    ((name, attempts, outcome, reason),) = failures(study)
    assert name.endswith("runs/climbing/mappo/seeds-0-2")
    assert (attempts, outcome, reason) == (2, "failed", "The disk is full.")


def test_a_suite_that_cannot_be_read_is_said_and_runs_speak_for_themselves(tmp_path):
    sweep(tmp_path)
    (tmp_path / "suites/small.toml").write_text("name = [")
    found, troubles = gaps(read_study([str(tmp_path)]))
    assert len(troubles) == 1
    assert [(gap.environment, gap.wanted_seeds) for gap in found] == [("matrix/climbing", 3)]
