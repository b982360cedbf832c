"""A small environment for worker processes: an agent is paid for saying the step's number plus its own, modulo three.

An episode takes 4 to 6 steps, by its seed. Imports nothing heavy, as every hosted environment.
"""

from dataclasses import dataclass

import numpy as np

from hpml.marl.env import Env, Observation, Spec, Step

AGENTS, ACTIONS, LONGEST = 2, 3, 6


@dataclass(frozen=True)
class Counting(Env):
    compiled = False
    spec = Spec("counting", AGENTS, ACTIONS, vector=4, horizon=LONGEST, conventions=ACTIONS)

    def reset(self, key):
        return {"t": 0, "end": 4 + key % 3}, self._see(0)

    def step(self, state, actions, key):
        right = (state["t"] + np.arange(AGENTS)) % ACTIONS
        state = state | {"t": state["t"] + 1}
        rewards = (np.asarray(actions) == right).astype(np.float32)
        shown = np.asarray(actions, np.int32)
        return state, Step(self._see(state["t"]), rewards, np.bool_(state["t"] == state["end"]), shown)

    def _see(self, t):
        number = np.eye(ACTIONS, dtype=np.float32)[(t + np.arange(AGENTS)) % ACTIONS]
        return Observation(vector=np.concatenate([number, np.full((AGENTS, 1), t / LONGEST, np.float32)], 1))


def make(name):
    return Counting()
