"""A hosted environment whose every number is known in advance: what the pool must bring back."""

import os
import signal
from typing import Any, ClassVar

import numpy as np

from hpml.marl.env import Env, Observation, Spec, Step


class Counting(Env):
    """Two agents see the episode's seed, the step and their last action; an episode takes 3 to 7 steps.

    `fails` is a step at which the environment raises an error, `dies` one at which it ends its process.
    """

    compiled: ClassVar[bool] = False

    def __init__(self, fails: int = -1, dies: int = -1):
        self.spec = Spec("counting", agents=2, actions=5, image=(1, 1, 1), vector=3, masked=True, conventions=5)
        self.fails, self.dies = fails, dies

    def length(self, seed: int) -> int:
        """How many steps the episode takes."""
        return 3 + seed % 5

    def seen(self, seed: int, step: int, actions: Any) -> Observation:
        """What both agents see."""
        vector = np.array([[seed % 1000, step, each] for each in actions], np.float32)
        image = np.full((2, 1, 1, 1), seed % 256, np.uint8)
        return Observation(vector=vector, image=image, mask=np.arange(5) <= np.array([[step % 5], [4]]))

    def reset(self, key: Any) -> tuple[Any, Observation]:
        """Step 0."""
        return (key, 0), self.seen(key, 0, (-1, -1))

    def step(self, state: Any, actions: Any, key: Any = None) -> tuple[Any, Step]:
        """One step on."""
        seed, step = state[0], state[1] + 1
        if step == self.fails:
            raise ValueError("counting got tired.")
        if step == self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        acts = np.array(actions)
        done = step == self.length(seed)
        return (seed, step), Step(self.seen(seed, step, acts), acts * 10.0, done, np.where(acts == 4, step % 5, -1))


def make(name: str, trap: str = "", **options: int) -> Counting:
    """The only environment of the family. Whoever makes it while the file `trap` is there removes that, and ends."""
    if trap and os.path.exists(trap):
        os.unlink(trap)
        os.kill(os.getpid(), signal.SIGKILL)
    return Counting(**options)
