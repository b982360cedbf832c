"""Runs as the experiments keep them: the path, what it cost, and the figures that describe it."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from hpml.diagnostics.gaps import stampacchia_gap
from hpml.diagnostics.orbits import orbit_diameter, path_length
from hpml.dynamics.run import Run
from hpml.games.game import exploitability, has_payoffs


@dataclass(frozen=True)
class Trace:
    """One rule from several starts; figures are medians over the starts.

    - `diameter`: the largest distance between two of the last `window` points.
    - `length`: how far the run went in all.
    - `gap`: the Stampacchia gap at the end; `exploitable`: the exploitability there, None without payoffs.
    - `nonpotentiality`: the share of circulation that the rule's projector found, None where there is none.
    """

    name: str
    points: Float[np.ndarray, "times s d"]
    evaluations: Int[np.ndarray, " times"]
    diameter: float
    length: float
    gap: float
    exploitable: float | None
    nonpotentiality: float | None


def trace(name: str, run: Run, window: int, nonpotentiality: float | None = None) -> Trace:
    """The figures of a run."""
    last = run.points[-1]
    return Trace(
        name,
        np.asarray(run.points),
        np.asarray(run.evaluations),
        float(np.median(orbit_diameter(run.points, window))),
        float(np.median(path_length(run.points))),
        float(np.median(stampacchia_gap(run.game, last))),
        float(np.median(exploitability(run.game, last))) if has_payoffs(run.game) else None,
        nonpotentiality,
    )
