"""The driver over an executor whose runs end as a script says: nothing lost, one failure stops nothing."""

import io
import itertools
import math

import pytest
from rich.console import Console

from hpml.experiment.sweep.board import Board, Line, duration, table
from hpml.experiment.sweep.driver import RETRIES, last_words, sweep
from hpml.experiment.sweep.job import Job, News, Outcome
from hpml.experiment.sweep.jobs import Look
from hpml.experiment.sweep.place import Folder


class Scripted:
    """Ends each job as its script says, `at_once` of them side by side, and counts."""

    def __init__(self, scripts, at_once=2):
        self.scripts = {name: iter(script) for name, script in scripts.items()}
        self.at_once, self.started, self.running, self.most, self.closed = at_once, [], [], 0, False

    def room(self, job):
        return len(self.running) < self.at_once

    def start(self, job):
        assert job.name not in self.running
        self.started.append(job.name)
        self.running.append(job.name)
        self.most = max(self.most, len(self.running))

    def poll(self, seconds):
        if not self.running:
            return []
        name = self.running.pop(0)
        state = next(self.scripts[name])
        return [News(name, 3, 4, 0.5), News(name, outcome=Outcome(state, f"the reason of {state}", 1.0))]

    def stop(self):
        pass

    def close(self):
        self.closed = True


def job(place, method):
    config = {"steps": 40, "seeds": 1, "settings": {"environments": 2, "rollout": 5}}
    record = {"environment": "game", "method": method, "label": method, "suite": "s"}
    return Job(str(place), f"runs/game/{method}/seeds-0-0", config, record=record)


def drive(tmp_path, at_once=0, **scripts):
    executor = Scripted({f"runs/game/{key}/seeds-0-0": script for key, script in scripts.items()})
    console = Console(file=io.StringIO(), width=200)
    look = Look(Folder(tmp_path))
    swept = sweep([job(tmp_path, key) for key in scripts], executor, console, "title", look, at_once)
    assert executor.closed
    return swept, executor, console.file.getvalue()


def test_a_failure_stops_nothing_and_a_loss_is_made_good(tmp_path):
    swept, executor, said = drive(tmp_path, a=["done"], b=["failed"], c=["lost", "lost", "done"], d=["done"])
    assert [line.state for line in swept.lines] == ["finished", "failed", "finished", "finished"]
    assert [line.reason for line in swept.failed] == ["the reason of failed"]
    starts = [name.split("/")[2] for name in executor.started]
    assert sorted(starts) == ["a", "b", "c", "c", "c", "d"]
    assert executor.most == 2
    assert "game/b/seeds-0-0 failed" in said
    words = "\n".join(last_words(swept, 100.0, "place", "hpml sweep s"))
    assert "3 of 4 finished, 1 failed" in words
    assert "game/b/seeds-0-0: the reason of failed" in words
    assert "hpml sweep s" in words


def test_a_run_that_is_lost_again_and_again_is_given_up(tmp_path):
    swept, executor, _ = drive(tmp_path, a=itertools.repeat("lost"), b=["done"])
    assert [line.state for line in swept.lines] == ["failed", "finished"]
    assert executor.started.count("runs/game/a/seeds-0-0") == 1 + RETRIES
    assert f"lost {1 + RETRIES} times" in swept.failed[0].reason


def test_a_run_that_somebody_else_has_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr("hpml.experiment.sweep.driver.PAUSE", 0.0)
    swept, executor, said = drive(tmp_path, a=["busy", "busy", "done"], b=["done"])
    assert [line.state for line in swept.lines] == ["finished", "finished"]
    assert executor.started.count("runs/game/b/seeds-0-0") == 1
    assert said.count("worked on by somebody else") == 1


def test_no_more_at_once_than_asked_for(tmp_path):
    _, executor, _ = drive(tmp_path, 1, a=["done"], b=["done"], c=["done"])
    assert executor.most == 1


def test_the_table_shows_progress_time_left_and_failures(tmp_path):
    lines = {each: Line(job(tmp_path, each)) for each in "abcd"}
    board = Board("the title", lines, began=-math.inf)
    lines["a"].state = "finished"
    lines["b"].state, lines["b"].update, lines["b"].total = "running", 1, 4
    lines["c"].state, lines["c"].reason = "failed", "the sky fell"
    console = Console(file=io.StringIO(), width=120)
    console.print(table(board))
    said = console.file.getvalue()
    for words in ("the title", "done", "25 %", "failed", "the sky fell", "1 of 4 finished, 1 running, 1 failed"):
        assert words in said
    assert board.share == pytest.approx((1 + 0.25 + 1 + 0) / 4)
    assert [duration(each) for each in (5, 600, 7200, 500_000)] == ["5 s", "10 min", "2.0 h", "5.8 days"]


def test_time_left_is_what_the_speed_of_this_sweep_says(tmp_path, monkeypatch):
    lines = {each: Line(job(tmp_path, each)) for each in "abcd"}
    lines["a"].state = "finished"  # before this sweep began: it says nothing about its speed
    board = Board("", lines, began=100.0)
    assert math.isnan(board.left())
    lines["b"].state = "finished"
    monkeypatch.setattr("time.monotonic", lambda: 160.0)
    assert board.left() == pytest.approx(120.0)
