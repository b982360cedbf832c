"""Curves to watch while a run goes on: TensorBoard's event files, and Weights & Biases where it is asked for."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Tracker(ABC):
    """Something that draws curves."""

    @abstractmethod
    def log(self, update: int, steps: int, seed: int, values: Mapping[str, float]) -> None:
        """Add a point to the curves of a seed."""

    @abstractmethod
    def close(self) -> None:
        """Write what is left."""


class TensorBoard(Tracker):
    """Event files, a folder for each seed, with environment steps on the axis; neither TensorFlow nor PyTorch.

    `after` is where a resumed run goes on: points beyond it, of the run that was killed, are taken back.
    """

    def __init__(self, folder: Path, seeds: tuple[int, ...], after: int | None = None) -> None:
        Event, SessionLog, Summary, RecordWriter = tensorboard_package()
        self._event, self._summary = Event, Summary
        self._writers: dict[int, Any] = {}
        for seed in seeds:
            place = folder / f"seed-{seed}"
            place.mkdir(parents=True, exist_ok=True)
            # The reader takes the files in the order of their names.
            name = f"events.out.tfevents.{time.time_ns() // 1000:017d}.{os.getpid()}"
            writer = RecordWriter((place / name).open("wb"))
            writer.write(Event(wall_time=time.time(), file_version="brain.Event:2").SerializeToString())
            if after is not None:
                start = Event(wall_time=time.time(), step=after + 1, session_log=SessionLog(status=SessionLog.START))
                writer.write(start.SerializeToString())
            writer.flush()
            self._writers[seed] = writer

    def log(self, update: int, steps: int, seed: int, values: Mapping[str, float]) -> None:
        """Write a point of every curve; it is on the disk when this returns."""
        summary = self._summary(
            value=[self._summary.Value(tag=name, simple_value=float(value)) for name, value in values.items()]
        )
        event = self._event(wall_time=time.time(), step=steps, summary=summary)
        self._writers[seed].write(event.SerializeToString())
        self._writers[seed].flush()

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.close()


class WeightsAndBiases(Tracker):
    """One run of Weights & Biases, the seeds' curves side by side; it goes on under the same identity when resumed."""

    def __init__(self, project: str, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        wandb = wandb_package()
        remembered = folder / "wandb-id.txt"
        identity = remembered.read_text().strip() if remembered.exists() else wandb.util.generate_id()
        remembered.write_text(identity)
        self._run = wandb.init(
            project=project, name=name, id=identity, resume="allow", dir=str(folder), config=dict(config)
        )

    def log(self, update: int, steps: int, seed: int, values: Mapping[str, float]) -> None:
        """Send a point of every curve."""
        named = {f"seed-{seed}/{name}": float(value) for name, value in values.items()}
        self._run.log(named | {"update": update, "steps": steps})

    def close(self) -> None:
        """Finish the upload."""
        self._run.finish()


def tensorboard_package() -> tuple[Any, Any, Any, Any]:
    """The writers of records and events alone: the package's own file writer would import TensorFlow where it is."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter
    except ImportError as error:
        raise ValueError('Training writes curves for TensorBoard: pip install "hpml[train]".') from error
    return Event, SessionLog, Summary, RecordWriter


def wandb_package() -> Any:
    """Weights & Biases, or one sentence where it is missing."""
    try:
        import wandb
    except ImportError as error:
        raise ValueError("--wandb needs Weights & Biases: pip install wandb, or leave it out.") from error
    return wandb
