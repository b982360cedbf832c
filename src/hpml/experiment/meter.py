"""The instrument at work: all seeds, several updates at once, and its columns."""

import time
from typing import Any

import jax
import numpy as np

from hpml.experiment.course import Row, mean_columns, merge
from hpml.marl.learner import FieldSample
from hpml.marl.measure import Instrument, Seen


class Meter:
    """Measures every update of every seed; nothing of it reaches the learner.

    `state` has the seeds first.
    """

    def __init__(self, actors: Any) -> None:
        instrument = Instrument()
        self.state: Seen = jax.jit(jax.vmap(instrument.init))(actors)
        self._flatten = jax.jit(jax.vmap(jax.vmap(instrument.flatten)))
        self._observe = jax.jit(
            jax.vmap(lambda state, samples: jax.lax.scan(instrument.observe, state, samples)), donate_argnums=0
        )

    def observe(self, samples: FieldSample) -> list[list[Row]]:
        """Take in fields (seeds, updates, ...); the rows of the updates."""
        start = time.perf_counter()
        self.state, logs = self._observe(self.state, self._flatten(samples))
        found = {name: np.swapaxes(value, 0, 1) for name, value in jax.device_get(logs).items()}
        shape = next(iter(found.values())).shape
        seconds = np.full(shape, (time.perf_counter() - start) / shape[0])
        return merge(mean_columns(found), mean_columns({"seconds/measure": seconds}))
