"""The process that plays: its slots' rollouts, one or a few at a time, and builds their next episodes in between.

It imports no JAX. A slot plays all its steps before the next one begins, since engines that take turns push each other
out of the processor's memory; where NumPy plays, a few slots share its calls. Results go straight into the shared
arrays. An environment may offer `advance(state, actions, observation, rewards, convention) -> done`, which writes into
given arrays, and `skip(state, actions)`, which looks at nothing; the others are stepped and copied.
"""

import importlib
import os
import select
import sys
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from hpml.marl.collect import wire
from hpml.marl.collect.building import Builder, Building
from hpml.marl.collect.native import NativePlayer
from hpml.marl.collect.player import Player, Policies, Turn, log_probs
from hpml.marl.collect.shared import POLICY, attach
from hpml.marl.env import Env, Observation

IDLE = 5  # milliseconds without a command, after which there is time to tidy up
TOGETHER = 1 << 16  # bytes of what slots side by side see at most: engines of larger worlds push each other out
LEFT_OVER = 4  # finished episodes that may wait for such a time; of more, one goes with every rollout


class Lane:
    """A slot being played: its episode, and the next one in the making."""

    def __init__(self, env: Env, slot: wire.Slot, job: wire.Job, arrays: dict[str, np.ndarray], builder: Builder):
        self.env, self.index, self.place = env, slot.index, slot.place
        self._seed, self._episodes = (slot.seed, job.stream, slot.environment), job.episodes
        self._arrays, self._builder = arrays, builder
        self._advance = getattr(env, "advance", None)
        self._kept: dict[int, tuple[Any, ...]] = {}
        self.episode = slot.episode
        self.state: Any = None
        if self._episodes is None or slot.episode < self._episodes:
            self.state, self._seen = self._reset(slot.episode)
            self._replay(slot.actions)
        self._next: Building | None = None

    def _reset(self, episode: int) -> tuple[Any, Observation]:
        return self.env.reset(wire.episode_seed(*self._seed, episode))

    def _replay(self, actions: np.ndarray) -> None:
        skip = getattr(self.env, "skip", None)
        for i, acts in enumerate(actions.astype(self._arrays["actions"].dtype)):
            if skip is not None and i + 1 < len(actions):
                skip(self.state, acts)
            else:
                self.state, step = self.env.step(self.state, acts, None)
                self._seen = step.observation

    def build_ahead(self) -> None:
        """Begin to build the next episode, if there is to be one."""
        if self._episodes is None or self.episode + 1 < self._episodes:
            self._next = self._builder.order(partial(self._reset, self.episode + 1))

    def show(self) -> None:
        """The current observation into the arrays of time 0."""
        if self.state is not None:
            self._write(self._seen, 0)

    def step(self, t: int) -> Any:
        """The actions of time t, and what they led to; the state of an episode that ended, to be let go."""
        arrays, i = self._arrays, self.index
        if self.state is None:
            arrays["rewards"][t, i], arrays["convention"][t, i], arrays["done"][t, i] = 0.0, -1, True
            return None
        if self._advance is not None:
            done = self._advance(self.state, *self._places(t))
        else:
            self.state, step = self.env.step(self.state, arrays["actions"][t, i], None)
            done = bool(step.done)
            arrays["rewards"][t, i], arrays["convention"][t, i] = step.rewards, step.convention
            self._write(step.observation, t + 1)
        arrays["done"][t, i] = done
        if not done:
            return None
        if "memory" in arrays:
            arrays["memory"][t + 1, i] = 0.0
        over = self.state
        self.state, self.episode = None, self.episode + 1
        if self._next is not None:
            self.state, first = self._next.take()
            self._write(first, t + 1)
            self._next = None
            self.build_ahead()
        return over

    def _places(self, t: int) -> tuple[Any, ...]:
        """Where step t has its actions and leaves its results; kept, since making views costs as much as filling."""
        if t not in self._kept:
            part = lambda name: self._arrays[name][t, self.index]  # noqa: E731
            seen = seen_at(self._arrays, t + 1, self.index)
            self._kept[t] = (part("actions"), seen, part("rewards"), part("convention"))
        return self._kept[t]

    def _write(self, seen: Observation, t: int) -> None:
        for name, value in seen._asdict().items():
            if name in self._arrays:
                self._arrays[name][t, self.index] = value


class Part:
    """Lanes that play side by side, and what they see and do at each time, as views into the arrays."""

    def __init__(self, lanes: list[Lane], arrays: dict[str, np.ndarray], player: Policies, actions: int):
        self._lanes, self._arrays, self._player = lanes, arrays, player
        self._slots = slice(lanes[0].index, lanes[-1].index + 1)
        self._logits = np.zeros((*arrays["actions"][:, self._slots].shape, actions), np.float32)
        self._turns = [player.prepare(self._turn(t)) for t in range(len(self._logits))] if "draws" in arrays else []

    def _turn(self, t: int) -> Turn:
        at = lambda name, t: self._arrays[name][t, self._slots]  # noqa: E731
        known, then = (at("memory", t), at("memory", t + 1)) if "memory" in self._arrays else (None, None)
        seen = seen_at(self._arrays, t, self._slots)
        return Turn(seen, known, at("draws", t), at("actions", t), self._logits[t], then)

    def play(self, steps: int, by_policy: bool) -> list[Any]:
        """A rollout, by the policies or by the actions that are there; the states of episodes that ended."""
        over = []
        for t in range(steps):
            if by_policy:
                self._player.act(self._turns[t])
            over += [ended for lane in self._lanes if (ended := lane.step(t)) is not None]
        if by_policy:
            actions = self._arrays["actions"][:steps, self._slots]
            self._arrays["log_probs"][:steps, self._slots] = log_probs(self._logits[:steps], actions)
        return over


def seen_at(arrays: Mapping[str, np.ndarray], t: int, slots: int | slice) -> Observation:
    """What is seen at time t, as views."""
    found = {name: arrays.get(name) for name in Observation._fields}
    return Observation(**{name: None if array is None else array[t, slots] for name, array in found.items()})


def side_by_side(lanes: list[Lane], most: int, picture: int) -> list[list[Lane]]:
    """Neighbours, at most so many at a time, as evenly as it goes; `picture` is how many bytes each of them sees."""
    parts = -(-len(lanes) // max(1, min(most, TOGETHER // max(picture, 1))))
    cuts = [len(lanes) * i // parts for i in range(parts + 1)]
    return [lanes[first:last] for first, last in pairwise(cuts)]


def policies(arrays: Mapping[str, np.ndarray], places: list[int], shared: bool) -> dict[str, np.ndarray]:
    """The parameters that slots of these seeds play by: the seed's, or where there are several, each slot's own."""
    if len(set(places)) == 1:
        return {name: array[places[0]] for name, array in arrays.items()}
    every = {name: array[places] for name, array in arrays.items()}
    return {name: array[:, None] for name, array in every.items()} if shared else every


def work(commands: int, replies: int, memory: int) -> None:
    """Play until the parent is gone."""
    job: wire.Job = wire.receive_object(commands)
    arrays = attach(memory, job.fields)
    env = importlib.import_module(job.family).make(job.name, **job.options)
    builder = Builder()
    lanes: list[Lane] = []
    for slot in job.slots:
        if select.select([commands], [], [], 0)[0]:  # Nothing is said before everything is ready: the parent is gone.
            return
        lanes.append(Lane(env, slot, job, arrays, builder))
        if job.show:
            lanes[-1].show()
    wire.send(replies, wire.READY, sum("jax" in name.split(".")[0] for name in sys.modules))
    for lane in lanes:
        lane.build_ahead()
    policy = {name.removeprefix(POLICY): array for name, array in arrays.items() if name.startswith(POLICY)}
    picture = arrays["image"][0, 0].nbytes if "image" in arrays else 0
    players: dict[tuple[int, ...], Policies] = {}
    parts = []
    most = NativePlayer.together if job.library else Player.together
    for few in side_by_side(lanes, most, picture):
        places = tuple(lane.place for lane in few)
        if places not in players:
            known = (env.spec, job.shared)
            players[places] = NativePlayer(*known, job.library) if job.library else Player(*known)
        parts.append(Part(few, arrays, players[places], env.spec.actions))
    over: list[Any] = []
    listening = select.poll()
    listening.register(commands, select.POLLIN)
    while True:
        builder.resting.set()
        while over and not listening.poll(IDLE):
            env.close(over.pop())
        if len(over) > LEFT_OVER:
            env.close(over.pop())
        kind, steps = wire.receive(commands)
        builder.resting.clear()
        for places, player in players.items() if kind == wire.ACT else ():
            player.load(policies(policy, list(places), job.shared))
        for part in parts:
            over += part.play(steps, kind == wire.ACT)
        wire.send(replies, wire.READY, steps)


def main(commands: int, replies: int, memory: int) -> None:
    """The process's life: errors go to the parent as a sentence, and nothing keeps it alive after that."""
    try:
        work(commands, replies, memory)
    except (EOFError, BrokenPipeError):
        pass
    except BaseException as problem:
        sentence = str(problem) if isinstance(problem, ValueError) else f"{type(problem).__name__}: {problem}"
        try:
            wire.send(replies, wire.FAILED, 0)
            wire.send_object(replies, sentence)
        except BrokenPipeError:
            pass
    # Threads that build must not hold up the end.
    os._exit(0)
