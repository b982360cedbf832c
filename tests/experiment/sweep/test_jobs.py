"""What stands on the disk decides what runs: finished is skipped, more seeds and steps are added, others are left."""

import dataclasses
import json
import tomllib

import numpy as np
import pytest

from hpml.experiment.checkpoint import save_checkpoint
from hpml.experiment.config import from_json
from hpml.experiment.store import create_run, packages
from hpml.experiment.sweep.command import Request, keep_suite
from hpml.experiment.sweep.job import Outcome
from hpml.experiment.sweep.jobs import Look, Standing, cells, check_place, jobs
from hpml.experiment.sweep.machine import Machine, sized
from hpml.experiment.sweep.place import Folder
from hpml.experiment.sweep.record import attempts, note_end, note_start, read_record
from hpml.experiment.sweep.suite import parse_suite, read_suite
from hpml.experiment.sweep.unit import going_on

SUITE = """
name = "small"
steps = 3200
seeds = 3
environments = ["rps"]
methods = ["mappo"]
train = {environments = 4, rollout = 8, hidden = 8}
"""
UPDATES = 100  # of 4 x 8 steps


def asked(place, text=SUITE, **options):
    suite = parse_suite(text)
    look = Look(place)
    return {job.name: (job, look.standing(job)) for job in jobs(cells(suite, **options), suite, look)}


def begin(place, job, *updates):
    """A run folder as `train` leaves it, with checkpoints of some updates."""
    config = from_json(job.config)
    path = place.path / job.name
    create_run(path, job.config | {"out": str(path)}, list(config.all_seeds)).close()
    for update in updates:
        save_checkpoint(path / "checkpoints", update, {"x": np.zeros(2)})


@pytest.fixture
def place(tmp_path):
    return Folder(tmp_path)


def one(place, *arguments, **options):
    ((name, (job, standing)),) = asked(place, *arguments, **options).items()
    return name, job, standing


@pytest.mark.parametrize(("outcome", "state"), [("done", "finished"), ("stopped", "interrupted")])
def test_results_without_checkpoints_are_finished_where_the_record_says_so(place, outcome, state):
    _, job, _ = one(place)
    begin(place, job)
    note_start(place, job)
    note_end(place, job, Outcome(outcome))
    assert one(place)[2].state == state
    assert one(place, budget=2 * 3200)[2].state == "interrupted"


def test_a_run_is_new_interrupted_finished_and_longer(place):
    name, job, standing = one(place)
    assert name == "runs/rps/mappo/seeds-0-2"
    assert job.record == {"environment": "rps", "method": "mappo", "label": "mappo", "suite": "small"}
    assert standing.state == "new"
    begin(place, job)
    assert one(place)[2].state == "interrupted"
    save_checkpoint(place.path / name / "checkpoints", UPDATES - 1, {"x": np.zeros(2)})
    assert (one(place)[2].state, one(place)[2].update) == ("interrupted", UPDATES - 1)
    save_checkpoint(place.path / name / "checkpoints", UPDATES, {"x": np.zeros(2)})
    assert one(place)[2].state == "finished"
    assert one(place, budget=3200 - 32)[2].state == "finished"
    # More steps go on with the same run, in the rhythm of evaluations that it began with.
    longer = one(place, budget=32_000)
    assert (longer[0], longer[2].state) == (name, "interrupted")
    config = going_on(longer[1], place.path / name)
    assert (config.steps, config.resume) == (32_000, True)
    assert config.evaluate_every == job.config["evaluate_every"] != longer[1].config["evaluate_every"]


def test_a_run_that_was_begun_with_other_versions_says_so_before_it_goes_on(place):
    name, job, _ = one(place)
    begin(place, job)
    versions = place.path / name / "versions.json"
    versions.write_text(json.dumps({"starts": [{"versions": packages() | {"device": "H200"}}]}))
    assert one(place)[2] == Standing("interrupted")
    versions.write_text(json.dumps({"starts": [{"versions": packages() | {"jax": "0.0.1"}}]}))
    standing = one(place)[2]
    assert standing.state == "interrupted"
    assert standing.reason.startswith("it was begun with other versions (jax 0.0.1 -> ")
    versions.write_text("{")
    assert one(place)[2] == Standing("interrupted")


def test_seeds_that_are_added_are_a_run_of_their_own(place):
    begin(place, one(place)[1], UPDATES)
    found = {name: standing.state for name, (_, standing) in asked(place, seeds=5).items()}
    assert found == {"runs/rps/mappo/seeds-0-2": "finished", "runs/rps/mappo/seeds-3-4": "new"}
    # Fewer seeds than there are: the run that has them counts.
    assert list(asked(place, seeds=2)) == ["runs/rps/mappo/seeds-0-2"]
    # Earlier seeds, and a gap between two runs.
    begin(place, asked(place, SUITE + "first_seed = 6")["runs/rps/mappo/seeds-6-8"][0])
    found = asked(place, seeds=10)
    assert [name.rpartition("/")[2] for name in found] == ["seeds-0-2", "seeds-3-5", "seeds-6-8", "seeds-9-9"]
    assert [job.config["seed"] for job, _ in found.values()] == [0, 3, 6, 9]
    assert [job.config["seeds"] for job, _ in found.values()] == [3, 3, 3, 1]


def test_another_run_and_other_files_are_set_aside(place):
    _, job, _ = one(place)
    begin(place, job, 7)
    _, _, standing = one(place, SUITE.replace("hidden = 8", "hidden = 16"))
    assert standing.state == "aside"
    assert "has --hidden 8, and 16 was asked for" in standing.reason
    (place.path / job.name / "config.json").write_text("{")
    assert "cannot be read" in one(place)[2].reason
    (place.path / job.name / "config.json").unlink()
    _, _, standing = one(place)
    assert standing.state == "aside"
    assert "holds other things (checkpoints)" in standing.reason


def test_a_place_with_other_peoples_files_is_refused(place):
    check_place(place)
    (place.path / "thesis.tex").touch()
    with pytest.raises(ValueError, match=r"holds other things \(thesis.tex\)"):
        check_place(place)
    (place.path / "runs/Nov16").mkdir(parents=True)
    (place.path / "runs/Nov16/events.out").touch()  # of another program that calls its folder so
    with pytest.raises(ValueError, match="holds other things"):
        check_place(place)
    begin(place, one(place)[1])
    check_place(place)


def test_a_record_has_every_attempt(place):
    _, job, _ = one(place)
    note_start(place, job)
    note_start(place, job)  # the one before it was lost
    note_end(place, job, Outcome("failed", "out of luck", 1.5))
    assert one(place)[2].state == "failed"
    assert one(place)[2].reason == "out of luck"
    note_start(place, job)
    assert one(place)[2].state == "new"
    note_end(place, job, Outcome("done", "", 2.0))
    record = read_record(place, job.name)
    assert [each["outcome"] for each in attempts(record)] == ["lost", "failed", "done"]
    assert record["label"] == "mappo"
    place.write(f"{job.name}.json", b"{half")
    assert read_record(place, job.name) == {}
    place.write(f"{job.name}.json", json.dumps({"attempts": 3}).encode())
    assert attempts(read_record(place, job.name)) == []


def test_a_job_gets_its_share_of_a_machine(place):
    _, job, _ = one(place)
    hosted = dataclasses.replace(job, config=job.config | {"env": "meltingpot/clean_up"})
    small, large = Machine(2), Machine(16, (48.0, 48.0))
    assert (sized(job, small).cores, sized(job, large).cores) == (1, 1)
    assert (sized(hosted, small).cores, sized(hosted, large).cores) == (2, 4)
    assert sized(hosted, large).config["workers"] == 4
    assert sized(hosted, large, workers=7).cores == 7
    assert sized(hosted, large, at_once=2).config["workers"] == 8
    assert sized(hosted, large).gpu == pytest.approx(1 / 3)
    assert sized(hosted, large, at_once=8).gpu == pytest.approx(1 / 4)
    assert sized(hosted, large, device="cpu").gpu == 0
    assert sized(hosted, small).gpu == 0


def test_a_suite_is_kept_with_what_was_asked_and_can_be_swept_again(place):
    suite = parse_suite(SUITE)
    request = Request(budget=64.0, only=("env=rps",), command='hpml sweep "small"')
    keep_suite(place, suite, request)
    again = read_suite(str(place.path / "suites/small.toml"))
    assert dataclasses.replace(again, text="") == dataclasses.replace(suite, text="")
    keep_suite(place, again, Request(seeds=2))
    kept = tomllib.loads((place.path / "suites/small.toml").read_text())
    assert kept["asked"] == [
        {"command": 'hpml sweep "small"', "steps": 64, "only": ["env=rps"]},
        {"command": "", "steps": 3200, "seeds": 2, "only": []},
    ]
    assert {name: value for name, value in kept.items() if name != "asked"} == tomllib.loads(SUITE)
