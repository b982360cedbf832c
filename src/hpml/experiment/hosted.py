"""The course of environments in worker processes: playing, learning and evaluating, all seeds together."""

import time
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np

from hpml.experiment.course import (
    EVALUATION,
    INITIAL,
    UNLIMITED,
    WORLDS,
    Course,
    Leg,
    count,
    mean_columns,
    merge,
    return_columns,
    seed_keys,
    switch_columns,
)
from hpml.experiment.evaluation import Episodes
from hpml.experiment.meter import Meter
from hpml.experiment.video import tile
from hpml.marl.collect.hosted import Between, begin, finish, learn_all, look_up, parameters, play
from hpml.marl.collect.pool import Pool
from hpml.marl.compiling import cpu_options
from hpml.marl.env import Env
from hpml.marl.learner import Trainer
from hpml.native.play import library

STRETCH = 128  # steps of an evaluation between two looks at what has ended
FILM = -1  # the stream of episodes that are filmed; evaluations have 1 and more, training 0


@lru_cache(maxsize=2)
def _learning(trainer: Trainer) -> Any:
    """Learning, compiled once for all courses of a trainer that have as many seeds."""
    return jax.jit(partial(learn_all, trainer), donate_argnums=0, compiler_options=cpu_options())


class Played(NamedTuple):
    """A rollout's parts, and what there is to say about how it was played."""

    parts: tuple[Any, ...]
    columns: dict[str, float]


class HostedCourse(Course):
    """Seeds on an environment that lives in worker processes; `place` is its family, name and options.

    An update is `begin`, where the workers start to play, `played`, which waits for them, and `learn`. While they play
    the course is where the update before left it, and so is `tree`.
    """

    def __init__(
        self,
        trainer: Trainer,
        env: Env,
        place: tuple[str, str, dict[str, Any]],
        seeds: tuple[int, ...],
        workers: int,
        measure: bool = True,
    ) -> None:
        self.trainer, self.spec, self.place, self.seeds, self.workers = trainer, env.spec, place, seeds, workers or None
        S, E = len(seeds), trainer.settings.environments
        self._learner = jax.jit(jax.vmap(trainer.init))(seed_keys(seeds, INITIAL))
        memory = trainer.memory(E)
        self._between = Between(
            np.ones((S, E), bool),
            None if memory is None else np.zeros((S, *memory.shape), np.float32),
            np.zeros((S, E, self.spec.agents), np.float32),
            0,
        )
        self._meter = Meter(self._learner.actors) if measure else None
        self._pool: Pool | None = None  # a run that goes on has another one
        self._begun: float | None = None
        self._keys = {purpose: seed_keys(seeds, purpose) for purpose in (WORLDS, EVALUATION)}
        self._learn = _learning(trainer)

    def tree(self) -> Any:
        """See `Course.tree`."""
        return self._kept(self.pool.state())

    def _kept(self, pool: Any) -> Any:
        meter = self._meter and self._meter.state
        return {"learner": self._learner, "between": self._between, "meter": meter, "pool": pool}

    def template(self) -> Any:
        """See `Course.template`."""
        slots = len(self.seeds) * self.trainer.settings.environments
        kind = np.min_scalar_type(self.spec.actions - 1)
        pool = {
            "episode": np.zeros(slots, np.int64),
            "length": np.zeros(slots, np.int64),
            "actions": jax.ShapeDtypeStruct((slots, -1, self.spec.agents), kind),
        }
        return self._kept(pool)

    def parameters(self) -> dict[str, int]:
        """See `Course.parameters`."""
        return count(self._learner)

    def restore(self, tree: Any) -> None:
        """See `Course.restore`."""
        self._learner, self._between = tree["learner"], tree["between"]
        if self._meter is not None:
            self._meter.state = tree["meter"]
        self.close()
        state = {name: np.asarray(value) for name, value in tree["pool"].items()}
        self._pool = self._open(self.seeds, self.trainer.settings.environments, self.trainer.settings.rollout, 0, state)

    @property
    def versions(self) -> dict[str, str]:
        """See `Course.versions`."""
        return {"policies": "NumPy" if library() is None else "C"}

    @property
    def pool(self) -> Pool:
        """The environments; they start when they are first asked for."""
        if self._pool is None:
            settings = self.trainer.settings
            self._pool = self._open(self.seeds, settings.environments, settings.rollout, 0)
        return self._pool

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.close()
            self._pool, self._begun = None, None

    def advance(self, updates: int) -> Leg:
        """See `Course.advance`."""
        legs = []
        for _ in range(updates):
            self.begin()
            legs.append(self.learn(self.played()))
        return Leg([leg.rows[0] for leg in legs], np.concatenate([leg.finite for leg in legs]))

    def evaluate(self, update: int, episodes: int) -> list[Episodes]:
        """See `Course.evaluate`."""
        with self._open(self.seeds, episodes, STRETCH, 1 + update) as pool:
            returns, lengths, shown = self._play(pool, self._learner.actors, update)
        return [Episodes(returns[s], lengths[s], shown[:, s]) for s in range(len(self.seeds))]

    def film(self, update: int, add: Callable[[Any], None]) -> None:
        """See `Course.film`."""
        actors = jax.tree.map(lambda x: x[:1], self._learner.actors)
        with self._open(self.seeds[:1], 1, STRETCH, FILM) as pool:
            self._play(pool, actors, update, lambda views: add(tile(views)))

    def _open(self, seeds: tuple[int, ...], environments: int, steps: int, stream: int, state: Any = None) -> Pool:
        family, name, options = self.place
        shapes = {name: (len(seeds), *leaf.shape[1:]) for name, leaf in parameters(self._learner.actors).items()}
        return Pool(
            family,
            name,
            options,
            seeds=seeds,
            environments=environments,
            steps=steps,
            workers=self.workers,
            policy=shapes,
            shared=self.trainer.settings.share,
            memory=self.trainer.settings.memory,
            stream=stream % 2**32,
            episodes=1 if stream else None,  # an evaluation needs no second engine for any of its slots
            state=state,
        )

    def begin(self) -> None:
        """Let the workers play the next update's rollout, if they do not already."""
        if self._begun is None:
            pool, self._begun = self.pool, time.perf_counter()
            begin(pool, self._learner.actors, self._keys[WORLDS], self._between)

    def played(self) -> Played:
        """What the workers have played, when they have."""
        assert self._begun is not None
        pool, replaced = self.pool, self.pool.replaced
        self._between, rollout = finish(pool, self._between)
        seconds, self._begun = time.perf_counter() - self._begun, None
        return Played(rollout, {"seconds/collect": seconds, "workers_replaced": float(pool.replaced - replaced)})

    def learn(self, rollout: Played) -> Leg:
        """Learn from what was played."""
        start = time.perf_counter()
        seen, book = look_up(rollout.parts[0], self.spec.patch)
        parts = (seen, *rollout.parts[1:])
        self._learner, report, played = self._learn(self._learner, parts, self._between.running, book)
        logs, finite, played = jax.device_get((report.logs, report.finite, played))
        self._between = self._between._replace(running=np.asarray(played.running))
        self.pool.carry()
        seconds = rollout.columns | {"seconds/learn": time.perf_counter() - start}
        own = {name: np.full(len(self.seeds), value) for name, value in seconds.items()}
        add = lambda tree: jax.tree.map(lambda x: np.asarray(x)[None], tree)  # noqa: E731
        columns = [
            return_columns(*add((played.returns, played.episodes))),
            mean_columns(add(logs)),
            mean_columns(add(own)),
        ]
        if self.spec.conventions:
            columns.append(switch_columns(add(played.switches)))
        if self._meter is not None:
            columns.append(self._meter.observe(report.field))
        return Leg(merge(*columns), finite[None])

    def _play(
        self, pool: Pool, actors: Any, update: int, watch: Callable[[Any], None] | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """An evaluation episode in every slot; the draws depend on seed and update."""
        seeds = len(pool.seeds)
        keys = jax.vmap(jax.random.fold_in, (0, None))(self._keys[EVALUATION][:seeds], update)
        return play(pool, actors, keys, self.spec.horizon or UNLIMITED, watch)
