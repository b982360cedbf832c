"""Environments by name: families are found by listing `envs/`, and only the one that is asked for is imported.

A name is `family/name`, or one of a family's short names, and options may follow: `matrix/stag_hunt:horizon=32`.
"""

import ast
import importlib
import pkgutil
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

import hpml.marl.envs
from hpml.marl.env import Env


def families() -> tuple[str, ...]:
    """The environment families, by their files' names."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(hpml.marl.envs.__path__)))


def family(name: str) -> ModuleType:
    """A family's module."""
    if name not in families():
        near = get_close_matches(name, families()) or families()
        raise ValueError(f"There is no family of environments {name!r}: did you mean {', '.join(near)}?")
    return importlib.import_module(f"{hpml.marl.envs.__name__}.{name}")


def short_names() -> dict[str, str]:
    """Every short name with the full one, family first. They are read, not imported: a worker stays light."""
    found = {}
    for path in map(Path, hpml.marl.envs.__path__):
        for name in families():
            for line in ast.parse((path / f"{name}.py").read_text()).body:
                targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
                if any(isinstance(target, ast.Name) and target.id == "SHORT" for target in targets):
                    own = ast.literal_eval(line.value)  # type: ignore[attr-defined]
                    found.update({short: f"{name}/{full}" for short, full in own.items()})
    return found


def environment_names() -> tuple[str, ...]:
    """The full name of every environment there is, which imports every family."""
    return tuple(f"{name}/{one}" for name in families() for one in family(name).names())


def resolve(name: str) -> tuple[str, dict[str, Any]]:
    """The full name of an environment, and the options that followed its name."""
    plain, _, tail = name.partition(":")
    options = dict(_option(part, name) for part in tail.split(",") if part)
    if "/" in plain:
        return plain, options
    short = short_names()
    if plain not in short:
        known = {**short, **{full.split("/", 1)[1]: full for full in environment_names()}}
        near = get_close_matches(plain, known, n=5) or ["matrix/rock_paper_scissors", "meltingpot/clean_up"]
        raise ValueError(
            f"There is no environment {plain!r}: did you mean {', '.join(known.get(one, one) for one in near)}? "
            "`hpml list` shows all."
        )
    return short[plain], options


def environment(name: str, **options: Any) -> Env:
    """An environment by its full or short name; options in the name give way to those given here."""
    full, own = resolve(name)
    first, _, rest = full.partition("/")
    return family(first).make(rest, **{**own, **options})


def _option(text: str, name: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise ValueError(f"Options follow an environment's name as key=value, with commas between; got {name!r}.")
    plain = {"true": True, "false": False, "none": None}.get(value.lower(), value)
    try:
        return key, ast.literal_eval(value) if plain is value else plain
    except (SyntaxError, ValueError):
        return key, value
