"""Policies at play, in NumPy: the same function as `networks.Actor`, where the environments are.

Acting takes some tens of microseconds, as long as a step of the engine, and ten in C (`native.py`). Nothing has to
travel to a device and back at every step, and a few environments play their whole rollout while the engines' memory is
warm. A few at a time share the cost of the calls; every product is still that of one environment and agent, so that a
result never depends, not in its last bit, on what is played beside it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from hpml.marl.env import FORBIDDEN, Observation, Spec

_ZERO = np.float32(0)


class Turn(NamedTuple):
    """Environments side by side at one time: what is seen, known and drawn, and where the answer goes.

    - `draws` (environments, agents): uniform on [0, 1). `memory` (environments, agents, units): what is known, or None.
    - `actions`, and `logits` that they are drawn from; `then`: what is known afterwards, or None.
    """

    seen: Observation
    memory: np.ndarray | None
    draws: np.ndarray
    actions: np.ndarray
    logits: np.ndarray
    then: np.ndarray | None


@runtime_checkable
class Policies(Protocol):
    """All agents' policies: `load` gives them parameters, and `act` plays a turn as `prepare` has made it ready."""

    @property
    def together(self) -> int:
        """How many environments play side by side at most."""

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """Play by these parameters, which must stay where they are until others are loaded."""

    def prepare(self, turn: Turn) -> Any:
        """What `act` takes."""

    def act(self, turn: Any) -> None:
        """Play a turn: everybody's action, the logits that it was drawn from, and what is known afterwards."""


class Player:
    """All agents' policies, in NumPy.

    What they `load` are the actor's parameters by their names in its tree ("sight.vector.weight"), agents first, or
    without that axis where one actor is shared. Where each environment has its own, theirs is a further first axis, and
    a shared actor then has an axis of one agent behind it.

    A call of NumPy takes as long as the arithmetic of a layer here, so there are few: a bias is the weight of a last
    input that is always 1, and what goes in lies in a `Desk` from one step to the next.
    """

    together = 4

    def __init__(self, spec: Spec, shared: bool) -> None:
        self._spec, self._shared = spec, shared
        self._desks: dict[int, Desk] = {}

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """See `Policies.load`."""
        spec = self._spec
        seeing = ("sight.vector",) if spec.image is None else ("sight.picture", "sight.vector")
        self._layers = [_join(weights, *names) for names in (seeing, ("hidden",), ("head",))]
        self._memory = {name: array for name, array in weights.items() if name.startswith("memory.")}
        if spec.image is not None:
            # Bytes b are seen as b / 127.5 - 1: a matter of the weights, and not of every picture.
            read = weights["sight.sprites.weight"]
            offset = (weights["sight.sprites.bias"] - read.sum(-1))[..., None, :]
            self._read = np.concatenate([read.swapaxes(-1, -2) / np.float32(127.5), offset], axis=-2)

    def prepare(self, turn: Turn) -> Turn:
        """See `Policies.prepare`."""
        return turn

    def act(self, turn: Turn) -> None:
        """See `Policies.act`."""
        seen, known, draws = turn.seen, turn.memory, turn.draws
        desk = self._desks.get(len(draws))
        if desk is None:
            desk = self._desks[len(draws)] = Desk(self._spec, self._shared, [w.shape[-1] for w in self._layers], draws)
        if desk.squares is not None:
            desk.lines[...] = desk.cut(seen.image)
            np.maximum(np.matmul(desk.squares, self._read), _ZERO, out=desk.picture)
        desk.vector[...] = seen.vector
        first, second, head = self._layers
        np.maximum(np.matmul(first, desk.inputs[0])[..., 0], _ZERO, out=desk.after[0])
        hidden = np.matmul(second, desk.inputs[1])[..., 0]
        if self._memory:
            assert known is not None
            assert turn.then is not None
            desk.after[1][...] = turn.then[...] = self._remember(np.maximum(hidden, _ZERO), known)
        else:
            np.maximum(hidden, _ZERO, out=desk.after[1])
        logits = np.matmul(head, desk.inputs[2])[..., 0]
        if seen.mask is not None:
            logits = np.where(seen.mask, logits, np.float32(FORBIDDEN))
        turn.logits[...] = logits
        # Reductions by name: the methods go through Python, and that is half of the time here.
        mass = np.exp(logits - np.maximum.reduce(logits, axis=-1, keepdims=True))
        np.add.accumulate(mass, axis=-1, out=mass)
        np.add.reduce(mass <= (draws * mass[..., -1])[..., None], axis=-1, out=turn.actions)

    def _remember(self, x: np.ndarray, known: np.ndarray) -> np.ndarray:
        """A step of the gated unit, as equinox has it."""
        weights = self._memory
        given = (weights["memory.weight_ih"] @ x[..., None])[..., 0] + weights["memory.bias"]
        kept = (weights["memory.weight_hh"] @ known[..., None])[..., 0]
        reset, hold, new = np.split(given, 3, -1)
        reset_kept, hold_kept, new_kept = np.split(kept, 3, -1)
        new = np.tanh(new + _sigmoid(reset + reset_kept) * (new_kept + weights["memory.bias_n"]))
        return new + _sigmoid(hold + hold_kept) * (known - new)


class Desk:
    """Where the layers' inputs for so many environments lie; the last number of each input is 1.

    `inputs` are those of the three layers as columns, and `after` where the first two write theirs. `squares` are a
    picture's, a row each, with `lines` to write their pixels by; `picture` and `vector` are parts of the first input.
    """

    def __init__(self, spec: Spec, shared: bool, sizes: list[int], draws: np.ndarray) -> None:
        inputs = [np.ones((*draws.shape, size), np.float32) for size in sizes]
        self.inputs = [x[..., None] for x in inputs]
        self.after = [x[..., :-1] for x in inputs[1:]]
        first = sizes[0] - 1 - spec.vector - (spec.agents if shared else 0)
        self.vector = inputs[0][..., first : first + spec.vector]
        if shared:
            inputs[0][..., first + spec.vector : -1] = np.eye(spec.agents, dtype=np.float32)
        self.squares = None
        if spec.image is not None:
            height, width, channels = spec.image
            side, rows, columns = spec.patch, -(-height // spec.patch), -(-width // spec.patch)
            self._shape = (*draws.shape, rows, side, columns, side * channels)
            self._spare = ((0, 0), (0, 0), (0, rows * side - height), (0, columns * side - width), (0, 0))
            self._whole = (rows * side, columns * side) == (height, width)
            self.squares = np.ones((*draws.shape, rows * columns, side * side * channels + 1), np.float32)
            self.lines = self.squares[..., :-1].reshape(*draws.shape, rows, columns, side, side * channels)
            self.picture = inputs[0][..., :first].reshape(*draws.shape, rows * columns, -1)

    def cut(self, image: np.ndarray) -> np.ndarray:
        """Pictures in squares, the lines of each together."""
        whole = image if self._whole else np.pad(image, self._spare)
        return whole.reshape(self._shape).transpose(0, 1, 2, 4, 3, 5)


def log_probs(logits: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """The log-probability of each action."""
    logits = logits - np.maximum.reduce(logits, axis=-1, keepdims=True)
    taken = np.take_along_axis(logits, actions[..., None], axis=-1)[..., 0]
    return taken - np.log(np.add.reduce(np.exp(logits), axis=-1))


def _join(weights: Mapping[str, np.ndarray], *names: str) -> np.ndarray:
    """Layers that are added up, as one, with their biases as a last column."""
    biases = [weights[f"{name}.bias"] for name in names]
    return np.concatenate([*(weights[f"{name}.weight"] for name in names), np.sum(biases, 0)[..., None]], axis=-1)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x)
