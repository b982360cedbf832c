"""A suite: environments x methods x seeds, read from a short TOML file in which every mistake is named.

name = "quick"
steps = 50_000
seeds = 3
environments = ["stag_hunt", "climbing"]
[train]                  # options of `hpml train` for all runs
[methods.mappo]          # a method: a label, and options of `hpml train`
[scenario.climbing]      # one environment: steps, methods = [...], and options that take the place of those above
[tune]                   # see tune.py
"""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hpml.experiment.build import algorithm_names
from hpml.experiment.sweep import fields
from hpml.marl.find import resolve

SUITES = Path(__file__).with_name("suites")
TOP = ("name", "about", "steps", "seeds", "first_seed", "environments", "methods", "train", "scenario", "tune", "asked")


@dataclass(frozen=True)
class Method:
    """What is compared: a `key` for folders, a `label` for people, and options of `hpml train`."""

    key: str
    label: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Scenario:
    """One environment's own `steps` and `seeds` (0: the suite's), `methods` (none: all), options of `hpml train`."""

    steps: int = 0
    seeds: int = 0
    methods: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tune:
    """What `--tune` tries: `grid` has the options of every trial for each method, a list of equal length for all."""

    seeds: tuple[int, ...]
    steps: int
    grid: Mapping[str, tuple[Mapping[str, Any], ...]]


@dataclass(frozen=True)
class Suite:
    """Environments x methods x seeds. `text` is the file, kept beside the results; `fixed` options win over its own."""

    name: str
    steps: int
    seeds: int
    first_seed: int
    environments: tuple[str, ...]
    methods: tuple[Method, ...]
    train: Mapping[str, Any] = field(default_factory=dict)
    scenarios: Mapping[str, Scenario] = field(default_factory=dict)
    tune: Tune | None = None
    text: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)

    def scenario(self, environment: str) -> Scenario:
        """What an environment has of its own."""
        return self.scenarios.get(environment, Scenario())

    def methods_of(self, environment: str) -> tuple[Method, ...]:
        """The methods that an environment is trained with."""
        own = self.scenario(environment).methods
        return tuple(method for method in self.methods if not own or method.key in own)

    def named(self, only: Sequence[str]) -> dict[str, list[str]]:
        """Environments ("env") and keys of methods ("method") that conditions such as "env=clean_up" leave."""
        known = {"env": list(self.environments), "method": [method.key for method in self.methods]}
        wanted = {key: list(names) for key, names in known.items()}
        for condition in only:
            key, equals, names = condition.partition("=")
            if key not in known or not equals or not names:
                raise ValueError(
                    f"--only takes env=NAME and method=NAME, with commas between names; got {condition!r}."
                )
            chosen = []
            for name in names.split(","):
                same = [each for each in known[key] if each == name or (key == "env" and _same(each, name))]
                if not same:
                    near = get_close_matches(name, known[key]) or known[key]
                    raise ValueError(f"The suite {self.name} has no {condition!r}: did you mean {', '.join(near)}?")
                chosen += same
            wanted[key] = [name for name in wanted[key] if name in chosen]
        return wanted


def suite_names() -> tuple[str, ...]:
    """The suites that come with the package."""
    return tuple(sorted(path.stem for path in SUITES.glob("*.toml")))


def find_suite(given: str) -> Path:
    """A suite's file: a path, or the name of one that comes with the package."""
    path = Path(given)
    if path.is_file():
        return path
    if given in suite_names():
        return SUITES / f"{given}.toml"
    near = get_close_matches(path.stem, suite_names()) or list(suite_names())
    raise ValueError(f"There is no suite {given!r}: give a file, or did you mean {', '.join(near)}?")


def read_suite(given: str) -> Suite:
    """The suite in a file; a `ValueError` names what is wrong with it."""
    path = find_suite(given)
    try:
        text = path.read_text()
        return parse_suite(text)
    except (UnicodeDecodeError, ValueError) as error:  # tomllib's errors are of this kind
        raise ValueError(f"{path}: {error}") from error


def parse_options(given: Sequence[str]) -> dict[str, Any]:
    """Options of `hpml train` from words such as "evaluate_every=200", with values as a suite's file has them."""
    found: dict[str, Any] = {}
    for word in given:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise ValueError(f"--set takes NAME=VALUE such as evaluate_every=200, got {word!r}.")
        try:
            found[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            found[name] = value  # a text needs no quotes here
    return fields.options(found, "--set")


def parse_suite(text: str) -> Suite:
    """A suite from the text of its file."""
    raw = tomllib.loads(text)
    fields.check_known(raw, TOP, "a suite", "")
    name = fields.text(raw, "name", "the suite")
    if not name or not fields.is_plain(name):
        raise ValueError(f"the suite's name is made of letters, digits, '_', '-' and '.', got {name!r}.")
    steps, seeds = fields.count(raw, "steps", 1), fields.count(raw, "seeds", 1)
    first = fields.count(raw, "first_seed", 0, 0)
    environments = fields.names(raw, "environments", "the suite")
    methods = _methods(raw.get("methods"))
    keys = [method.key for method in methods]
    train = fields.options(fields.table(raw, "train"), "[train]")
    scenarios = {}
    for environment, table in fields.table(raw, "scenario").items():
        if environment not in environments:
            near = get_close_matches(environment, environments) or environments
            raise ValueError(f"[scenario.{environment}] is not in environments: did you mean {', '.join(near)}?")
        scenarios[environment] = _scenario(environment, table, keys)
    folders: dict[str, str] = {}
    for environment in environments:
        other = folders.setdefault(folder_name(environment), environment)
        if other != environment:
            raise ValueError(f"{environment} and {other} would share the folder {folder_name(environment)}.")
    suite = Suite(name, steps, seeds, first, environments, methods, train, scenarios, None, text)
    if "tune" not in raw:
        return suite
    return dataclasses.replace(suite, tune=_tune(fields.table(raw, "tune"), suite))


def folder_name(environment: str) -> str:
    """An environment's folder: its name, with '_' for what folders should not be called."""
    return "".join(c if c.isalnum() or c in "_-=." else "_" for c in environment)


def _same(one: str, other: str) -> bool:
    try:
        return resolve(one) == resolve(other)
    except ValueError:
        return False


def _methods(raw: Any) -> tuple[Method, ...]:
    if isinstance(raw, list) and all(isinstance(each, str) for each in raw):
        raw = {each: {} for each in raw}
    if not isinstance(raw, dict) or not raw:
        raise ValueError("a suite has methods: tables such as [methods.mappo], or a list of algorithms.")
    found = []
    for key, table in raw.items():
        where = f"[methods.{key}]"
        if not isinstance(table, dict):
            raise ValueError(f"{where} must be a table of options, got {table!r}.")
        if not fields.is_plain(key):
            raise ValueError(f"{where}: a method's key is made of letters, digits, '_', '-' and '.'.")
        label = fields.text(table, "label", where, key)
        options = fields.options({name: value for name, value in table.items() if name != "label"}, where)
        if "algo" not in options:
            if key not in algorithm_names():
                near = get_close_matches(key, algorithm_names()) or algorithm_names()
                raise ValueError(f"{where} has no algo, and {key!r} is none: did you mean {', '.join(near)}?")
            options = {"algo": key, **options}
        found.append(Method(key, label, options))
    return tuple(found)


def _scenario(environment: str, table: Any, keys: list[str]) -> Scenario:
    where = f"[scenario.{environment}]"
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table of options, got {table!r}.")
    steps, seeds = fields.count(table, "steps", 1, 0, where), fields.count(table, "seeds", 1, 0, where)
    methods = fields.names(table, "methods", where) if "methods" in table else ()
    for key in methods:
        if key not in keys:
            near = get_close_matches(key, keys) or keys
            raise ValueError(f"{where} has no method {key!r} to choose: did you mean {', '.join(near)}?")
    own = {name: value for name, value in table.items() if name not in ("steps", "seeds", "methods")}
    return Scenario(steps, seeds, methods, fields.options(own, where))


def _tune(raw: dict[str, Any], suite: Suite) -> Tune:
    fields.check_known(raw, ("seeds", "steps", "grid", "methods"), "[tune]", "")
    seeds = raw.get("seeds")
    if not isinstance(seeds, list) or not seeds or any(type(seed) is not int or seed < 0 for seed in seeds):
        raise ValueError(f"[tune] seeds must be a list of seeds such as [1000, 1001], got {seeds!r}.")
    if len(set(seeds)) < len(seeds):
        raise ValueError("[tune] seeds must differ.")
    shared = _grid(fields.table(raw, "grid"), "[tune.grid]")
    own = fields.table(raw, "methods")
    fields.check_known(own, [method.key for method in suite.methods], "[tune.methods]", "method ")
    grids = {
        method.key: _grid(own[method.key], f"[tune.methods.{method.key}]") if method.key in own else shared
        for method in suite.methods
    }
    sizes = {key: len(grid) for key, grid in grids.items()}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{key} {size}" for key, size in sizes.items())
        raise ValueError(f"[tune] every method must have a grid of the same size, or the comparison is unfair: {told}.")
    if 0 in sizes.values() or set(sizes.values()) == {1}:
        raise ValueError("[tune] a grid has at least two trials: write [tune.grid] with lists such as actor_rate.")
    return Tune(tuple(seeds), fields.count(raw, "steps", 1, suite.steps, "[tune]"), grids)


def _grid(table: Any, where: str) -> tuple[Mapping[str, Any], ...]:
    """Every combination of the lists in a table."""
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table of lists, got {table!r}.")
    trials: list[dict[str, Any]] = [{}] if table else []
    for name, values in table.items():
        if not isinstance(values, list) or not values:
            raise ValueError(f"{where} {name} must be a list of values to try, got {values!r}.")
        each = [fields.options({name: value}, where)[name] for value in values]
        if len(set(map(repr, each))) < len(each):
            raise ValueError(f"{where} {name} has a value twice.")
        trials = [{**trial, name: value} for trial in trials for value in each]
    return tuple(trials)
