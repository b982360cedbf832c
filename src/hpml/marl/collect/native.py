"""Policies at play in C: the same function as `player.Player`, several times as fast."""

import ctypes
from collections.abc import Mapping

import numpy as np

from hpml.marl.collect.player import Turn
from hpml.marl.env import FORBIDDEN, Spec, patch_shape
from hpml.native.play import load

# The parameters by their names in the actor's tree, in the order of the C file.
NAMES = (
    *(f"sight.{layer}.{part}" for layer in ("vector", "sprites", "picture") for part in ("weight", "bias")),
    *(f"{layer}.{part}" for layer in ("hidden", "head") for part in ("weight", "bias")),
    *(f"memory.{part}" for part in ("weight_ih", "weight_hh", "bias", "bias_n")),
)


class NativePlayer:
    """`Player` in C, for one environment at a time."""

    together = 1

    def __init__(self, spec: Spec, shared: bool, path: str):
        self._spec, self._shared = spec, shared
        self._library = load(path)
        self._act = self._library.act
        self._player: int | None = None
        self._units = 0
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._weights: Mapping[str, np.ndarray] = {}  # C knows where they lie

    def load(self, weights: Mapping[str, np.ndarray]) -> None:
        """See `Policies.load`."""
        if self._player is None:
            self._units = weights["memory.bias_n"].shape[-1] if "memory.bias_n" in weights else 0
            self._shapes = self._expected(weights)
            self._player = self._open(weights)
        found = {name: array.shape for name, array in weights.items()}
        if found != self._shapes or any(array.dtype != np.float32 for array in weights.values()):
            raise ValueError(
                f"{self._spec.name} needs policies of float32 with the shapes {self._shapes}, got {found}."
            )
        self._weights = weights
        self._library.load(self._player, _places(*(weights.get(name) for name in NAMES)))

    def _expected(self, weights: Mapping[str, np.ndarray]) -> dict[str, tuple[int, ...]]:
        """The parameters' shapes, as C goes through them."""
        spec, units, hidden = self._spec, self._units, weights["hidden.bias"].shape[-1]
        numbers, last = spec.vector + (spec.agents if self._shared else 0), units or hidden
        layers: dict[str, tuple[int, ...]] = {
            "sight.vector": (hidden, numbers),
            "hidden": (hidden, hidden),
            "head": (spec.actions, last),
        }
        if spec.image is not None:
            (cells, pixels), sprites = patch_shape(spec), weights["sight.sprites.bias"].shape[-1]
            layers |= {"sight.sprites": (sprites, pixels), "sight.picture": (hidden, cells * sprites)}
        shapes = {f"{name}.weight": shape for name, shape in layers.items()}
        shapes |= {f"{name}.bias": shape[:1] for name, shape in layers.items()}
        if units:
            gates = 3 * units
            shapes |= {"memory.weight_ih": (gates, hidden), "memory.weight_hh": (gates, units)}
            shapes |= {"memory.bias": (gates,), "memory.bias_n": (units,)}
        return {name: shape if self._shared else (spec.agents, *shape) for name, shape in shapes.items()}

    def _open(self, weights: Mapping[str, np.ndarray]) -> int:
        spec = self._spec
        picture = (*spec.image, spec.patch, weights["sight.sprites.bias"].shape[-1]) if spec.image else (0,) * 5
        sizes = (spec.vector, weights["hidden.bias"].shape[-1], spec.actions, self._units, spec.masked, self._shared)
        shape = np.array([spec.agents, *picture, *sizes], np.int64)
        player = self._library.open_player(shape.ctypes.data, FORBIDDEN)
        if player is None:
            raise MemoryError("there is not enough memory for the policies at play.")
        return int(player)

    def prepare(self, turn: Turn) -> ctypes.Array[ctypes.c_void_p]:
        """See `Policies.prepare`: where everything of this turn lies."""
        seen = turn.seen
        if len(turn.draws) != 1:
            raise ValueError(f"policies in C play one environment at a time, got {len(turn.draws)}.")
        return _places(
            seen.image, seen.vector, seen.mask, turn.memory, turn.draws, turn.actions, turn.logits, turn.then
        )

    def act(self, turn: ctypes.Array[ctypes.c_void_p]) -> None:
        """See `Policies.act`."""
        self._act(self._player, turn)


def _places(*arrays: np.ndarray | None) -> ctypes.Array[ctypes.c_void_p]:
    """The arrays' addresses, 0 for one that is not there."""
    if any(array is not None and not array.flags.c_contiguous for array in arrays):
        raise ValueError("policies in C play on arrays without gaps.")
    return (ctypes.c_void_p * len(arrays))(*(None if array is None else array.ctypes.data for array in arrays))
