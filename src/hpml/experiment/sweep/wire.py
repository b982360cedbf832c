"""Jobs and news as lines of text, for processes that talk to each other."""

import dataclasses
import json
from typing import Any

from hpml.experiment.sweep.job import Job, News, Outcome


def job_line(job: Job) -> str:
    """A job as one line of JSON."""
    return json.dumps(dataclasses.asdict(job))


def read_job(line: str) -> Job:
    """A job from its line."""
    return Job(**json.loads(line))


def news_line(news: News) -> str:
    """News as one line of JSON."""
    outcome = None if news.outcome is None else news.outcome._asdict()
    return json.dumps(news._asdict() | {"outcome": outcome})


def read_news(line: str) -> News | None:
    """News from its line; None where it is something else."""
    try:
        found: dict[str, Any] = json.loads(line)
        outcome = found.pop("outcome")
        return News(**found, outcome=None if outcome is None else Outcome(**outcome))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
