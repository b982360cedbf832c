"""The next episodes of a worker, built while it rests.

An episode lasts for many rollouts, so that there is time. Everybody waits for the slowest worker, and one that builds
in the middle of a rollout would be the slowest.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from hpml.marl.env import Observation

BEHIND = 5  # how much less urgent building is, in the system's units of niceness


class Building:
    """An episode that is built when somebody has time: the builder while the worker rests, or who needs it now."""

    def __init__(self, build: Callable[[], tuple[Any, Observation]]):
        self._build, self._claimed, self._built = build, threading.Lock(), Future[tuple[Any, Observation]]()

    def begin(self) -> None:
        """Build it, unless somebody else has begun."""
        if self._claimed.acquire(blocking=False):
            try:
                self._built.set_result(self._build())
            except BaseException as problem:
                self._built.set_exception(problem)

    def result(self) -> tuple[Any, Observation]:
        """The episode; nobody waits for another one first."""
        self.begin()
        return self._built.result()


class Builder:
    """Builds episodes ahead, one after the other, while `resting` is set; what is begun goes on when it is not."""

    def __init__(self) -> None:
        self.resting = threading.Event()
        self._thread = ThreadPoolExecutor(1, initializer=_step_back)

    def order(self, build: Callable[[], tuple[Any, Observation]]) -> Building:
        """An episode to be built."""
        building = Building(build)
        self._thread.submit(self._at_rest, building)
        return building

    def _at_rest(self, building: Building) -> None:
        self.resting.wait()
        building.begin()


def _step_back() -> None:
    """Building leaves the core to stepping; Linux has a priority for each thread."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + BEHIND)
