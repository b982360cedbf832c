"""What a suite asked for and is not there is said, and so is what failed."""

import json

from report.sweep.folders import BATCH, write_run

from hpml.experiment.sweep.asked import Asked, read_requests, with_requests, without_requests
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


def test_a_suite_that_was_run_in_parts_is_known_as_a_whole():
    """Each cell is as the last request that named it wanted it, by any of the environment's names."""
    parts = [
        Asked("first", 20 * BATCH, 0, ("env=stag_hunt",)),
        Asked("second", 40 * BATCH, 2, ("env=matrix/stag_hunt", "method=mappo")),
        Asked("third", 20 * BATCH, 0, ("env=climbing",)),
        Asked("gone", 20 * BATCH, 0, ("env=chicken",)),
    ]
    text = with_requests(SUITE, parts)
    assert read_requests(text) == parts
    assert wanted_cells(text) == {
        ("matrix/stag_hunt", "MAPPO"): ((0, 1), 40 * BATCH),
        ("matrix/stag_hunt", "HPML-MAPPO (graph)"): ((0, 1, 2), 20 * BATCH),
        ("matrix/climbing", "MAPPO"): ((0, 1, 2), 10 * BATCH),
    }
    again = with_requests(text, [*read_requests(text), Asked("first once more", 20 * BATCH, 0, ("env=stag_hunt",))])
    assert [each.command for each in read_requests(again)] == ["second", "third", "gone", "first once more"]
    assert without_requests(again).strip() == SUITE.strip() == without_requests(SUITE + ASKED).strip()


def test_a_scenario_with_seeds_of_its_own_is_finished_with_them(tmp_path):
    (tmp_path / "suites").mkdir()
    own = SUITE + "seeds = 2\n"  # of the last scenario
    (tmp_path / "suites/small.toml").write_text(with_requests(own, [Asked("", 20 * BATCH, 0, ("env=climbing",))]))
    write_run(tmp_path / "runs/climbing/mappo/seeds-0-1", seeds=(0, 1), updates=10, env="matrix/climbing")
    assert gaps(read_study([str(tmp_path)])) == ([], [])


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
