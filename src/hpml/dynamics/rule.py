"""The contract of every update rule: hyperparameters and one step, for all starts at once (`alg:hpml`)."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from hpml.dynamics.oracle import Oracle
from hpml.geometry.arrays import Array

Batch = Float[Array, "s d"]
Move = Callable[[Batch, Batch], Batch]  # from points along a displacement, back into the domain
Rate = float | Float[Array, "s 1"]  # one learning rate, or one a start


class Step(eqx.Module):
    """Where the starts are next, the direction that took them there, and what the rule remembers."""

    points: Batch
    direction: Batch
    state: Any = None


class Rule(eqx.Module):
    """How the next point follows from the field; `step` is the learning rate."""

    step: eqx.AbstractVar[Rate]

    def __check_init__(self):
        if not (np.isfinite(self.step).all() and np.all(np.asarray(self.step) > 0)):
            raise ValueError(f"step must be positive and finite, got {self.step}.")

    def init(self, oracle: Oracle, points: Batch) -> Any:
        """What the rule remembers before its first step; it may evaluate the field."""
        return None

    @abstractmethod
    def update(self, oracle: Oracle, move: Move, points: Batch, state: Any) -> Step:
        """One step."""
