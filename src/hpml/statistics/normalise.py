"""Scores of different scenarios on one scale, so that they can be averaged.

The paper's scale (`tab:meltingpot_summary`): in each scenario the method with the lowest mean final return is 0 and the
one with the highest is 100. It is relative: another method in the report moves everybody's numbers, and the worst
method scores 0 however good it is. Fixed anchors (say random play and the best known return) do not have this fault.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from hpml.statistics.scores import as_scores, shared_tasks, task_means, task_variances

TIE = 1e-12  # a range this much smaller than the numbers themselves is rounding
PAPER_WORDS = (
    "Normalised return: in each scenario the method of this report with the lowest mean final return is 0 and the one "
    "with the highest is 100; every run is moved by the same straight line. Adding or leaving out a method changes it, "
    "and intervals hold the two anchors fixed."
)
FIXED_WORDS = "Normalised return: {low} is 0 and {high} is 100 in each scenario; runs may lie below 0 or above 100."


@dataclass(frozen=True)
class Scale:
    """A straight line for each task: `low` becomes 0 and `high` becomes 100.

    - `low`, `high` (tasks,): raw scores; where they are equal the task has no scale, and its scores become NaN.
    - `words`: the scale in words, to print beside the numbers.
    """

    low: Float[np.ndarray, " tasks"]
    high: Float[np.ndarray, " tasks"]
    words: str

    @property
    def width(self) -> Float[np.ndarray, " tasks"]:
        """Raw scores from 0 to 100, NaN where the anchors are equal."""
        size = np.maximum(np.abs(self.low), np.abs(self.high))
        apart = np.abs(self.high - self.low)
        return np.where(apart > TIE * np.where(size > 0, size, 1.0), self.high - self.low, np.nan)

    def apply(self, scores: Any) -> Float[np.ndarray, "*batch runs tasks"]:
        """A table of raw scores (..., runs, tasks) on this scale."""
        table = as_scores(scores)
        if table.shape[-1] != len(self.low):
            raise ValueError(f"The scale has {len(self.low)} tasks and the scores have {table.shape[-1]}.")
        return 100.0 * (table - self.low) / self.width


def paper_scale(scores: Mapping[str, Any]) -> Scale:
    """The paper's scale over the methods given, from raw final returns {method: (runs, tasks)}.

    Methods without a run of a task have no part in its anchors. A task where all means are equal (a tie, or a single
    method) has no scale.
    """
    shared_tasks(scores)
    means = np.array([task_means(as_scores(table)) for table in scores.values()])
    low = np.where(np.isnan(means), np.inf, means).min(0)
    high = np.where(np.isnan(means), -np.inf, means).max(0)
    there = np.isfinite(low)
    return Scale(np.where(there, low, np.nan), np.where(there, high, np.nan), PAPER_WORDS)


def fixed_scale(low: Any, high: Any, names: tuple[str, str] = ("random play", "the best known return")) -> Scale:
    """A scale from anchors that do not depend on the methods compared, as rliable has it (times 100)."""
    lower, upper = np.atleast_1d(np.asarray(low, np.float64)), np.atleast_1d(np.asarray(high, np.float64))
    if lower.shape != upper.shape or lower.ndim != 1:
        raise ValueError(
            f"Anchors must be one low and one high number for each task, got {lower.shape}, {upper.shape}."
        )
    if not (lower < upper).all():
        raise ValueError("Every task's low anchor must lie below its high anchor.")
    return Scale(lower, upper, FIXED_WORDS.format(low=names[0], high=names[1]))


def scale_cautions(scores: Mapping[str, Any], scale: Scale, tasks: Sequence[str]) -> tuple[str, ...]:
    """Where the scale says little, a sentence each: no scale at all, or anchors no farther apart than noise.

    Anchors are within noise when the best and the worst mean are closer than two standard errors of their difference.
    """
    tables = {name: as_scores(table) for name, table in scores.items()}
    means = np.array([task_means(table) for table in tables.values()])
    errors = np.array(
        [np.sqrt(task_variances(table) / np.maximum(np.isfinite(table).sum(-2), 1)) for table in tables.values()]
    )
    said = []
    for column, task in enumerate(tasks):
        here = means[:, column]
        if np.isnan(here).all():
            continue
        if np.isnan(scale.width[column]):
            why = "one method only" if np.isfinite(here).sum() == 1 else "all methods have the same mean"
            said.append(f"{task} has no normalised return ({why}) and is left out of averages over scenarios.")
            continue
        worst, best = int(np.nanargmin(here)), int(np.nanargmax(here))
        noise = float(np.hypot(errors[worst, column], errors[best, column]))
        if here[best] - here[worst] < 2.0 * noise:
            said.append(
                f"On {task} the best and the worst method are closer than two standard errors: normalising stretches "
                "that noise to the whole of 0 to 100."
            )
    return tuple(said)
