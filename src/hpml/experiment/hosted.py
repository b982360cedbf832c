"""The course of environments in worker processes: one group of them steps while the policies think about the other."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
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
from hpml.marl.advantage import discounted
from hpml.marl.collect.pool import Pool
from hpml.marl.conventions import count_switches
from hpml.marl.env import Env, Observation
from hpml.marl.learner import Learner, Report, Trainer
from hpml.marl.policy import Played
from hpml.marl.rollout import Rollout
from hpml.marl.sprites import index

OVERLAP = 8  # environments from which stepping one half pays while the policies think about the other
FILM = -1  # the stream of episodes that are filmed; evaluations have 1 and more, training 0


class Between(NamedTuple):
    """What the environments' policies carry from one rollout to the next, seeds first.

    - `starts` (S, E): where the observation is the first of its episode. `memory`: what the actors know, or None.
    - `running` (S, E, agents): returns of the episodes so far. `steps`: steps so far; every draw comes from it.
    """

    starts: np.ndarray
    memory: Any
    running: np.ndarray
    steps: int


class HostedCourse(Course):
    """Seeds on an environment that lives in worker processes; `place` is its family, name and options."""

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
        self._keys = {purpose: seed_keys(seeds, purpose) for purpose in (WORLDS, EVALUATION)}
        self._act = jax.jit(partial(_act, trainer, jax.tree.structure(self._learner.actors)))
        self._learn = jax.jit(partial(_learn, trainer), donate_argnums=0)

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

    def about(self) -> dict[str, Any]:
        """See `Course.about`."""
        return {}

    def restore(self, tree: Any, about: Mapping[str, Any]) -> None:
        """See `Course.restore`."""
        self._learner, self._between = tree["learner"], tree["between"]
        if self._meter is not None:
            self._meter.state = tree["meter"]
        self.close()
        state = {name: np.asarray(value) for name, value in tree["pool"].items()}
        self._pool = self._open(self.seeds, self.trainer.settings.environments, self.trainer.settings.rollout, 0, state)

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
            self._pool = None

    def advance(self, updates: int) -> Leg:
        """See `Course.advance`."""
        legs = [self._update() for _ in range(updates)]
        return Leg([leg.rows[0] for leg in legs], np.concatenate([leg.finite for leg in legs]))

    def evaluate(self, update: int, episodes: int) -> list[Episodes]:
        """See `Course.evaluate`."""
        with self._open(self.seeds, episodes, 1, 1 + update) as pool:
            returns, lengths, shown = self._play(pool, self._learner.actors, self._keys[EVALUATION], update, episodes)
        return [Episodes(returns[s], lengths[s], shown[:, s]) for s in range(len(self.seeds))]

    def film(self, update: int, add: Callable[[Any], None]) -> None:
        """See `Course.film`."""
        actors = jax.tree.map(lambda x: x[:1], self._learner.actors)
        with self._open(self.seeds[:1], 1, 1, FILM) as pool:
            self._play(pool, actors, self._keys[EVALUATION][:1], update, 1, add)

    def _open(self, seeds: tuple[int, ...], environments: int, steps: int, stream: int, state: Any = None) -> Pool:
        family, name, options = self.place
        return Pool(
            family,
            name,
            options,
            seeds=seeds,
            environments=environments,
            steps=steps,
            workers=self.workers,
            # Two calls of a policy cost more than one: few environments are better thought about together.
            groups=2 if not stream and len(seeds) * environments >= OVERLAP else 1,
            stream=stream % 2**32,
            episodes=1 if stream else None,  # an evaluation needs no second engine for any of its slots
            state=state,
        )

    def _update(self) -> Leg:
        pool, start = self.pool, time.perf_counter()
        replaced = pool.replaced
        rollout = self._collect(pool)
        collected = time.perf_counter()
        seen, book = _look_up(rollout[0], self.spec.patch)
        self._learner, report, small = self._learn(self._learner, (seen, *rollout[1:]), self._between.running, book)
        logs, finite, running, returns, episodes, switches = jax.device_get((report.logs, report.finite, *small))
        self._between = self._between._replace(running=np.asarray(running))
        pool.carry()
        seconds = {"seconds/collect": collected - start, "seconds/learn": time.perf_counter() - collected}
        own = {name: np.full(len(self.seeds), value) for name, value in seconds.items()}
        own |= {"workers_replaced": np.full(len(self.seeds), float(pool.replaced - replaced))}
        add = lambda tree: jax.tree.map(lambda x: np.asarray(x)[None], tree)  # noqa: E731
        parts = [return_columns(*add((returns, episodes))), mean_columns(add(logs)), mean_columns(add(own))]
        if self.spec.conventions:
            parts.append(switch_columns(add(switches)))
        if self._meter is not None:
            parts.append(self._meter.observe(jax.tree.map(lambda x: x[:, None], report.field)))
        return Leg(merge(*parts), finite[None])

    def _collect(self, pool: Pool) -> tuple[Any, ...]:
        """The parts of a `Rollout` of all seeds: arrays (times, seeds, environments, ...)."""
        T, S, E = pool.steps, len(self.seeds), pool.environments
        actors, between = jax.tree.leaves(self._learner.actors), self._between
        keys = jax.random.key_data(self._keys[WORLDS])
        starts = np.empty((T + 1, S, E), bool)
        starts[0] = between.starts
        log_probs = np.empty((T, S, E, self.spec.agents), np.float32)
        memory = None if between.memory is None else np.empty((T + 1, *between.memory.shape), np.float32)
        if memory is not None:
            memory[0] = between.memory
        groups = range(len(pool.groups))

        def arrive(group: int, t: int) -> None:
            """What a group's step t led to; where an episode ended nothing is known any more."""
            pool.wait(group)
            chosen = slice(group, None, len(groups))
            starts[t + 1, :, chosen] = pool.arrays["done"][t].reshape(S, E)[:, chosen]
            if memory is not None:
                memory[t + 1, :, chosen][starts[t + 1, :, chosen]] = 0.0

        for t in range(T):
            for group in groups:
                if t:
                    arrive(group, t - 1)
                chosen = slice(group, None, len(groups))
                known = None if memory is None else memory[t, :, chosen]
                seen = _by_seed(pool.observation(t, group), S)
                numbers = np.arange(E, dtype=np.uint32)[chosen]
                played = self._act(actors, seen, known, starts[t, :, chosen], keys, between.steps + t, numbers)
                pool.send(group, t, np.asarray(played.actions))
                log_probs[t, :, chosen] = played.log_probs
                if memory is not None:
                    memory[t + 1, :, chosen] = played.memory
        for group in groups:
            arrive(group, T - 1)
        self._between = Between(starts[T], None if memory is None else memory[T], between.running, between.steps + T)
        part = lambda name: pool.arrays[name].reshape(len(pool.arrays[name]), S, E, *pool.arrays[name].shape[2:])  # noqa: E731
        seen = Observation(**{name: part(name) for name in Observation._fields if name in pool.arrays})
        return (seen, starts, memory, part("actions"), log_probs, part("rewards"), part("convention"))

    def _play(
        self,
        pool: Pool,
        actors: Any,
        keys: jax.Array,
        update: int,
        episodes: int,
        add: Callable[[Any], None] | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """An episode in every slot: returns (S, episodes, agents), lengths, conventions (T, S, episodes, agents)."""
        S, agents = len(pool.seeds), self.spec.agents
        actors = jax.tree.leaves(actors)
        keys = jax.random.key_data(jax.vmap(jax.random.fold_in, (0, None))(keys, update))
        over, returns = np.zeros((S, episodes), bool), np.zeros((S, episodes, agents), np.float32)
        lengths, shown = np.zeros((S, episodes), np.int64), []
        empty = self.trainer.memory(episodes)
        memory = None if empty is None else np.zeros((S, *empty.shape), np.float32)
        numbers = np.arange(episodes, dtype=np.uint32)
        for t in range(self.spec.horizon or UNLIMITED):
            if add is not None:
                add(tile(pool.observation(0).image[0]))
            starts = np.full((S, episodes), t == 0)
            played = self._act(actors, _by_seed(pool.observation(0), S), memory, starts, keys, t, numbers)
            actions, _, memory = jax.device_get(played)
            flat = actions.reshape(S * episodes, agents)
            for group, slots in enumerate(pool.groups):
                pool.send(group, 0, flat[slots])
            for group in range(len(pool.groups)):
                pool.wait(group)
            rewards, done, convention = (pool.arrays[name][0] for name in ("rewards", "done", "convention"))
            returns += np.where(over[..., None], 0.0, rewards.reshape(S, episodes, agents))
            shown.append(np.where(over[..., None], -1, convention.reshape(S, episodes, agents)))
            lengths += ~over
            over |= done.reshape(S, episodes)
            if over.all():
                break
            pool.carry()
        return returns, lengths, np.stack(shown)


def _look_up(seen: Observation, side: int) -> tuple[Observation, Any]:
    """Pictures as places in a book of squares, and the book, where that saves arithmetic: a GPU has enough of it."""
    if seen.image is None or jax.default_backend() != "cpu":
        return seen, None
    found = index(seen.image, side)
    return (seen, None) if found is None else (seen._replace(image=found[0]), found[1])


def _by_seed(observation: Observation, seeds: int) -> Observation:
    """Arrays (seeds, environments, ...), in one piece: JAX takes others in number by number."""
    return jax.tree.map(lambda x: np.ascontiguousarray(x.reshape(seeds, len(x) // seeds, *x.shape[1:])), observation)


def _act(
    trainer: Trainer,
    structure: Any,
    actors: list[Any],
    seen: Observation,
    memory: Any,
    starts: Any,
    keys: Any,
    step: Any,
    numbers: Any,
) -> Played:
    """Every seed's actions in its environments `numbers` at one step; a draw depends on seed, step and environment.

    `actors` are the leaves of a tree of this `structure`, and `keys` the bits of keys: with the tree and the keys
    themselves each call starts some 300 microseconds later.
    """

    def one(actors: Any, seen: Observation, memory: Any, starts: Any, key: Any) -> Played:
        now = jax.random.fold_in(jax.random.wrap_key_data(key), step)
        return trainer.act(actors, seen, memory, starts, jax.vmap(partial(jax.random.fold_in, now))(numbers))

    return jax.vmap(one)(jax.tree.unflatten(structure, actors), seen, memory, starts, keys)


def _learn(
    trainer: Trainer, learner: Learner, played: tuple[Any, ...], running: Any, book: Any
) -> tuple[Learner, Report, tuple[Any, ...]]:
    """An update of every seed, and what was played: returns that go on, those of ended episodes, switches."""

    def one(learner: Learner, played: tuple[Any, ...], running: Any) -> tuple[Learner, Report, tuple[Any, ...]]:
        rollout = Rollout(*played)
        learner, report = trainer.update(learner, rollout, book)
        ends = rollout.starts[1:]
        running, totals = discounted(rollout.rewards, ends, running, 1.0)
        episodes = ends.sum()
        returns = jnp.where(ends[..., None], totals, 0.0).sum((0, 1)) / episodes  # NaN where no episode ended
        return learner, report, (running, returns, episodes, count_switches(rollout.convention, ends))

    return jax.vmap(one, in_axes=(0, 1, 0))(learner, played, running)
