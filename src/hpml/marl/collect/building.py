"""The next episodes of a worker, built while it rests.

Most episodes last for several rollouts, so that there is time; after a shorter one the next is built when it is needed.
Everybody waits for the slowest worker, and one that builds in the middle of a rollout would be the slowest.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from hpml.marl.env import Observation

Episode = tuple[Any, Observation]
BEHIND = 5  # how much less urgent building is, in the system's units of niceness


class Building:
    """An episode that is built when somebody has time: the builder while the worker rests, or who needs it now.

    One at a time is built in a process (`alone`): what an environment does in `reset` need not be safe in two threads,
    and some substrates draw their maps with Python's global generator.
    """

    def __init__(self, build: Callable[[], Episode], alone: threading.Lock):
        self._build, self._alone = build, alone
        self._claimed, self._built = threading.Lock(), Future[Episode]()

    def begin(self) -> None:
        """Build it, unless somebody else has begun."""
        if not self._claimed.acquire(blocking=False):
            return
        try:
            with self._alone:
                self._built.set_result(self._build())
        except BaseException as problem:
            self._built.set_exception(problem)

    def take(self) -> Episode:
        """The episode, built here and now if nobody has begun; those that were ordered before it can wait."""
        self.begin()
        episode = self._built.result()
        self._built = Future()  # the builder's list must not keep it
        return episode


class Builder:
    """Builds episodes ahead, one after the other, while `resting` is set; what is begun goes on when it is not."""

    def __init__(self) -> None:
        self.resting, self._alone = threading.Event(), threading.Lock()
        self._thread = ThreadPoolExecutor(1, initializer=_step_back)

    def order(self, build: Callable[[], Episode]) -> Building:
        """An episode to be built."""
        building = Building(build, self._alone)
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
