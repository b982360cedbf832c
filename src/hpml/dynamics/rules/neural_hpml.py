"""Neural HPML: a potential network trained while it is followed (`alg:neural-hpml`).

Each step appends the iterate to a buffer, takes K optimiser steps on a batch of B buffer rows, and follows the
network's gradient. The field at a row is kept from when the row was made.

Iterates alone say nothing about circulation: with `samples=0`, the paper's buffer, the field -z + 2 J z is followed out
to the rim of its disc. So the buffer also holds points of a fixed measure. The iterates in it still make a measure that
trails: on rock-paper-scissors the run keeps its orbit unless `memory=0`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from hpml.dynamics.residual import check_residual, treat
from hpml.dynamics.rule import Rate, Rule, Step
from hpml.dynamics.rules.hpml import draw, fixed_measure
from hpml.geometry.samples import Measure
from hpml.projection.projectors.neural import NeuralProjector, NeuralState


class Buffer(eqx.Module):
    """Rows of each start: first those of the measure, which stay, then a ring of iterates."""

    points: Any
    field: Any
    count: int


class Learning(eqx.Module):
    """The buffer, a network for each start, and the last residual where the treatment needs it."""

    buffer: Buffer
    networks: NeuralState
    residual: Any


class NeuralHPML(Rule):
    """Follow a potential network that learns on the way; one evaluation a step, and `samples` before the first.

    - `projector`: the network, its optimiser and `inner_steps`, the paper's K.
    - `batch`: the paper's B, the rows of an inner step; `memory`: how many iterates the buffer keeps.
    - `samples`, `measure`: points of a fixed measure in the buffer, as in `HPML`; `warm`: updates on them before the
      first step.
    - `residual`: as in `HPML`; "extragradient" costs one evaluation a step more.
    """

    projector: NeuralProjector = NeuralProjector(schedule="online")
    step: Rate = 0.1
    batch: int = 128
    memory: int = 32
    samples: int = 256
    measure: Measure = None
    warm: int = 300
    residual: str = "drop"

    def __check_init__(self):
        check_residual(self.residual)
        if self.residual == "adjust":
            raise ValueError('residual="adjust" needs no network: use HPML(residual="adjust").')
        if self.batch < 1 or min(self.samples, self.memory, self.warm) < 0 or self.samples + self.memory == 0:
            raise ValueError(
                "batch must be at least 1, samples, memory and warm must not be negative, and the buffer not empty."
            )

    def init(self, oracle, points):
        """See `Rule.init`."""
        s, d = points.shape
        network = self.projector.init(d, oracle.key())
        networks = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (s, *jnp.shape(leaf))), network)
        rows = np.zeros((2, self.samples + self.memory, d))
        if self.samples:
            X = draw(fixed_measure(oracle, self.measure), oracle.key(), self.samples)
            rows[:, : self.samples] = X, oracle.sample(X)
        X, F = (np.broadcast_to(part, (s, *part.shape)).copy() for part in rows)
        state = Learning(Buffer(X, F, 0), networks, None)
        for _ in range(self.warm if self.samples else 0):
            state = self._learn(oracle, state)
        return state

    def update(self, oracle, move, points, state):
        """See `Rule.update`."""
        F = oracle(points)
        state = self._learn(oracle, _append(state, points, F, self.samples) if self.memory else state)

        def projected(at):
            return np.asarray(_gradients(self.projector, state.networks, at), np.float64)

        g, R = treat(self.residual, oracle, move, points, self.step, projected, state.residual, field=F)
        return Step(move(points, self.step * g), g, Learning(state.buffer, state.networks, R))

    def _learn(self, oracle, state: Learning) -> Learning:
        """K steps on B rows: the same rows for every start, so that a start does not depend on the others."""
        held = self.samples + min(state.buffer.count, self.memory)
        seed = np.asarray(jax.random.key_data(oracle.key())).ravel()
        rows = np.random.default_rng(seed).integers(held, size=self.batch)
        X, F = state.buffer.points[:, rows], state.buffer.field[:, rows]
        return Learning(state.buffer, _train(self.projector, state.networks, X, F), state.residual)


def _append(state: Learning, points: np.ndarray, field: np.ndarray, after: int) -> Learning:
    """The iterate and its field in the ring's next row."""
    X, F, count = state.buffer.points.copy(), state.buffer.field.copy(), state.buffer.count
    row = after + count % (X.shape[1] - after)
    X[:, row], F[:, row] = points, field
    return Learning(Buffer(X, F, count + 1), state.networks, state.residual)


@eqx.filter_jit
def _train(projector, networks, points, field):
    return jax.vmap(projector.update)(networks, points, field)


@eqx.filter_jit
def _gradients(projector, networks, points):
    return jax.vmap(lambda network, x: projector.direction(network, x[None])[0])(networks, points)
