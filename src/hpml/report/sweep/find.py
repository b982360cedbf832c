"""Runs under the folders that were given: what each was asked for, and what cannot be read and why.

A run is a folder with `config.json` and `metrics/`; it is found at any depth. Runs that chose settings (`tuning/` of a
sweep) are left out unless that folder itself is given. Nothing is written and nothing is deleted.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hpml.experiment.config import MAY_CHANGE, as_used
from hpml.experiment.sweep.place import Place, open_place
from hpml.report.sweep.identity import Run, distinct, environment_name, method_name

NEEDED = ("env", "algo", "seeds", "seed", "steps", "settings")
# Two runs of a cell may differ in these: they say which seeds, and how the run is watched, not how it learns.
WATCHING = MAY_CHANGE | {"seed", "seeds", "evaluate_every", "episodes", "measure", "preset"}
PACKAGES = ("hpml", "source", "jax", "dm-meltingpot", "device")


@dataclass(frozen=True)
class Aside:
    """Something that was not read: which, and the reason in a sentence."""

    name: str
    reason: str


@dataclass(frozen=True)
class Record:
    """What a sweep says about one of its runs: the last outcome and, where it failed, the reason."""

    name: str
    environment: str
    method: str
    attempts: int
    outcome: str
    reason: str


@dataclass(frozen=True)
class Found:
    """All that lies under the folders.

    - `suites`: the suites that sweeps were asked for, by name, as their files have them.
    - `places`: where each was found, to open remote files again.
    """

    runs: tuple[Run, ...]
    aside: tuple[Aside, ...] = ()
    records: tuple[Record, ...] = ()
    suites: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()


def find_runs(folders: Sequence[str]) -> Found:
    """Every run under the folders, or one sentence where there is none."""
    found = [_look(str(folder)) for folder in dict.fromkeys(folders)]
    runs: dict[str, Run] = {}
    for each in found:
        runs.update({run.name: run for run in each.runs})  # one folder may lie in another
    if not runs:
        held = [item for each in found for item in each.aside]
        why = f" ({held[0].name}: {held[0].reason})" if held else ""
        raise ValueError(
            f"There are no runs under {', '.join(map(str, folders))}{why}: give folders that `hpml train` or "
            "`hpml sweep` has written, each with config.json and metrics."
        )
    suites = {name: text for each in found for name, text in each.suites.items()}
    aside = tuple(dict.fromkeys(item for each in found for item in each.aside))
    records = tuple(dict.fromkeys(item for each in found for item in each.records))
    kept, notes = distinct(tuple(runs.values()))
    notes = (*(note for each in found for note in each.notes), *notes)
    return Found(kept, aside, records, suites, notes, tuple(place for each in found for place in each.places))


def _look(folder: str) -> Found:
    remote = "://" in folder
    if not remote and not Path(folder).is_dir():
        above = Path(folder).parent
        near = get_close_matches(Path(folder).name, [each.name for each in above.iterdir()] if above.is_dir() else [])
        hint = f" Did you mean {', '.join(str(above / name) for name in near)}?" if near else ""
        what = "is a file, not a folder" if Path(folder).is_file() else "does not exist"
        raise ValueError(f"{folder} {what}.{hint}")
    place = open_place(folder if remote else str(Path(folder).absolute()))
    names = place.names()
    base = folder if remote else str(Path(folder))
    parts: dict[str, list[str]] = {}
    configs = []
    for name in names:
        parent, _, file = name.rpartition("/")
        if file == "config.json":
            configs.append(parent)
        elif file.endswith(".parquet") and file.removesuffix(".parquet").isdigit():
            run, _, last = parent.rpartition("/")
            if last == "metrics":
                parts.setdefault(run, []).append(name)
    tuned = {run for run in (*configs, *parts) if "tuning" in run.split("/")[:-1]}
    left = f"{len(tuned)} runs under {base}/tuning were left out: they chose settings and are no results."
    runs, aside = [], []
    for name in sorted({*configs, *parts} - tuned):
        shown = f"{base}/{name}" if name else base
        paths = tuple(_address(place, part) for part in parts.get(name, ()))
        try:
            runs.append(_read(place, name, shown, paths))
        except _NotARun:
            continue
        except ValueError as error:
            aside.append(Aside(shown, str(error)))
        except OSError as error:
            aside.append(Aside(shown, (error.strerror or str(error)).lower()))
    records = [record for name in names if _is_record(name) and (record := _record(place, name, base))]
    suites = {
        name.rpartition("/")[2].removesuffix(".toml"): place.read(name) or b""
        for name in names
        if name.endswith(".toml") and name.split("/")[-2:-1] == ["suites"]
    }
    return Found(tuple(runs), tuple(aside), tuple(records), suites, (left,) if tuned else (), (place,))


class _NotARun(Exception):
    """A config.json of some other program."""


def _read(place: Place, name: str, shown: str, parts: tuple[str, ...]) -> Run:
    at = f"{name}/" if name else ""
    text = place.read(f"{at}config.json")
    if text is None:
        raise ValueError("it has metrics but no config.json, so nobody knows what it is")
    try:
        config = json.loads(text)
    except ValueError as error:
        raise ValueError("its config.json is damaged") from error
    if not isinstance(config, dict) or not ({"env", "algo"} & config.keys() or parts):
        raise _NotARun
    absent = [key for key in NEEDED if key not in config]
    if absent:
        raise ValueError(f"its config.json is of another version of hpml: it has no {', '.join(absent)}")
    try:
        batch = int(config["settings"]["environments"]) * int(config["settings"]["rollout"])
        seeds = tuple(range(int(config["seed"]), int(config["seed"]) + int(config["seeds"])))
        asked = -(-int(config["steps"]) // batch) * batch
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"its config.json is of another version of hpml: {error!r}") from error
    if not parts:
        raise ValueError("it has no metrics yet: they are written at its first checkpoint")
    record = _json(place.read(f"{name}.json")) if name else {}
    versions, restarted = _versions(_json(place.read(f"{at}versions.json")))
    flat = {key: value for key, value in as_used(config).items() if key not in WATCHING and key != "settings"}
    return Run(
        name=shown,
        environment=environment_name(str(config["env"])),
        method=str(record.get("label") or method_name(config)),
        algo=str(config["algo"]),
        projection=str(config.get("projection", "none")),
        seeds=seeds,
        asked=asked,
        batch=batch,
        settings=flat | dict(config["settings"]),
        versions=versions,
        restarted=restarted,
        parts=parts,
    )


def _is_record(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    return file.startswith("seeds-") and file.endswith(".json") and "tuning" not in folder.split("/")


def _record(place: Place, name: str, base: str) -> Record | None:
    record = _json(place.read(name))
    if "attempts" not in record:
        return None
    attempts = record["attempts"] if isinstance(record["attempts"], list) else []
    last = attempts[-1] if attempts and isinstance(attempts[-1], dict) else {}
    return Record(
        name=f"{base}/{name.removesuffix('.json')}",
        environment=environment_name(str(record.get("environment", ""))),
        method=str(record.get("label") or record.get("method", "")),
        attempts=len(attempts),
        outcome=str(last.get("outcome", "")),
        reason=str(last.get("reason", "")),
    )


def _versions(stored: Mapping[str, Any]) -> tuple[dict[str, str], bool]:
    starts = [start.get("versions", {}) for start in stored.get("starts", ()) if isinstance(start, dict)]
    picked = [{name: str(start.get(name)) for name in PACKAGES if start.get(name)} for start in starts]
    return (picked[0] if picked else {}), any(start != picked[0] for start in picked)


def _json(text: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(text or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _address(place: Place, name: str) -> str:
    """A file's name as DuckDB gives it back."""
    files = getattr(place, "files", None)
    if files is None:
        return f"{place.address}/{name}"
    path = f"{getattr(place, 'root', '')}/{name}"
    return path if getattr(place, "protocol", "") in ("file", "local") else str(files.unstrip_protocol(path))
