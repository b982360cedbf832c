"""Policies at play, in NumPy: the same function as `networks.Actor`, where the environments are.

Acting takes some tens of microseconds, as long as a step of the engine. Nothing has to travel to a device and back at
every step, and a few environments play their whole rollout while the engines' memory is warm. A few at a time share
the cost of the calls; every product is still that of one environment and agent, so that a result never depends, not in
its last bit, on what is played beside it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from hpml.marl.env import FORBIDDEN, Observation, Spec


class Player:
    """All agents' policies.

    `weights` are the actor's parameters by their names in its tree ("sight.vector.weight"), agents first, or without
    that axis where one actor is shared. Where each environment has its own, theirs is a further first axis, and a
    shared actor then has an axis of one agent behind it.
    """

    def __init__(self, spec: Spec, weights: Mapping[str, np.ndarray], shared: bool) -> None:
        self._weights = dict(weights)
        self._names = np.eye(spec.agents, dtype=np.float32) if shared else None
        self._recurrent = "memory.weight_ih" in weights
        if spec.image is not None:
            # Bytes b are seen as b / 127.5 - 1: a matter of the weights, and not of every picture.
            read = weights["sight.sprites.weight"]
            self._read = np.ascontiguousarray(read.swapaxes(-1, -2)) / np.float32(127.5)
            self._offset = (weights["sight.sprites.bias"] - read.sum(-1))[..., None, :]
            height, width, channels = spec.image
            self._shape = (-(-height // spec.patch), -(-width // spec.patch), spec.patch, channels)
            rows, columns, side, _ = self._shape
            self._whole = (rows * side, columns * side) == (height, width)
            self._spare = [(0, 0), (0, 0), (0, rows * side - height), (0, columns * side - width), (0, 0)]

    def act(self, seen: Observation, memory: Any, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        """Everybody's action and its log-probability, (environments, agents), and what is known afterwards.

        `draws` (environments, agents) are uniform on [0, 1); `memory` is (environments, agents, units) or None.
        """
        x = _relu(self._layer("hidden", _relu(self._see(seen))))
        if self._recurrent:
            memory = x = self._remember(x, memory)
        logits = self._layer("head", x)
        if seen.mask is not None:
            logits = np.where(seen.mask, logits, np.float32(FORBIDDEN))
        # Reductions by name: the methods go through Python, and that is half of the time here.
        logits -= np.maximum.reduce(logits, axis=-1, keepdims=True)
        mass = np.add.accumulate(np.exp(logits), axis=-1)
        total = mass[..., -1]
        actions = np.add.reduce(mass <= (draws * total)[..., None], axis=-1)
        taken = logits.reshape(-1, logits.shape[-1])[np.arange(actions.size), actions.reshape(-1)]
        return actions, taken.reshape(actions.shape) - np.log(total), memory

    def _see(self, seen: Observation) -> np.ndarray:
        vector = seen.vector
        if self._names is not None:
            vector = np.concatenate([vector, np.broadcast_to(self._names, (len(vector), *self._names.shape))], -1)
        total = self._layer("sight.vector", vector)
        if seen.image is not None:
            rows, columns, side, channels = self._shape
            image = seen.image if self._whole else np.pad(seen.image, self._spare)
            lines = image.reshape(*image.shape[:2], rows, side, columns, side * channels)
            squares = lines.transpose(0, 1, 2, 4, 3, 5).astype(np.float32, order="C")
            drawn = squares.reshape(*image.shape[:2], rows * columns, -1) @ self._read
            drawn += self._offset
            total += self._layer("sight.picture", _relu(drawn).reshape(*image.shape[:2], -1))
        return total

    def _layer(self, name: str, x: np.ndarray) -> np.ndarray:
        y = (self._weights[f"{name}.weight"] @ x[..., None])[..., 0]
        y += self._weights[f"{name}.bias"]
        return y

    def _remember(self, x: np.ndarray, known: np.ndarray) -> np.ndarray:
        """A step of the gated unit, as equinox has it."""
        weights = self._weights
        given = (weights["memory.weight_ih"] @ x[..., None])[..., 0] + weights["memory.bias"]
        kept = (weights["memory.weight_hh"] @ known[..., None])[..., 0]
        reset, hold, new = np.split(given, 3, -1)
        reset_kept, hold_kept, new_kept = np.split(kept, 3, -1)
        new = np.tanh(new + _sigmoid(reset + reset_kept) * (new_kept + weights["memory.bias_n"]))
        return new + _sigmoid(hold + hold_kept) * (known - new)


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.float32(0), out=x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.float32(0.5) + np.float32(0.5) * np.tanh(np.float32(0.5) * x)
