"""The course of environments in JAX: playing, learning and evaluating, each under one jit for all seeds."""

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpml.experiment.config import LEG
from hpml.experiment.course import (
    EVALUATION,
    INITIAL,
    UNLIMITED,
    WORLDS,
    Course,
    Leg,
    Row,
    count,
    mean_columns,
    merge,
    return_columns,
    seed_keys,
    switch_columns,
)
from hpml.experiment.evaluation import Episodes
from hpml.experiment.meter import Meter
from hpml.marl.collect.compiled import begin, train_chunk
from hpml.marl.env import Env
from hpml.marl.envs.matrix import MatrixGame
from hpml.marl.exact import expected_returns, exploitability, policy_tables
from hpml.marl.learner import Trainer


class CompiledCourse(Course):
    """Seeds on a compiled environment."""

    def __init__(self, trainer: Trainer, env: Env, seeds: tuple[int, ...], measure: bool = True) -> None:
        self.trainer, self.env, self.spec, self.seeds = trainer, env, env.spec, seeds
        self._learner = jax.jit(jax.vmap(trainer.init))(seed_keys(seeds, INITIAL))
        self._worlds = jax.jit(jax.vmap(partial(begin, trainer, env)))(seed_keys(seeds, WORLDS))
        self._meter = Meter(self._learner.actors) if measure else None
        self._evaluate = jax.jit(jax.vmap(partial(_play, trainer, env), in_axes=(0, 0, None)), static_argnums=2)

    @property
    def longest(self) -> int:
        """See `Course.longest`."""
        return LEG

    def tree(self) -> Any:
        """See `Course.tree`."""
        return {"learner": self._learner, "worlds": self._worlds, "meter": self._meter and self._meter.state}

    def parameters(self) -> dict[str, int]:
        """See `Course.parameters`."""
        return count(self._learner)

    def restore(self, tree: Any) -> None:
        """See `Course.restore`."""
        self._learner, self._worlds = tree["learner"], tree["worlds"]
        if self._meter is not None:
            self._meter.state = tree["meter"]

    def advance(self, updates: int) -> Leg:
        """See `Course.advance`."""
        start = time.perf_counter()
        self._learner, self._worlds, progress = train_chunk(
            self.trainer, self.env, self._learner, self._worlds, updates
        )
        report, played = progress.report, progress.played
        small = (report.logs, report.finite, played.returns, played.episodes, played.switches)
        # From (seeds, updates) to (updates, seeds).
        logs, finite, returns, episodes, switches = jax.tree.map(lambda x: np.swapaxes(x, 0, 1), jax.device_get(small))
        seconds = {"seconds/train": np.full(finite.shape, (time.perf_counter() - start) / updates)}
        parts = [return_columns(returns, episodes), switch_columns(switches), mean_columns(logs), mean_columns(seconds)]
        if self._meter is not None:
            parts.append(self._meter.observe(report.field))
        return Leg(merge(*parts), finite)

    def evaluate(self, update: int, episodes: int) -> list[Episodes]:
        """See `Course.evaluate`."""
        keys = jax.vmap(jax.random.fold_in, (0, None))(seed_keys(self.seeds, EVALUATION), update)
        found = jax.device_get(self._evaluate(self._learner.actors, keys, episodes))
        return [Episodes(*(np.asarray(part[s]) for part in found)) for s in range(len(self.seeds))]

    def exact(self) -> list[Row] | None:
        """Exploitability, and the expected return of an agent: a matrix game's policies are small tables."""
        env = self.env
        if not isinstance(env, MatrixGame) or self.trainer.settings.memory:
            return None
        found: list[Row] = []
        for s in range(len(self.seeds)):
            tables = policy_tables(self.trainer, jax.tree.map(lambda x, s=s: x[s], self._learner.actors), env)
            gain = float(expected_returns(env, tables).mean())
            found.append({"exploitability": exploitability(env, tables), "expected_return": gain})
        return found


def _play(trainer: Trainer, env: Env, actors: Any, key: jax.Array, episodes: int) -> tuple[Any, Any, Any]:
    """Episodes side by side, each to its own end: returns, lengths and conventions."""
    spec = trainer.spec
    first, key = jax.random.split(key)
    state, observation = jax.vmap(env.reset)(jax.random.split(first, episodes))

    def step(now: tuple[Any, ...], number: Any) -> tuple[tuple[Any, ...], Any]:
        state, observation, memory, over, returns, lengths = now
        keys = jax.random.split(jax.random.fold_in(key, number), (2, episodes))
        starts = jnp.full(episodes, number == 0)
        played = trainer.act(actors, observation, memory, starts, keys[0])
        state, seen = jax.vmap(env.step)(state, played.actions, keys[1])
        returns = returns + jnp.where(over[:, None], 0.0, seen.rewards)
        lengths = lengths + ~over
        shown = jnp.where(over[:, None], -1, seen.convention)
        return (state, seen.observation, played.memory, over | seen.done, returns, lengths), shown

    zero = jnp.zeros((episodes, spec.agents), jnp.float32)
    start = (state, observation, trainer.memory(episodes), jnp.zeros(episodes, bool), zero, jnp.zeros(episodes, int))
    last, shown = jax.lax.scan(step, start, jnp.arange(spec.horizon or UNLIMITED))
    return last[4], last[5], shown
