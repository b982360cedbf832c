"""Runs are found at any depth, told apart by how they learn, and what is none is named."""

import json

import pytest
from report.sweep.folders import config_of, contents, write_run

from hpml.report.sweep.find import find_runs
from hpml.report.sweep.identity import environment_name, method_name
from hpml.report.sweep.paper import SCENARIOS


def test_runs_are_found_at_any_depth_and_once(tmp_path):
    write_run(tmp_path / "a" / "b" / "run")
    write_run(tmp_path / "run", algo="ippo")
    found = find_runs([str(tmp_path), str(tmp_path / "a"), str(tmp_path)])
    assert sorted(run.method for run in found.runs) == ["IPPO", "MAPPO"]
    assert not found.aside


def test_a_run_folder_itself_is_taken(tmp_path):
    (run,) = find_runs([str(write_run(tmp_path / "run", seeds=(4, 5), updates=3))]).runs
    assert (run.environment, run.seeds, run.asked, run.batch) == ("matrix/stag_hunt", (4, 5), 192, 64)
    assert run.versions == {"hpml": "0.1.0", "jax": "0.10.2", "device": "cpu"}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"algo": "ia2c"}, "IA2C"),
        ({"projection": "graph"}, "HPML-MAPPO (graph)"),
        ({"projection": "graph", "projection_preset": "paper"}, "HPML-MAPPO (graph, paper)"),
        ({"algo": "ippo", "projection": "kernel", "residual": "adjust"}, "HPML-IPPO (kernel, adjust)"),
    ],
)
def test_methods_are_named_by_what_they_do(options, name):
    assert method_name(config_of(**options)) == name


def test_a_sweep_names_its_methods_itself(tmp_path):
    write_run(tmp_path / "runs/stag_hunt/best/seeds-0-0")
    record = {"environment": "stag_hunt", "method": "best", "label": "The best", "attempts": []}
    (tmp_path / "runs/stag_hunt/best/seeds-0-0.json").write_text(json.dumps(record))
    (run,) = find_runs([str(tmp_path)]).runs
    assert run.method == "The best"


def test_the_papers_scenarios_have_their_short_names():
    assert environment_name("meltingpot/clean_up") == "clean_up"
    assert environment_name("meltingpot/bach_or_stravinsky_in_the_matrix__repeated") == SCENARIOS[0].name
    assert environment_name("matrix/stag_hunt:horizon=9") == "matrix/stag_hunt:horizon=9"


def test_runs_that_learn_otherwise_are_methods_of_their_own(tmp_path):
    write_run(tmp_path / "one", seeds=(0, 1))
    write_run(tmp_path / "two", seeds=(2,), updates=40, episodes=9)  # longer and watched otherwise: the same method
    write_run(tmp_path / "three", seeds=(3,), hidden=7)
    found = find_runs([str(tmp_path)])
    assert sorted(run.method for run in found.runs) == ["MAPPO", "MAPPO", "MAPPO [hidden=7]"]
    assert len(found.notes) == 1
    assert "hidden=7" in found.notes[0]


def test_what_is_no_run_is_set_aside_with_its_reason_and_left_alone(tmp_path):
    write_run(tmp_path / "good")
    for name in ("none", "damaged", "other", "empty"):
        write_run(tmp_path / name)
    (tmp_path / "none/config.json").unlink()
    (tmp_path / "damaged/config.json").write_text('{"env": "matr')
    (tmp_path / "other/config.json").write_text(json.dumps({"env": "matrix/stag_hunt", "algo": "mappo", "units": 3}))
    for part in (tmp_path / "empty/metrics").iterdir():
        part.unlink()
    (tmp_path / "web").mkdir()
    (tmp_path / "web/config.json").write_text('{"port": 80}')  # somebody else's, and nothing to us
    before = contents(tmp_path)
    found = find_runs([str(tmp_path)])
    reasons = {item.name.rpartition("/")[2]: item.reason for item in found.aside}
    assert [run.name for run in found.runs] == [f"{tmp_path}/good"]
    assert reasons.keys() == {"none", "damaged", "other", "empty"}
    assert "no config.json" in reasons["none"]
    assert "damaged" in reasons["damaged"]
    assert "another version of hpml: it has no seeds, seed, steps, settings" in reasons["other"]
    assert "no metrics yet" in reasons["empty"]
    assert contents(tmp_path) == before


def test_runs_that_chose_settings_are_left_out(tmp_path):
    write_run(tmp_path / "runs/stag_hunt/mappo/seeds-0-0")
    write_run(tmp_path / "tuning/runs/stag_hunt/mappo/seeds-1000-1000", seeds=(1000,))
    found = find_runs([str(tmp_path)])
    assert [run.seeds for run in found.runs] == [(0,)]
    assert "1 runs" in found.notes[0]
    assert [run.seeds for run in find_runs([str(tmp_path / "tuning")]).runs] == [(1000,)]


def test_mistakes_are_named(tmp_path):
    write_run(tmp_path / "sweep" / "run")
    with pytest.raises(ValueError, match=r"does not exist\. Did you mean .*sweep"):
        find_runs([str(tmp_path / "sweeep")])
    with pytest.raises(ValueError, match="is a file"):
        find_runs([str(tmp_path / "sweep/run/config.json")])
    (tmp_path / "bare").mkdir()
    with pytest.raises(ValueError, match="no runs under"):
        find_runs([str(tmp_path / "bare")])
