"""Tuning tries as much for every method, looks at no reported seed, and chooses the best by the last quarter."""

import csv
import io

import pytest

from hpml.experiment.metrics import MetricsWriter
from hpml.experiment.store import create_run
from hpml.experiment.sweep.board import Line
from hpml.experiment.sweep.driver import Swept
from hpml.experiment.sweep.jobs import Look, cells, jobs
from hpml.experiment.sweep.place import Folder
from hpml.experiment.sweep.suite import parse_suite
from hpml.experiment.sweep.tune import TRIED, tune

SUITE = """
name = "small"
steps = 4000
seeds = 3
environments = ["stag_hunt", "climbing"]
methods = ["mappo", "ippo"]
[scenario.climbing]
steps = 400
[tune]
seeds = [1000, 1001, 1003]
steps = 1000
[tune.grid]
actor_rate = [1e-3, 3e-3]
entropy = [0.0, 0.1]
"""


def returns(config):
    """Eight evaluations whose last quarter tells: stag_hunt likes entropy, climbing a high rate."""
    good = config.settings.entropy * 10 if "stag" in config.env else config.settings.actor_rate * 100
    return [100.0 - good] * 6 + [good, good + 1.0]


def swept_at(place, suite, broken=()):
    """What runs cells: it writes the metrics that `returns` says, plus a hundredth for each seed."""

    def swept(found, look):
        lines = []
        configs = {(each.environment, each.method.key, each.config.seed): each.config for each in found}
        for job in jobs(found, suite, look):
            key = (job.record["environment"], job.record["method"], job.config["seed"])
            line = Line(job, "failed" if key[:2] in broken else "finished", reason="it broke" * (key[:2] in broken))
            lines.append(line)
            if line.state == "failed" or job.name in look.runs:
                continue
            config = configs[key]
            create_run(place.path / job.name, job.config, list(config.all_seeds)).close()
            writer = MetricsWriter(place.path / job.name / "metrics")
            for number, value in enumerate(returns(config)):
                for seed in config.all_seeds:
                    writer.log(2 * number, number, seed, {"evaluation/return": value + seed / 100})
                    writer.log(2 * number + 1, number, seed, {"return": 1e9})  # no evaluation
            writer.flush()
        return Swept(tuple(lines))

    return swept


def test_the_best_of_grids_of_one_size_on_seeds_of_their_own(tmp_path):
    suite, place = parse_suite(SUITE), Folder(tmp_path)
    asked = cells(suite)
    found = tune(suite, asked, place, swept_at(place, suite))
    high = {"actor_rate": 3e-3, "entropy": 0.0}  # the first of equals
    assert found.chosen == {
        ("stag_hunt", "mappo"): {"actor_rate": 1e-3, "entropy": 0.1},
        ("stag_hunt", "ippo"): {"actor_rate": 1e-3, "entropy": 0.1},
        ("climbing", "mappo"): high,
        ("climbing", "ippo"): high,
    }
    rows = list(csv.DictReader(io.StringIO((tmp_path / TRIED).read_text())))
    assert len(rows) == 2 * 2 * 4
    assert sum(row["chosen"] == "yes" for row in rows) == 4
    row = next(row for row in rows if row["environment"] == "stag_hunt" and row["chosen"] == "yes")
    seeds = {seed: float(row[f"return_seed_{seed}"]) for seed in (1000, 1001, 1003)}
    assert seeds == {seed: pytest.approx(1.5 + seed / 100) for seed in seeds}  # the mean of 1 and 2
    assert float(row["mean"]) == pytest.approx(sum(seeds.values()) / 3)
    # A quarter of the steps for trials, of an environment with steps of its own too.
    assert {(row["environment"], row["steps"]) for row in rows} == {("stag_hunt", "1000"), ("climbing", "100")}
    # Runs lie beside, not among, those that are reported, and neighbours train together.
    look = Look(place, "tuning/runs")
    assert len(look.runs) == 16 * 2
    assert Look(place).runs == set()
    assert {run.rpartition("/")[2] for run in look.runs} == {"seeds-1000-1001", "seeds-1003-1003"}
    # What was chosen is what runs.
    chosen = {(cell.environment, cell.method.key): cell.config for cell in cells(suite, chosen=found.chosen)}
    assert chosen["climbing", "ippo"].settings.actor_rate == 3e-3
    assert chosen["climbing", "ippo"].all_seeds == (0, 1, 2)


def test_what_was_tried_before_stays_in_the_table(tmp_path):
    suite, place = parse_suite(SUITE), Folder(tmp_path)
    for only in ("env=stag_hunt", "env=climbing", "env=climbing"):
        tune(suite, cells(suite, [only]), place, swept_at(place, suite))
    whole = Folder(tmp_path / "whole")
    tune(suite, cells(suite), whole, swept_at(whole, suite))
    parts, at_once = (
        sorted(map(tuple, csv.reader(io.StringIO((folder.path / TRIED).read_text())))) for folder in (place, whole)
    )
    assert parts == at_once


def test_a_trial_that_fails_is_kept_with_its_reason_and_never_chosen(tmp_path):
    suite, place = parse_suite(SUITE), Folder(tmp_path)
    broken = {("stag_hunt", f"mappo__actor_rate={rate}__entropy=0.1") for rate in (0.001, 0.003)}
    broken |= {("climbing", f"ippo__actor_rate={rate}__entropy={e}") for rate in (0.001, 0.003) for e in (0.0, 0.1)}
    found = tune(suite, cells(suite), place, swept_at(place, suite, broken))
    assert found.chosen["stag_hunt", "mappo"]["entropy"] == 0.0
    assert ("climbing", "ippo") not in found.chosen
    assert any("No trial of ippo in climbing" in sentence for sentence in found.said)
    rows = list(csv.DictReader(io.StringIO((tmp_path / TRIED).read_text())))
    assert len(rows) == 16
    assert sum(row["reason"] == "it broke" and row["mean"] == "" for row in rows) == len(broken)


def test_reported_seeds_are_not_for_tuning(tmp_path):
    suite, place = parse_suite(SUITE), Folder(tmp_path)

    def never(found, look):
        raise AssertionError("nothing may run")

    with pytest.raises(ValueError, match="and 1000, 1001, 1003 is among"):
        tune(suite, cells(suite, seeds=1004), place, never)
    # Nor are those that another sweep has left at the place.
    (tmp_path / "runs/stag_hunt/mappo/seeds-998-1000").mkdir(parents=True)
    (tmp_path / "runs/stag_hunt/mappo/seeds-998-1000/config.json").touch()
    with pytest.raises(ValueError, match="and 1000 is among"):
        tune(suite, cells(suite), place, never)
    blind = parse_suite(SUITE + "[train]\nepisodes = 0\n")
    with pytest.raises(ValueError, match="episodes = 0"):
        tune(blind, cells(blind), Folder(tmp_path / "other"), never)
    without = parse_suite(SUITE.partition("[tune]")[0])
    with pytest.raises(ValueError, match=r"no \[tune\] table"):
        tune(without, cells(without), place, never)
