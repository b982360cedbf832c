"""Hodge-projected ascent: sample the field, project it onto gradients, follow the gradient (`alg:hpml`).

The measure is fixed unless `reach` is given. A measure that trails the iterate can destabilise: the projection around
the iterate is the field itself to first order, so there is little left to drop.
"""

from typing import Any

import equinox as eqx
import numpy as np

from hpml.dynamics.oracle import Oracle
from hpml.dynamics.residual import Projected, check_residual, treat
from hpml.dynamics.rule import Batch, Rate, Rule, Step
from hpml.geometry.domain import Ball, Domain, Space
from hpml.geometry.metric import Metric
from hpml.geometry.samples import Measure
from hpml.projection.project import project
from hpml.projection.projector import Projector
from hpml.projection.projectors.kernel import KernelProjector


class Memory(eqx.Module):
    """The projection in use, the steps made with it, and the last residual where the treatment needs it."""

    projected: Projected | None
    age: int
    residual: Any


class HPML(Rule):
    """Follow the projected field, with the residual dropped or treated.

    - `projector`: any projector of `hpml.project`.
    - `samples`: how many points the field is sampled at for a projection, each counted as an evaluation.
    - `measure`: where they are drawn: the game's domain with its uniform law, another domain, or a sampler
      `(key, count) -> points`.
    - `refresh`: 0 projects once, a number projects anew from new samples every so many steps.
    - `reach`: None for the fixed measure; a radius draws samples around the iterate at each refresh. Every start has
      samples and a projection of its own then.
    - `residual`: "drop" (the paper; no evaluations beyond the samples), "extragradient" (two a step), "optimistic"
      (one a step) or "adjust", F + `adjustment` A F (five a step and no samples).
    - `direction`, `spent`: the projection itself, where it is known, as a function of points (s, d), and how many
      evaluations it was made from; nothing is sampled then.
    - `metric`: M of the projection, Euclidean unless given.
    """

    projector: Projector = KernelProjector()
    step: Rate = 0.1
    samples: int = 256
    measure: Measure = None
    refresh: int = 0
    reach: float | None = None
    residual: str = "drop"
    adjustment: float = 1.0
    direction: Projected | None = None
    spent: int = 0
    metric: Metric | None = None

    def __check_init__(self):
        check_residual(self.residual)
        if self.samples < 2 or self.refresh < 0 or self.spent < 0:
            raise ValueError("samples must be at least 2, and refresh and spent must not be negative.")
        if self.reach is not None and not self.reach > 0:
            raise ValueError(f"reach must be a positive radius or None, got {self.reach}.")
        if self.reach is not None and self.measure is not None:
            raise ValueError("Give either a fixed measure or a reach around the iterate, not both.")
        if self.metric is not None and self.residual == "adjust":
            raise ValueError('residual="adjust" works in the Euclidean metric: leave metric out.')

    def init(self, oracle, points):
        """See `Rule.init`."""
        return Memory(self._project(oracle, points), 0, None)

    def update(self, oracle, move, points, state):
        """See `Rule.update`."""
        if self.refresh and state.age == self.refresh:
            # The old residual belongs to the old projection: the first step after is a plain one.
            state = Memory(self._project(oracle, points), 0, None)
        g, R = treat(self.residual, oracle, move, points, self.step, state.projected, state.residual, self.adjustment)
        return Step(move(points, self.step * g), g, Memory(state.projected, state.age + 1, R))

    def _project(self, oracle: Oracle, points: Batch) -> Projected | None:
        if self.residual == "adjust":
            return None
        if self.direction is not None:
            oracle.evaluations += self.spent
            return self.direction
        if self.reach is not None:
            return self._project_each(oracle, points, self.reach)
        measure = fixed_measure(oracle, self.measure)
        X = draw(measure, oracle.key(), self.samples)
        # Samples drawn from the measure stand for it on a graph and in a network; the kernel can use more points.
        told = measure if isinstance(self.projector, KernelProjector) else None
        return project(X, oracle.sample(X), self.projector, self.metric, told, key=oracle.key()).at

    def _project_each(self, oracle: Oracle, points: Batch, reach: float) -> Projected:
        d = points.shape[1]
        steps = draw(Ball(np.zeros(d), reach), oracle.key(), self.samples)
        clouds = np.asarray(points)[:, None] + steps
        clouds = np.asarray(oracle.game.domain.retract(clouds.reshape(-1, d)), np.float64).reshape(clouds.shape)
        key = oracle.key()
        fields = oracle.around(clouds)
        found = [project(x, f, self.projector, self.metric, key=key) for x, f in zip(clouds, fields, strict=True)]
        return lambda at: np.concatenate([p.at(x[None]) for p, x in zip(found, np.asarray(at), strict=True)])


def fixed_measure(oracle: Oracle, measure: Measure) -> Measure:
    """The measure, or the game's domain with its uniform law where none is given."""
    measure = oracle.game.domain if measure is None else measure
    if isinstance(measure, Space):
        raise ValueError("R^d has no uniform law to sample the field from: give measure=hpml.Ball(...) or reach=.")
    return measure


def draw(measure: Measure, key: Any, count: int) -> np.ndarray:
    """Points of a measure, in float64."""
    sampler: Any = measure.sample if isinstance(measure, Domain) else measure
    return np.asarray(sampler(key, count), np.float64)
