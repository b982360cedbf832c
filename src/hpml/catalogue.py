"""What there is to choose from, found by listing folders: a file's name is its name on the command line."""

import importlib
import inspect
import pkgutil
from types import ModuleType

import hpml.dynamics.rules
import hpml.games.families
import hpml.marl.algorithms
import hpml.projection.projectors
from hpml.dynamics.rule import Rule
from hpml.games.game import Game
from hpml.marl.algorithm import Algorithm
from hpml.marl.find import families, family
from hpml.projection.projector import Projector


def list_projectors() -> dict[str, type[Projector]]:
    """Every projector by its file's name."""
    return _one_class_each(hpml.projection.projectors, Projector)


def list_rules() -> dict[str, type[Rule]]:
    """Every update rule by its file's name."""
    return _one_class_each(hpml.dynamics.rules, Rule)


def list_games() -> dict[str, dict[str, Game]]:
    """Every game family by its file's name, with its examples by theirs."""
    return {name: module.examples() for name, module in _modules(hpml.games.families).items()}


def list_algorithms() -> dict[str, type[Algorithm]]:
    """Every training algorithm by its file's name."""
    return _one_class_each(hpml.marl.algorithms, Algorithm)


def list_environments() -> dict[str, tuple[str, ...]]:
    """The full names of each family's environments."""
    return {name: tuple(f"{name}/{one}" for one in family(name).names()) for name in families()}


def summary(thing: type | ModuleType) -> str:
    """The first sentence of a docstring."""
    return inspect.cleandoc(thing.__doc__ or "").splitlines()[0]


def _modules(package: ModuleType) -> dict[str, ModuleType]:
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return {name: importlib.import_module(f"{package.__name__}.{name}") for name in names}


def _one_class_each(package: ModuleType, kind: type) -> dict[str, type]:
    found = {}
    for name, module in _modules(package).items():
        classes = [
            thing
            for _, thing in inspect.getmembers(module, inspect.isclass)
            if issubclass(thing, kind) and thing is not kind and thing.__module__ == module.__name__
        ]
        if len(classes) != 1:
            raise TypeError(f"{module.__name__} must define one {kind.__name__}, it defines {len(classes)}.")
        found[name] = classes[0]
    return found
