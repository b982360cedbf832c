"""The statistics of a report, computed once: scales, averages over scenarios, and each method against its baseline."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpml.report.sweep.study import Cell, Method, Study
from hpml.statistics.aggregate import IQM, MEAN, MEDIAN, standard_error
from hpml.statistics.cautions import USUAL, claim, seeds_caution
from hpml.statistics.compare import Difference, Improvement, difference, probability_of_improvement
from hpml.statistics.curves import Band, performance_profile
from hpml.statistics.interval import Estimate, estimate
from hpml.statistics.normalise import Scale, paper_scale, scale_cautions
from hpml.statistics.scores import counts, shared_tasks, task_means

ZERO = 1e-9  # of a return that is nothing
MEASURES = {"mean": MEAN, "interquartile mean": IQM, "median": MEDIAN}


@dataclass(frozen=True)
class Verdict:
    """One method against its baseline in one scenario, in the scenario's own units.

    `word` is better, worse, likely better, likely worse, or none: the words "likely" stand where Welch's interval
    leaves out zero but the exact test does not reach 5 %, often because so few seeds cannot.
    """

    method: str
    against: str
    environment: str
    seeds: tuple[int, int]
    difference: Difference
    chance: Improvement

    @property
    def word(self) -> str:
        """The verdict, never more than the interval and the test say."""
        if not self.difference.settled:
            return "none"
        side = "better" if self.difference.value > 0 else "worse"
        chance = self.chance
        agrees = chance.value > 0.5 if side == "better" else chance.value < 0.5
        return side if agrees and chance.p <= USUAL else f"likely {side}"

    @property
    def words(self) -> str:
        """The verdict in words."""
        few = min(self.seeds)
        if self.word != "none":
            return self.word
        return f"no difference that {few} seed{'s' * (few != 1)} can show"


@dataclass(frozen=True)
class Block:
    """Averages over scenarios that every method of the block has: what may be compared."""

    environments: tuple[str, ...]
    methods: tuple[str, ...]
    estimates: Mapping[str, Mapping[str, Estimate]]
    profiles: Mapping[str, Band]


@dataclass(frozen=True)
class Overall:
    """One method against its baseline over the scenarios that both have, on the normalised scale."""

    method: str
    against: str
    difference: Difference
    chance: Improvement

    @property
    def words(self) -> str:
        """What may be said, in a sentence or two."""
        return claim(self.method, self.against, self.difference, self.chance)


@dataclass(frozen=True)
class Analysis:
    """All numbers of the report.

    - `raw`, `collective`, `normalised`: {method: (seeds, scenarios)}.
    - `blocks`: averages over all scenarios for the methods that have them all, and over those that all methods have.
    - `verdicts`: by method and scenario; `later`: those of the second comparison, after more steps.
    - `overall`: by method.
    - `cautions`: what so few seeds cannot show, and every other warning.
    """

    study: Study
    scale: Scale
    raw: Mapping[str, np.ndarray]
    collective: Mapping[str, np.ndarray]
    normalised: Mapping[str, np.ndarray]
    blocks: tuple[Block, ...]
    verdicts: Mapping[tuple[str, str], Verdict]
    later: Mapping[tuple[str, str], Verdict]
    overall: Mapping[str, Overall]
    cautions: tuple[str, ...]

    def mean(self, table: Mapping[str, np.ndarray], method: str) -> tuple[np.ndarray, np.ndarray]:
        """A method's means and standard errors, a scenario each."""
        scores = table[method]
        return task_means(scores), np.array([standard_error(column) for column in scores.T])


def analyse(study: Study, resamples: int = 2000) -> Analysis:
    """All statistics of the study."""
    raw, collective = study.table("final"), study.table("collective")
    scale = paper_scale(raw)
    normalised = {name: scale.apply(table) for name, table in raw.items()}
    verdicts: dict[tuple[str, str], Verdict] = {}
    later: dict[tuple[str, str], Verdict] = {}
    overall = {}
    for method in study.methods:
        base = study.baseline(method)
        if base is None:
            continue
        verdicts |= _verdicts(study.cells, method, base, resamples)
        later |= _verdicts(study.later, method, base, resamples)
        tables = _scaled(normalised[method.name]), _scaled(normalised[base.name])
        chance = probability_of_improvement(*tables, resamples=resamples)
        if chance.tasks:
            overall[method.name] = Overall(method.name, base.name, difference(*tables), chance)
    cautions = (
        *seeds_caution(raw, study.environments),
        *scale_cautions(raw, scale, study.environments),
        *_silent(study, raw),
        *_unequal(study),
        *_unchanged(study),
    )
    blocks = _blocks(study, normalised, resamples)
    return Analysis(study, scale, raw, collective, normalised, blocks, verdicts, later, overall, cautions)


def _silent(study: Study, raw: Mapping[str, np.ndarray]) -> list[str]:
    """Scenarios in which every final return is 0, so that it cannot tell methods apart."""
    said = []
    for place, environment in enumerate(study.environments):
        values = np.concatenate([table[:, place] for table in raw.values()])
        values = values[np.isfinite(values)]
        if not len(values) or np.abs(values).max() >= ZERO:
            continue
        names = [method.name for method in study.methods]
        trained, lost = (
            np.concatenate([study.values(environment, name, column) for name in names])
            for column in ("trained", "exploitability")
        )
        most = np.nanmax(np.abs(trained), initial=0.0)
        why = "the agents' returns add up to nothing, or nobody got anything, neither there nor in training at the end"
        if most >= ZERO:
            why = f"nobody got anything in the last evaluations, though in training at the end (at most {most:.2g})"
        look = [*(["exploitability"] if np.isfinite(lost).any() else []), "circulation", "switches"]
        said.append(
            f"On {environment} every final return is 0: {why}. It cannot tell methods apart there; look at "
            f"{', '.join(look[:-1])} and {look[-1]}."
        )
    return said


def _unequal(study: Study) -> list[str]:
    """Scenarios whose methods were watched or run otherwise: final returns of fewer evaluations, other devices."""
    said = []
    for environment in study.environments:
        cells = {method.name: study.cells.get((environment, method.name)) for method in study.methods}
        looked = _by(
            {name: max(1, round(float(cell.values["evaluations"].mean()))) for name, cell in cells.items() if cell}
        )
        if len(looked) > 1:
            told = "; ".join(f"{count}: {', '.join(names)}" for count, names in sorted(looked.items()))
            said.append(f"On {environment} final returns are means of so many evaluations: {told}. Fewer are noisier.")
        runs = [run for run in study.found.runs if run.environment == environment and "device" in run.versions]
        devices = _by({run.method: run.versions["device"] for run in runs})
        if len(devices) > 1:
            told = "; ".join(f"{device}: {', '.join(names)}" for device, names in devices.items())
            said.append(f"On {environment} not all methods ran on the same device ({told}).")
    return said


def _by(values: Mapping[str, Any]) -> dict[Any, list[str]]:
    """The names of each value."""
    found: dict[Any, list[str]] = {}
    for name, value in values.items():
        found.setdefault(value, []).append(name)
    return found


def _unchanged(study: Study) -> list[str]:
    """Methods whose projection changed nothing at all: every seed has exactly the returns of the baseline."""
    said = []
    for method in study.methods:
        base = study.baseline(method) if method.projected else None
        if base is None:
            continue
        same = []
        for environment in study.environments:
            own, other = study.cells.get((environment, method.name)), study.cells.get((environment, base.name))
            if own is None or other is None or own.seeds != other.seeds:
                continue
            if np.ptp(own.values["final"]) == 0:  # a constant return says nothing
                continue
            if all(np.array_equal(own.values[name], other.values[name], True) for name in ("evaluated", "trained")):
                same.append(environment)
        if same:
            said.append(
                f"{method.name} has exactly the returns of {base.name} on {', '.join(same)}: the projection changed "
                "nothing there, as when a run ends before its history is full."
            )
    return said


def _scaled(table: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(table), table, np.nan)


def _verdicts(
    cells: Mapping[tuple[str, str], Cell], method: Method, base: Method, resamples: int
) -> dict[tuple[str, str], Verdict]:
    """A method against its baseline in every scenario that both have."""
    found = {}
    for environment in [name for name, own in cells if own == method.name and (name, base.name) in cells]:
        x, y = (cells[environment, name].values["final"][:, None] for name in (method.name, base.name))
        seeds = int(counts(x)[0]), int(counts(y)[0])
        if min(seeds):
            chance = probability_of_improvement(x, y, resamples=resamples)
            found[method.name, environment] = Verdict(
                method.name, base.name, environment, seeds, difference(x, y), chance
            )
    return found


def _blocks(study: Study, normalised: Mapping[str, np.ndarray], resamples: int) -> tuple[Block, ...]:
    """All scenarios with the methods that have them all, and, where that leaves methods out, what all have."""
    usable = np.array([any(np.isfinite(table[:, k]).any() for table in normalised.values()) for k in _range(study)])
    if not usable.any():
        return ()
    whole = [name for name, table in normalised.items() if (counts(table) > 0)[usable].all()]
    shared = shared_tasks(normalised) & usable
    asked = []
    if whole:
        asked.append((usable, whole))
    if shared.any() and len(whole) < len(normalised):
        asked.append((shared, list(normalised)))
    return tuple(_block(study, normalised, kept, methods, resamples) for kept, methods in asked)


def _range(study: Study) -> range:
    return range(len(study.environments))


def _block(
    study: Study, normalised: Mapping[str, np.ndarray], kept: np.ndarray, methods: list[str], resamples: int
) -> Block:
    tables = {name: normalised[name][:, kept] for name in methods}
    return Block(
        tuple(name for name, keep in zip(study.environments, kept, strict=True) if keep),
        tuple(methods),
        {
            name: {word: estimate(table, measure, resamples=resamples) for word, measure in MEASURES.items()}
            for name, table in tables.items()
        },
        {name: performance_profile(table, resamples=resamples) for name, table in tables.items()},
    )
