"""The fields of a suite's file: each known, each of its type, and a sentence where one is not."""

import types
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from hpml.experiment.config import TrainConfig
from hpml.marl.settings import Settings

OWN = {  # options of `hpml train` that the suite itself decides
    "env": "environments stand in the list at the top",
    "steps": "steps stand at the top of the suite or in a [scenario] table",
    "seeds": "seeds stand at the top of the suite or in a [scenario] table",
    "seed": "first_seed stands at the top of the suite",
    "out": "the sweep's folder is given by --out",
    "resume": "a sweep always goes on with what is there",
    "settings": "each setting is an option of its own",
}


def options(given: dict[str, Any], where: str) -> dict[str, Any]:
    """Options of `hpml train`, each known and of its type."""
    hints = {**get_type_hints(TrainConfig), **get_type_hints(Settings)}
    for name in given:
        if name in OWN:
            raise ValueError(f"{where} cannot have {name}: {OWN[name]}.")
    check_known(given, [name for name in hints if name not in OWN], where, "option ")
    return {name: _fitting(value, hints[name], f"{where} {name}") for name, value in given.items()}


def _fitting(value: Any, hint: Any, where: str) -> Any:
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            near = get_close_matches(str(value), get_args(hint)) or get_args(hint)
            raise ValueError(f"{where} cannot be {value!r}: did you mean {', '.join(near)}?")
        return value
    if get_origin(hint) in (Union, types.UnionType):
        hint = get_args(hint)[0]
    if hint is float and type(value) in (int, float):
        return float(value)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "a text in quotes"}
    if type(value) is not hint:
        raise ValueError(f"{where} must be {words.get(hint, 'something else')}, got {value!r}.")
    return value


def check_known(table: Mapping[str, Any], names: Collection[str], where: str, kind: str) -> None:
    """Refuse a name that is not among `names`."""
    for name in table:
        if name not in names:
            near = get_close_matches(name, list(names), n=3) or sorted(names)[:8]
            raise ValueError(f"{where} has no {kind}{name!r}: did you mean {', '.join(near)}?")


def table(raw: dict[str, Any], name: str) -> dict[str, Any]:
    """A table of a table; empty where there is none."""
    found = raw.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} must be a table, written [{name}], got {found!r}.")
    return found


def text(raw: dict[str, Any], name: str, where: str, default: str | None = None) -> str:
    """A text in quotes."""
    found = raw.get(name, default)
    if not isinstance(found, str):
        raise ValueError(f"{where} needs {name} as a text in quotes, got {found!r}.")
    return found


def count(raw: dict[str, Any], name: str, least: int, default: int | None = None, where: str = "the suite") -> int:
    """A whole number of at least `least`."""
    found = raw.get(name, default)
    if name not in raw and default is not None:
        return default
    if type(found) is not int or found < least:
        raise ValueError(f"{where} needs {name} as a whole number of at least {least}, got {found!r}.")
    return found


def names(raw: dict[str, Any], name: str, where: str) -> tuple[str, ...]:
    """A list of names, none of them twice."""
    found = raw.get(name)
    if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{where} needs {name} as a list of names, got {found!r}.")
    twice = next((each for each in found if found.count(each) > 1), None)
    if twice:
        raise ValueError(f"{where} has {twice!r} twice in {name}.")
    return tuple(found)


def is_plain(name: str) -> bool:
    """Whether a folder can have this name anywhere."""
    return bool(name) and not name.startswith(".") and all(c.isalnum() or c in "_-." for c in name)
