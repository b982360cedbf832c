"""Environments in worker processes: S seeds times E environments, played side by side into shared arrays.

Slot `seed * E + environment` plays its own row of episodes, whose seeds depend on (seed, environment, episode) alone:
how many workers there are, and what else is played, changes nothing. The policies are where the environments are:

    pool.play(policy, draws)         # a rollout of every slot: what is seen, done and drawn stands in the arrays
    pool.carry()                     # what was seen last is what the next rollout begins with

`begin` and `finish` are the two halves of `play`, for those who have something to do meanwhile.

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
from hpml.marl.collect.shared import POLICY, allocate, attach, layout
from hpml.marl.env import Env, Spec
from hpml.native.play import library

STUBBORN = 3  # ends of a worker in a row, without a rollout between them, after which another try makes no sense


class Pool:
    """Worker processes and the arrays that they write.

    - `arrays`: image, vector, mask, memory, actions, log_probs, rewards, done, convention by name, time first, then
      slots; what is seen and known has `steps + 1` times.
    - `replaced`: how many workers have ended unasked and been replaced.
    """

    spec: Spec
    arrays: dict[str, np.ndarray]
    replaced: int
    _told: int | None

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
        policy: Mapping[str, tuple[int, ...]] | None = None,
        shared: bool = False,
        memory: int = 0,
        stream: int = 0,
        episodes: int | None = None,
        state: Mapping[str, Any] | None = None,
    ):
        """Start the workers and show the first observations at time 0.

        - `family`: a file in `envs/`, or a module of your own with `make(name, **options)`.
        - `steps`: how many steps the arrays hold.
        - `workers`: how many processes; one a core if None.
        - `policy`: the shapes of the policies' parameters by name, seeds first, as `Player` has them; None where the
          actions will be given. `shared`: one actor is everybody's. `memory`: units that the actors remember with.
        - `stream`: another number gives other episodes to the same seeds, as evaluation needs them.
        - `episodes`: how many a slot plays; then it rests, with rewards of 0 and `done`. Without an end if None.
        - `state`: what `state()` returned; the slots go on from there.
        """
        self.replaced, self._told = 0, None
        self._family = family if "." in family else f"hpml.marl.envs.{family}"
        self._name, self._options, self._stream, self._episodes = name, dict(options or {}), stream, episodes
        env: Env = importlib.import_module(self._family).make(name, **self._options)
        if env.compiled:
            raise ValueError(f"{env.spec.name} runs in JAX itself: it needs no workers.")
        if not len(seeds) or environments < 1 or steps < 1 or (workers is not None and workers < 1):
            raise ValueError("a pool needs at least one seed, one environment, one step and one worker.")
        self.spec, self.seeds, self.environments, self.steps = env.spec, tuple(seeds), environments, steps
        self._policy, self._shared = dict(policy or {}), shared
        if policy and any(name.startswith("memory.") for name in policy) != bool(memory):
            raise ValueError(f"a policy with a memory needs its units, and one without has none: got memory={memory}.")
        self._library = library() if policy else None
        slots = len(seeds) * environments
        self._restore(state, slots)
        self._fields = layout(env.spec, steps, slots, policy, memory)
        self._memory = allocate(self._fields)
        self.arrays = attach(self._memory, self._fields)
        self.arrays["convention"][:] = -1
        count = min(slots, workers or _cores())
        self._workers = [Worker(part.tolist()) for part in np.array_split(np.arange(slots), count)]
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

    def play(self, policy: Mapping[str, np.ndarray], draws: np.ndarray) -> None:
        """A rollout of every slot by the policies; `draws` (steps, slots, agents) are uniform on [0, 1)."""
        self.begin(policy, draws)
        self.finish()

    def begin(self, policy: Mapping[str, np.ndarray], draws: np.ndarray) -> None:
        """Let the workers play a rollout; until `finish` the arrays are theirs, and `state` is that before it."""
        self._refuse_at_play()
        if not self._policy:
            raise ValueError("this pool knows no policy: give the shapes of its parameters when it is made.")
        for name in self._policy:
            self.arrays[POLICY + name][:] = policy[name]
        self.arrays["draws"][:] = draws
        self._tell(wire.ACT, self.steps)

    def follow(self, actions: Any) -> None:
        """A rollout of every slot with these actions, (steps, slots, agents)."""
        self._refuse_at_play()
        acts, spec = np.asarray(actions), self.spec
        if acts.ndim != 3 or acts.shape[1:] != (self.slots, spec.agents) or not 1 <= len(acts) <= self.steps:
            raise ValueError(
                f"{spec.name} has {spec.agents} agents, this pool {self.slots} environments and {self.steps} steps: "
                f"the actions must have the shape {(self.steps, self.slots, spec.agents)}, got {acts.shape}."
            )
        if acts.dtype.kind not in "iu" or acts.min() < 0 or acts.max() >= spec.actions:
            raise ValueError(f"actions of {spec.name} are the integers 0 to {spec.actions - 1}.")
        self.arrays["actions"][: len(acts)] = acts
        self._tell(wire.FOLLOW, len(acts))
        self.finish()

    def finish(self) -> None:
        """Wait for the rollout that the workers were told to play."""
        if self._told is None:
            raise ValueError("nothing is being played: begin comes before finish.")
        for worker in self._workers:
            while worker.told is not None:
                self._hear(worker)
        self._record(self._told)
        self._told = None

    def carry(self) -> None:
        """What was seen last becomes what is seen first: before the next rollout."""
        for name in ("image", "vector", "mask", "memory"):
            if name in self.arrays:
                self.arrays[name][0] = self.arrays[name][-1]

    def state(self) -> dict[str, np.ndarray]:
        """All that is needed to go on: each slot's episode, how many steps of it are played, and their actions."""
        played = self._played[:, : int(self._length.max())]
        known = np.arange(played.shape[1]) < self._length[:, None]  # behind it stand actions of episodes that are over
        return {
            "episode": self._episode.copy(),
            "length": self._length.copy(),
            "actions": np.where(known[..., None], played, 0).astype(played.dtype),
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

    def _refuse_at_play(self) -> None:
        if self._told is not None:
            raise ValueError("a rollout is being played: finish comes before the next one.")

    def _tell(self, kind: int, steps: int) -> None:
        self._told = steps
        for worker in self._workers:
            worker.tell(kind, steps)

    def _record(self, steps: int) -> None:
        """Note what was played of each slot's episode, which is how it is rebuilt."""
        longest = int(self._length.max()) + steps
        if longest > self._played.shape[1]:
            more = np.zeros((self.slots, max(256, longest), self.spec.agents), self._played.dtype)
            self._played = np.concatenate([self._played, more], axis=1)
        for slot in range(self.slots):
            ends = np.flatnonzero(self.arrays["done"][:steps, slot])
            first, begun = (ends[-1] + 1, 0) if len(ends) else (0, self._length[slot])
            self._episode[slot] += len(ends)
            self._length[slot] = begun + steps - first
            if self._episodes is not None and self._episode[slot] >= self._episodes:  # it rests, and `done` goes on
                self._episode[slot], self._length[slot] = self._episodes, 0
            else:
                self._played[slot, begun : self._length[slot]] = self.arrays["actions"][first:steps, slot]

    def _job(self, worker: Worker) -> wire.Job:
        slots = tuple(
            wire.Slot(
                index=slot,
                place=slot // self.environments,
                seed=self.seeds[slot // self.environments],
                environment=slot % self.environments,
                episode=int(self._episode[slot]),
                actions=self._played[slot, : self._length[slot]],
            )
            for slot in worker.slots
        )
        return wire.Job(
            self._family,
            self._name,
            self._options,
            self._stream,
            slots,
            self._fields,
            not worker.ready,  # a replaced worker finds what it showed before in the arrays already
            self._episodes,
            self._shared,
            self._library,
        )

    def _order(self, worker: Worker) -> None:
        with suppress(BrokenPipeError):  # its end is noticed where its answer is awaited
            wire.send_object(worker.commands, self._job(worker))

    def _await_ready(self, worker: Worker) -> bool:
        """Whether it got ready itself; another one has taken its place if not."""
        try:
            kind, imports_jax = wire.receive(worker.replies)
        except EOFError:
            self._replace(worker)
            return False
        self._check(worker, kind)
        worker.ready, worker.imports_jax = True, bool(imports_jax)
        return True

    def _hear(self, worker: Worker) -> None:
        try:
            kind, _ = wire.receive(worker.replies)
        except EOFError:
            self._replace(worker)
            return
        self._check(worker, kind)
        worker.ends, worker.told = 0, None

    def _check(self, worker: Worker, kind: int) -> None:
        if kind == wire.FAILED:
            sentence = wire.receive_object(worker.replies)
            self.close()
            raise RuntimeError(f"{self.spec.name} failed in a worker: {sentence}")

    def _replace(self, worker: Worker) -> None:
        """Another process plays the slots again up to where the rollout began, then is told what this one was told."""
        worker.dismiss()
        self.replaced += 1
        worker.ends += 1
        if worker.ends >= STUBBORN:
            self.close()
            raise RuntimeError(
                f"a worker of {self.spec.name} ended {STUBBORN} times in a row at the same place: "
                "the engine crashes there, or memory is short; fewer environments or workers need less of it."
            )
        worker.launch(self._memory)
        self._order(worker)
        if self._await_ready(worker) and worker.told is not None:
            worker.tell(*worker.told)


def _cores() -> int:
    """How many this process may use, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
