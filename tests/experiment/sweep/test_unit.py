"""One run of a sweep in this process: how it ends, and what it leaves."""

import io
import threading

import pytest

from hpml.experiment.config import from_json
from hpml.experiment.store import create_run
from hpml.experiment.sweep.job import Job, News, Outcome
from hpml.experiment.sweep.jobs import Look, cells, jobs
from hpml.experiment.sweep.place import open_place
from hpml.experiment.sweep.record import attempts, read_record
from hpml.experiment.sweep.suite import parse_suite
from hpml.experiment.sweep.unit import work
from hpml.experiment.sweep.wire import job_line, news_line, read_job, read_news

SUITE = """
name = "small"
steps = 64
seeds = 1
environments = ["rps"]
methods = ["ippo"]
train = {environments = 2, rollout = 4, hidden = 4, passes = 1, episodes = 0, measure = false, tensorboard = false}
"""


@pytest.fixture
def job(tmp_path):
    suite = parse_suite(SUITE)
    (found,) = jobs(cells(suite), suite, Look(open_place(str(tmp_path))))
    return found


def outcomes(job):
    return [each["outcome"] for each in attempts(read_record(open_place(job.place), job.name))]


def test_a_run_that_somebody_trains_by_hand_is_busy(job, tmp_path):
    config = from_json(job.config)
    held = create_run(tmp_path / job.name, job.config, list(config.all_seeds))
    outcome = work(job, lambda news: None, threading.Event())
    assert outcome.state == "busy"
    assert outcomes(job) == ["busy"]
    held.close()
    with open_place(job.place).work(job.name):  # and one that another sweep has
        assert work(job, lambda news: None, threading.Event()).state == "busy"
    assert outcomes(job) == ["busy"]


def test_a_run_that_cannot_go_on_says_why(job, tmp_path):
    (tmp_path / job.name).mkdir(parents=True)
    (tmp_path / job.name / "photo.jpg").touch()
    outcome = work(job, lambda news: None, threading.Event())
    assert outcome.state == "failed"
    assert "holds other things (photo.jpg)" in outcome.reason
    assert outcomes(job) == ["failed"]
    assert (tmp_path / job.name / "photo.jpg").exists()


def test_a_run_stops_when_asked_and_goes_on_to_its_end(job):
    ending, heard = threading.Event(), []
    asked = threading.Event()
    asked.set()
    assert work(job, heard.append, asked).state == "stopped"  # before it began

    def say(news):
        heard.append(news)
        ending.set()

    assert work(job, say, ending).state == "stopped"
    assert [news.update for news in heard] == [0]
    assert work(job, heard.append, threading.Event()).state == "done"
    assert (heard[-1].update, heard[-1].total) == (8, 8)
    assert outcomes(job) == ["stopped", "stopped", "done"]
    assert work(job, heard.append, threading.Event()).state == "done"  # finished: nothing to do, nothing noted
    assert outcomes(job) == ["stopped", "stopped", "done"]


def test_what_goes_over_the_wire_arrives(job):
    assert read_job(job_line(job)) == job
    assert read_job(io.StringIO(job_line(Job("p", "n", {}))).readline()) == Job("p", "n", {})
    for news in (News("a", 1, 2, 0.5), News("a", outcome=Outcome("failed", 'a "reason"\nof two lines', 1.0))):
        line = news_line(news)
        assert "\n" not in line
        found = read_news(line)
        assert found._replace(gain=0.0) == news._replace(gain=0.0)
    for line in ("", "hello", "3", "{}", '{"outcome": 3}'):
        assert read_news(line) is None
