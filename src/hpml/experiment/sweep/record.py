"""The sweep's own record of a run: what it is, and every attempt at it.

An attempt is noted when it starts and once more when it ends, both by the process that holds the run; one that only
started is one that was lost.
"""

import json
import os
import platform
from datetime import UTC, datetime
from typing import Any

from hpml.experiment.sweep.job import Job, Outcome
from hpml.experiment.sweep.place import Place

STARTED = "started"


def read_record(place: Place, name: str) -> dict[str, Any]:
    """The record of a run; empty where there is none that can be read."""
    try:
        found = json.loads(place.read(f"{name}.json") or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def attempts(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The attempts of a record, oldest first."""
    found = record.get("attempts")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def note_start(place: Place, job: Job) -> None:
    """Note that an attempt starts; one before it that never ended was lost."""
    known = attempts(read_record(place, job.name))
    known = [each | ({"outcome": "lost"} if each.get("outcome") == STARTED else {}) for each in known]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entry = {"when": now, "host": platform.node(), "pid": os.getpid()}
    entry |= {"seconds": 0.0, "outcome": STARTED, "reason": ""}
    _write(place, job, [*known, entry])


def note_end(place: Place, job: Job, outcome: Outcome) -> None:
    """Note how the attempt that was started last has ended."""
    known = attempts(read_record(place, job.name))
    end = {"seconds": round(outcome.seconds, 3), "outcome": outcome.state, "reason": outcome.reason}
    _write(place, job, [*known[:-1], (known[-1] if known else {}) | end])


def _write(place: Place, job: Job, known: list[dict[str, Any]]) -> None:
    place.write(f"{job.name}.json", (json.dumps(job.record | {"attempts": known}, indent=2) + "\n").encode())
