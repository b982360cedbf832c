"""A substrate as data: who plays, what they can do and see, and the settings that the engine is built with."""

import os
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hpml.marl.engine import package

VECTORS = ("INVENTORY", "READY_TO_SHOOT")
INTERACTION = "INTERACTION_INVENTORIES"
LEVEL = Path(__file__).parent / "level"


@dataclass(frozen=True)
class Substrate:
    """A substrate and its players' roles, in the package's own words."""

    name: str
    roles: tuple[str, ...]
    config: Any = field(repr=False)
    _known: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def actions(self) -> tuple[dict[str, int], ...]:
        """What each action tells the engine."""
        return tuple(dict(each) for each in self.config.action_set)

    def shape(self, observation: str) -> tuple[int, ...] | None:
        """The shape of one player's observation of that name, None where the substrate does not give it."""
        if observation not in self.config.individual_observation_names:
            return None
        return tuple(self.config.timestep_spec.observation[observation].shape)

    def settings(self, seed: int) -> dict[str, str]:
        """What the engine is built with for the episode of that seed."""
        if not self._drawn:
            return self._fixed | self._known | {"env_seed": str(seed)}
        # Such a substrate draws its map with Python's global generator.
        before = random.getstate()
        try:
            random.seed(seed)
            return self._translate() | {"env_seed": str(seed)}
        finally:
            random.setstate(before)

    @property
    def asks(self) -> bool:
        """Whether an engine should say what it shows and takes; where maps are drawn, every engine is its own."""
        return not self._known and not self._drawn

    def remember(self, interface: str) -> None:
        """What an engine has said that it shows and takes: those after it are built in one go, in half the time."""
        self._known["hpmlInterface"] = interface

    @cached_property
    def _module(self) -> Any:
        return package.module(f"configs.substrates.{self.name}")

    @cached_property
    def _drawn(self) -> bool:
        return getattr(self._module, "random", None) is random

    @cached_property
    def _fixed(self) -> dict[str, str]:
        return self._translate()

    def _translate(self) -> dict[str, str]:
        from dmlab2d import settings_helper

        definition = _plain(self._module.build(roles=self.roles, config=self.config))
        simulation = definition["simulation"]
        if "avatar" in simulation["prefabs"] and not simulation.get("buildAvatars"):
            objects = package.module("utils.substrates.game_object_utils")
            avatars = objects.build_avatar_objects(
                len(self.roles), simulation["prefabs"], simulation.get("playerPalettes")
            )
            simulation["gameObjects"] = [*simulation.get("gameObjects", ()), *avatars]
        root = package.folder().parent
        settings = settings_helper.flatten_args(definition)
        # The package writes "$" for the dots within its keys.
        settings = {key.replace("$", "."): str(value) for key, value in settings.items()}
        settings["hpmlLevel"] = os.path.join(root, settings.pop("levelDirectory"), settings.pop("levelName"))
        settings["hpmlRoot"] = str(root)
        return settings | {"levelDirectory": str(LEVEL.parent), "levelName": LEVEL.name, "logLevel": "error"}


def load(name: str, players: int | Sequence[str] | None = None) -> Substrate:
    """The substrate of that name with its default players, with so many of them, or with these roles."""
    config = package.module(f"configs.substrates.{name}").get_config()
    default = tuple(config.default_player_roles)
    if players is None:
        roles = default
    elif isinstance(players, int):
        if not 1 <= players <= len(default):
            raise ValueError(f"{name} is played by 1 to {len(default)} players, not by {players}.")
        roles = default[:players]
    else:
        roles = tuple(players)
    if unknown := sorted(set(roles) - set(config.valid_roles)):
        raise ValueError(f"{name} has no role {unknown[0]!r}: choose from {', '.join(sorted(config.valid_roles))}.")
    return Substrate(name, roles, config)


def _plain(value: Any) -> Any:
    """Dictionaries and lists of the caller's own, whatever the package used."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value.item() if isinstance(value, np.generic) else value
