"""What a run is: an environment, a method by its name, and settings that tell methods apart."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from hpml.marl.find import short_names


@dataclass(frozen=True)
class Run:
    """A run folder as it lies there.

    - `name`: the folder. `environment`: its short name where it has one. `method`: its name in the report.
    - `asked`: the environment steps of each seed that it was asked for; `batch`: those of one update.
    - `settings`: everything that says how it learns, flat. `versions`: what it was started with, the first time.
    - `restarted`: whether a later start had other versions.
    - `parts`: the Parquet files as DuckDB takes them.
    """

    name: str
    environment: str
    method: str
    algo: str
    projection: str
    seeds: tuple[int, ...]
    asked: int
    batch: int
    settings: Mapping[str, Any]
    versions: Mapping[str, str]
    restarted: bool
    parts: tuple[str, ...]

    @property
    def projected(self) -> bool:
        """Whether the actors' update is split."""
        return self.projection != "none"


def method_name(config: Mapping[str, Any]) -> str:
    """A method's name from its config, as the suites write names: HPML-MAPPO (graph, paper)."""
    algo = str(config["algo"]).upper()
    if config.get("projection", "none") == "none":
        return algo
    more = [str(config["projection"])]
    more += ["paper"] if config.get("projection_preset") == "paper" else []
    more += [str(config["residual"])] if config.get("residual", "drop") != "drop" else []
    return f"HPML-{algo} ({', '.join(more)})"


def distinct(runs: tuple[Run, ...]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """The runs, with those that learn otherwise than the rest of their cell under a name of their own."""
    cells: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        cells.setdefault((run.environment, run.method.casefold()), []).append(run)
    spelt = {run.method.casefold(): run.method for run in reversed(runs)}
    kept, notes = [], []
    for (environment, _), members in cells.items():
        kinds = Counter({_key(run): 0 for run in members})
        for run in members:
            kinds[_key(run)] += len(run.seeds)
        first = kinds.most_common(1)[0][0]
        main = next(run for run in members if _key(run) == first)
        for run in members:
            name = spelt[run.method.casefold()]
            if _key(run) != first:
                changed = _changes(main.settings, run.settings)
                name = f"{name} [{', '.join(changed[:3])}]"
                notes.append(
                    f"{run.name} has other settings than the other {spelt[run.method.casefold()]} runs of "
                    f"{environment} ({', '.join(changed)}): it is shown as a method of its own."
                )
            kept.append(replace(run, method=name))
    return tuple(kept), tuple(notes)


def environment_name(full: str) -> str:
    """The short name of an environment where it has one, options kept."""
    plain, colon, options = full.partition(":")
    return _shortened().get(plain, plain) + colon + options


@cache
def _shortened() -> dict[str, str]:
    return {long: name for name, long in short_names().items() if long.startswith("meltingpot/")}


def _key(run: Run) -> str:
    return json.dumps(dict(run.settings), sort_keys=True, default=str)


def _changes(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    names = dict.fromkeys([*first, *other])
    return [f"{name}={other.get(name)}" for name in names if first.get(name) != other.get(name)]
