"""Environments in worker processes: S seeds times E environments, stepped side by side into shared arrays.

Slot `seed * E + environment` plays its own row of episodes, whose seeds depend on (seed, environment, episode) alone:
how many workers there are, and what else is played, changes nothing. Environments are dealt to two groups by their
number, even and odd, so that one group steps while the policy thinks about the other:

    pool.send(group, t, actions)     # begin step t of a group
    pool.wait(group)                 # ... and have its rewards[t], done[t] and what is seen at t + 1

Where an episode ends, what is seen next is the first observation of the next episode. Nothing of an environment's
inside is ever saved: a slot is its episode's number and the actions so far, and is rebuilt by playing them again.
"""

import importlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np

from hpml.marl.collect import wire
from hpml.marl.collect.process import Worker
from hpml.marl.collect.shared import allocate, attach, layout
from hpml.marl.env import Env, Observation, Spec

STUBBORN = 3  # ends of a worker in a row, without a step between them, after which another try makes no sense


class Pool:
    """Worker processes and the arrays that they write.

    - `arrays`: image, vector, mask, actions, rewards, done, convention by name, time first, then slots; what is seen
      has `steps + 1` times.
    - `groups`: the slots of each group; with one environment a seed there is one group.
    - `replaced`: how many workers have ended unasked and been replaced.
    """

    spec: Spec
    arrays: dict[str, np.ndarray]
    groups: tuple[np.ndarray, ...]
    replaced: int

    def __init__(
        self,
        family: str,
        name: str,
        options: Mapping[str, Any] | None = None,
        *,
        seeds: Sequence[int],
        environments: int,
        steps: int,
        workers: int | None = None,
        groups: int = 2,
        stream: int = 0,
        episodes: int | None = None,
        state: Mapping[str, Any] | None = None,
    ):
        """Start the workers and show the first observations at time 0.

        - `family`: a file in `envs/`, or a module of your own with `make(name, **options)`.
        - `steps`: how many steps the arrays hold.
        - `workers`: how many processes; one a core if None.
        - `groups`: 2, or 1 where all environments should step together.
        - `stream`: another number gives other episodes to the same seeds, as evaluation needs them.
        - `episodes`: how many a slot plays; then it rests, with rewards of 0 and `done`. Without an end if None.
        - `state`: what `state()` returned; the slots go on from there.
        """
        self.replaced = 0
        self._family = family if "." in family else f"hpml.marl.envs.{family}"
        self._name, self._options, self._stream, self._episodes = name, dict(options or {}), stream, episodes
        env: Env = importlib.import_module(self._family).make(name, **self._options)
        if env.compiled:
            raise ValueError(f"{env.spec.name} runs in JAX itself: it needs no workers.")
        if not len(seeds) or environments < 1 or steps < 1 or (workers is not None and workers < 1):
            raise ValueError("a pool needs at least one seed, one environment, one step and one worker.")
        self.spec, self.seeds, self.environments, self.steps = env.spec, tuple(seeds), environments, steps
        slots = len(seeds) * environments
        number = np.arange(slots) % environments
        self.groups = tuple(np.flatnonzero(number % groups == g) for g in range(min(groups, environments)))
        self._restore(state, slots)
        self._fields = layout(env.spec, steps, slots)
        self._memory = allocate(self._fields)
        self.arrays = attach(self._memory, self._fields)
        self.arrays["convention"][:] = -1
        count = min(slots, workers or _cores())
        dealt = np.concatenate(self.groups)
        self._workers = [Worker(sorted(dealt[i::count].tolist())) for i in range(count)]
        self._crews = [
            [each for each in self._workers if set(each.slots) & set(slots.tolist())] for slots in self.groups
        ]
        for worker in self._workers:
            worker.launch(self._memory)
        for worker in self._workers:  # all of them build at once
            self._order(worker)
        for worker in self._workers:
            self._await_ready(worker)

    @property
    def slots(self) -> int:
        """How many environments there are in all."""
        return len(self._episode)

    @property
    def workers_import_jax(self) -> bool:
        """Whether any worker has JAX in memory; it should not."""
        return any(worker.imports_jax for worker in self._workers)

    def processes(self) -> tuple[int, ...]:
        """The workers' process numbers."""
        return tuple(worker.process.pid for worker in self._workers if worker.process is not None)

    def observation(self, t: int, group: int | None = None) -> Observation:
        """What the slots of a group, or all of them, see at time t: (slots, agents, ...)."""
        chosen = slice(None) if group is None else self._slice(group)
        part = lambda name: self.arrays[name][t, chosen] if name in self.arrays else None  # noqa: E731
        return Observation(vector=part("vector"), image=part("image"), mask=part("mask"))

    def send(self, group: int, t: int, actions: Any) -> None:
        """Begin step t of a group with these actions, (slots of the group, agents)."""
        acts, spec = np.asarray(actions), self.spec
        expected = (len(self.groups[group]), spec.agents)
        if acts.size != expected[0] * expected[1] or acts.shape[-1] != spec.agents:
            raise ValueError(
                f"{spec.name} has {spec.agents} agents, and this group {expected[0]} environments: "
                f"the actions must have the shape {expected}, got {acts.shape}."
            )
        if acts.dtype.kind not in "iu" or acts.min() < 0 or acts.max() >= spec.actions:
            raise ValueError(f"actions of {spec.name} are the integers 0 to {spec.actions - 1}.")
        if not 0 <= t < self.steps:
            raise ValueError(f"the arrays hold the steps 0 to {self.steps - 1}, there is no step {t}.")
        if any(entry[0] == group for worker in self._crews[group] for entry in worker.pending):
            raise ValueError("this group is still stepping: wait for it first.")
        self.arrays["actions"][t, self._slice(group)] = acts.reshape(expected)
        for worker in self._crews[group]:
            worker.pending.append([group, t, False])
            worker.tell(group, t)

    def wait(self, group: int) -> None:
        """Until the step that was sent to this group is done."""
        t = None
        for worker in self._crews[group]:
            entry = next((each for each in worker.pending if each[0] == group), None)
            if entry is not None:
                t = entry[1]
                while not entry[2]:
                    self._hear(worker)
        if t is None:
            raise ValueError("nothing was sent to this group.")
        for worker in self._crews[group]:
            worker.pending = [each for each in worker.pending if each[0] != group]
        self._record(t, self.groups[group])

    def carry(self) -> None:
        """What was seen last becomes what is seen first: before the next rollout."""
        for name in ("image", "vector", "mask"):
            if name in self.arrays:
                self.arrays[name][0] = self.arrays[name][-1]

    def state(self) -> dict[str, np.ndarray]:
        """All that is needed to go on: each slot's episode, how many steps of it are played, and their actions."""
        if any(worker.pending for worker in self._workers):
            raise ValueError("a group is still stepping: wait for it before its state is taken.")
        longest = int(self._length.max(initial=0))
        return {
            "episode": self._episode.copy(),
            "length": self._length.copy(),
            "actions": self._played[:, :longest].copy(),
        }

    def close(self) -> None:
        """End the workers. The arrays stay readable."""
        for worker in self._workers:
            worker.dismiss()
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: type | None, problem: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _slice(self, group: int) -> Any:
        # A slice makes views where an index array would copy.
        count = len(self.groups)
        return slice(group, None, count) if self.environments % count == 0 else self.groups[group]

    def _restore(self, state: Mapping[str, Any] | None, slots: int) -> None:
        agents, dtype = self.spec.agents, np.min_scalar_type(self.spec.actions - 1)
        if state is None:
            state = {
                "episode": np.zeros(slots, np.int64),
                "length": np.zeros(slots, np.int64),
                "actions": np.zeros((slots, 0, agents)),
            }
        self._episode, self._length = (np.array(state[key], np.int64) for key in ("episode", "length"))
        self._played = np.array(state["actions"], dtype)
        if self._episode.shape != (slots,) or self._played.shape[::2] != (slots, agents):
            raise ValueError(
                f"the saved state is of {len(self._episode)} environments, and there are {slots}: "
                "go on with the seeds and environments of that run."
            )

    def _record(self, t: int, slots: np.ndarray) -> None:
        if self._episodes is not None:
            slots = slots[self._episode[slots] < self._episodes]
        longest = int(self._length[slots].max(initial=0)) + 1
        if longest > self._played.shape[1]:
            more = np.zeros((self.slots, max(256, self._played.shape[1]), self.spec.agents), self._played.dtype)
            self._played = np.concatenate([self._played, more], axis=1)
        self._played[slots, self._length[slots]] = self.arrays["actions"][t, slots]
        done = self.arrays["done"][t, slots]
        self._episode[slots] += done
        self._length[slots] = np.where(done, 0, self._length[slots] + 1)

    def _job(self, worker: Worker) -> wire.Job:
        slots = tuple(
            wire.Slot(
                index=slot,
                group=slot % self.environments % len(self.groups),
                seed=self.seeds[slot // self.environments],
                environment=slot % self.environments,
                episode=int(self._episode[slot]),
                actions=self._played[slot, : self._length[slot]],
            )
            for slot in worker.slots
        )
        # A replaced worker finds what it showed before in the arrays already.
        first = -1 if worker.ready else 0
        return wire.Job(
            self._family, self._name, self._options, self._stream, slots, self._fields, first, self._episodes
        )

    def _order(self, worker: Worker) -> None:
        with suppress(BrokenPipeError):  # its end is noticed where its answer is awaited
            wire.send_object(worker.commands, self._job(worker))

    def _await_ready(self, worker: Worker) -> bool:
        """Whether it got ready itself; another one has taken its place if not."""
        try:
            kind, _, imports_jax = wire.receive(worker.replies)
        except EOFError:
            self._replace(worker)
            return False
        self._check(worker, kind)
        worker.ready, worker.imports_jax = True, bool(imports_jax)
        return True

    def _hear(self, worker: Worker) -> None:
        try:
            kind, group, _ = wire.receive(worker.replies)
        except EOFError:
            self._replace(worker)
            return
        self._check(worker, kind)
        worker.ends = 0
        next(each for each in worker.pending if each[0] == group)[2] = True

    def _check(self, worker: Worker, kind: int) -> None:
        if kind == wire.FAILED:
            sentence = wire.receive_object(worker.replies)
            self.close()
            raise RuntimeError(f"{self.spec.name} failed in a worker: {sentence}")

    def _replace(self, worker: Worker) -> None:
        """Another process plays the slots again up to where they were, then gets the commands that are open."""
        worker.dismiss()
        self.replaced += 1
        worker.ends += 1
        if worker.ends >= STUBBORN:
            self.close()
            raise RuntimeError(
                f"a worker of {self.spec.name} ended {STUBBORN} times in a row at the same step: "
                "the engine crashes there, or memory is short; fewer environments or workers need less of it."
            )
        worker.launch(self._memory)
        self._order(worker)
        if self._await_ready(worker):
            for entry in worker.pending:
                entry[2] = False
                worker.tell(entry[0], entry[1])


def _cores() -> int:
    """How many this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
