"""The results of a report as plain tables: what the statistics, the page and the exports start from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import numpy as np
from jaxtyping import Float

from hpml.statistics.normalise import Scale, paper_scale
from hpml.statistics.scores import shared_tasks


@dataclass(frozen=True)
class Track:
    """The evaluations of one run: `steps` (k,) so far, and each metric's values (k,) by its name."""

    steps: np.ndarray
    metrics: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Results:
    """Raw final returns of methods on scenarios, and what goes with them.

    - `scenarios`: names in the order of the columns; `columns`: their short heads, the names where not given.
    - `final` {method: (runs, scenarios)}: raw final returns, NaN where a run is missing; methods in the order of rows.
    - `seeds` {method: (runs, scenarios)}: the seed of each of these runs, NaN where it is missing.
    - `residual` {method: (runs, scenarios)}: the raw residual energy of each run, averaged over training.
    - `steps` {scenario: steps}: environment steps of each run.
    - `tracks` {(scenario, method, seed): evaluations}: for the marl-eval file.
    - `scale`: None for the paper's scale over the methods here.
    """

    scenarios: tuple[str, ...]
    final: Mapping[str, Float[np.ndarray, "runs scenarios"]]
    seeds: Mapping[str, Float[np.ndarray, "runs scenarios"]] = field(default_factory=dict)
    residual: Mapping[str, Float[np.ndarray, "runs scenarios"]] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    tracks: Mapping[tuple[str, str, int], Track] = field(default_factory=dict)
    scale: Scale | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """The rows."""
        return tuple(self.final)

    @property
    def anchors(self) -> Scale:
        """The scale of normalised returns."""
        return paper_scale(self.final) if self.scale is None else self.scale

    @property
    def normalised(self) -> dict[str, np.ndarray]:
        """The final returns from 0 to 100."""
        anchors = self.anchors
        return {method: anchors.apply(table) for method, table in self.final.items()}

    @property
    def scaled(self) -> np.ndarray:
        """The scenarios that have a scale: those that a full average is over."""
        return np.isfinite(self.anchors.width)

    @property
    def shared(self) -> np.ndarray:
        """Those of them where every method has a run: an average over these can be compared between all methods."""
        return self.scaled & shared_tasks(self.final)

    def head(self, scenario: str) -> str:
        """A scenario's short name."""
        return self.columns.get(scenario, scenario)

    def only(self, methods: Sequence[str] | None = None, scenarios: Sequence[str] | None = None) -> "Results":
        """The same results for some methods and some scenarios; the paper's scale is then over these methods."""
        rows = self.methods if methods is None else tuple(methods)
        names = self.scenarios if scenarios is None else tuple(scenarios)
        _known(rows, self.methods, "method")
        _known(names, self.scenarios, "scenario")
        at = [self.scenarios.index(name) for name in names]
        tables = [
            {method: table[method][:, at] for method in rows if method in table}
            for table in (self.final, self.seeds, self.residual)
        ]
        scale = self.scale
        if scale is not None:
            scale = Scale(scale.low[at], scale.high[at], scale.words)
        tracks = {key: track for key, track in self.tracks.items() if key[0] in names and key[1] in rows}
        return replace(
            self, scenarios=names, final=tables[0], seeds=tables[1], residual=tables[2], tracks=tracks, scale=scale
        )


def _known(asked: Sequence[str], there: Sequence[str], what: str) -> None:
    for name in asked:
        if name not in there:
            near = get_close_matches(name, there, n=3, cutoff=0.4)
            raise ValueError(
                f'There is no {what} "{name}" in the results; near: {", ".join(near) or ", ".join(there)}.'
            )
