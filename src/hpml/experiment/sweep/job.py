"""What a driver gives to an executor, and what it hears back: jobs, news and outcomes."""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

State = Literal["done", "stopped", "failed", "lost", "busy"]


@dataclass(frozen=True)
class Job:
    """One run of a sweep: an environment, a method and the seeds that train together in one process.

    - `place`: the sweep's folder, or an address that fsspec knows. `name`: the run folder in it, with slashes.
    - `config`: the run's config as `config.to_json` has it; where the run folder exists the run goes on.
    - `cores`, `gpu`: what it is given of a machine; a share of a GPU, 0 for none.
    """

    place: str
    name: str
    config: dict[str, Any]
    cores: float = 1.0
    gpu: float = 0.0
    record: dict[str, Any] = field(default_factory=dict)


class Outcome(NamedTuple):
    """How a job ended.

    done: the run is finished. stopped: it was asked to stop and has its checkpoint. failed: it cannot go on, and
    `reason` says why in a sentence. lost: its process or its machine is gone; it can go on elsewhere from its last
    checkpoint. busy: somebody else is working on the run.
    """

    state: State
    reason: str = ""
    seconds: float = 0.0


class News(NamedTuple):
    """What an executor has to say about a job: how far it is, or, once, how it ended."""

    name: str
    update: int = 0
    total: int = 0
    gain: float = float("nan")
    outcome: Outcome | None = None


@runtime_checkable
class Executor(Protocol):
    """What runs jobs: processes of this machine, or a Ray cluster."""

    def room(self, job: Job) -> bool:
        """Whether a job can start now."""

    def start(self, job: Job) -> None:
        """Start a job; its end is news."""

    def poll(self, seconds: float) -> list[News]:
        """Wait for news, at most so long."""

    def stop(self) -> None:
        """Ask all jobs to checkpoint and end; their ends are news."""

    def close(self) -> None:
        """End whatever is left."""
