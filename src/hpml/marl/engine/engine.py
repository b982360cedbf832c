"""One episode of the engine: built, started and stepped, asked only for what is used."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hpml.marl.engine.substrate import INTERACTION, VECTORS, Substrate

RESTARTS_NEVER = 0  # the number of the only episode that an engine plays: a second start may abort the process


class Engine:
    """An engine that plays one episode. The same substrate, seed and actions give the same frames in any process.

    `picture` is the engine's name of what is looked at: RGB or LAYER.
    """

    def __init__(self, substrate: Substrate, seed: int, picture: str = "RGB"):
        import dmlab2d
        from dmlab2d import runfiles_helper

        settings = substrate.settings(seed)
        self._lab = dmlab2d.Lab2d(runfiles_helper.find(), settings)
        self._lab.start(RESTARTS_NEVER, seed)
        if substrate.asks and "hpmlLevel" in settings:
            substrate.remember(self._lab.observation("HPML.INTERFACE").decode())
        self._running = dmlab2d.RUNNING
        self.done = False
        players = range(1, len(substrate.roles) + 1)
        self._pictures = [f"{player}.{picture}" for player in players]
        self._vectors, self._rewards, self._held = _layout(substrate)
        names = self._lab.action_discrete_names()
        self._table, self._columns = _action_table(substrate, names)
        self._act = np.zeros(len(names), np.int32)

    @property
    def sprites(self) -> int:
        """How many sprites the substrate has, each in four directions."""
        return int(self._lab.observation("HPML.SPRITES"))

    @property
    def layers(self) -> tuple[int, int, int]:
        """Height, width and layers of the symbolic picture."""
        height, width, layers = self._lab.observation_spec("1.LAYER")["shape"]
        return int(height), int(width), int(layers)

    def advance(self, actions: np.ndarray) -> bool:
        """Everybody acts once; whether that ended the episode."""
        self._act[self._columns] = self._table[actions]
        self._lab.act_discrete(self._act)
        status, _ = self._lab.advance()
        self.done = status != self._running
        return self.done

    def pictures(self, out: np.ndarray, convert: Callable[[Any], Any] | None = None) -> None:
        """Each player's picture, into `out` (players, height, width, channels)."""
        for player, name in enumerate(self._pictures):
            picture = self._lab.observation(name)
            out[player] = picture if convert is None else convert(picture)

    def numbers(self, vectors: np.ndarray, rewards: np.ndarray, convention: np.ndarray) -> None:
        """Each player's numbers, (players, numbers), reward of the last step and convention, (players,), into these.

        A convention is what the player held most of in an interaction of the last step, -1 where there was none.
        """
        found = self._lab.observation("HPML.NUMBERS")
        for here, place, shape in self._vectors:
            vectors[:, here] = found[place].reshape(shape)
        rewards[:] = found[self._rewards]
        for player, own in enumerate(self._held):
            convention[player] = found[own].argmax() if found.item(own.start) >= 0 else -1


def _action_table(substrate: Substrate, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """What each action writes, and where each player's lies among the engine's numbers."""
    parts = list(substrate.actions[0])
    place = {name: i for i, name in enumerate(names)}
    table = np.array([[action[part] for part in parts] for action in substrate.actions], np.int32)
    players = range(1, len(substrate.roles) + 1)
    return table, np.array([[place[f"{player}.{part}"] for part in parts] for player in players])


def _layout(substrate: Substrate) -> tuple[list[tuple[slice, slice, tuple[int, int]]], slice, list[slice]]:
    """Where the level lays down what it sees in numbers: vectors, and where each goes; rewards; own inventories."""
    players, first, column = len(substrate.roles), 0, 0
    vectors = []
    for name in VECTORS:
        shape = substrate.shape(name)
        if shape is not None:
            size = int(np.prod(shape))
            vectors.append((slice(column, column + size), slice(first, first + players * size), (players, size)))
            first, column = first + players * size, column + size
    rewards, first = slice(first, first + players), first + players
    held = substrate.shape(INTERACTION)
    if held is None:
        return vectors, rewards, []
    both, own = int(np.prod(held)), held[-1]
    return vectors, rewards, [slice(at, at + own) for at in range(first, first + players * both, both)]
