"""Scores as a table: a row a run (a seed), a column a task (a scenario), NaN where a run is missing.

Tasks may have different numbers of runs. Every function takes tables with more axes in front, so that a thousand
resamples of a table are one array.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

Table = Float[np.ndarray, "*batch runs tasks"]


def as_scores(scores: Any, name: str = "scores") -> Float[np.ndarray, "*batch runs tasks"]:
    """Numbers as a table of runs by tasks; one column alone is one task."""
    table = np.asarray(scores, np.float64)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim < 2 or 0 in table.shape[-2:]:
        raise ValueError(f"{name} must be a table of runs by tasks with at least one of each, got {table.shape}.")
    if np.isinf(table).any():
        raise ValueError(f"{name} hold an infinite number: use NaN for a run that is missing.")
    return table


def table_of(runs: Mapping[str, Any], tasks: tuple[str, ...] | None = None) -> Float[np.ndarray, "runs tasks"]:
    """A table from the scores of each task, however many runs each has; NaN fills the rest."""
    names = tuple(runs) if tasks is None else tasks
    columns = [np.asarray(runs.get(name, ()), np.float64).ravel() for name in names]
    table = np.full((max([1, *(len(column) for column in columns)]), len(names)), np.nan)
    for column, values in enumerate(columns):
        table[: len(values), column] = values
    return table


def counts(scores: Float[np.ndarray, "*batch runs tasks"]) -> Int[np.ndarray, "*batch tasks"]:
    """The runs of each task."""
    return np.isfinite(scores).sum(-2)


def task_means(scores: Float[np.ndarray, "*batch runs tasks"]) -> Float[np.ndarray, "*batch tasks"]:
    """The mean over the runs of each task, NaN where a task has none."""
    n = counts(scores)
    total = np.where(np.isfinite(scores), scores, 0.0).sum(-2)
    return np.where(n > 0, total / np.maximum(n, 1), np.nan)


def task_variances(scores: Float[np.ndarray, "*batch runs tasks"]) -> Float[np.ndarray, "*batch tasks"]:
    """The variance over the runs of each task with n - 1 below, NaN where a task has fewer than two."""
    n = counts(scores)
    away = np.where(np.isfinite(scores), scores - task_means(scores)[..., None, :], 0.0)
    return np.where(n > 1, (away**2).sum(-2) / np.maximum(n - 1, 1), np.nan)


def compact(scores: Float[np.ndarray, "*batch runs tasks"]) -> Float[np.ndarray, "*batch runs tasks"]:
    """The same runs with the missing ones last in every column."""
    order = np.argsort(~np.isfinite(scores), axis=-2, kind="stable")
    return np.take_along_axis(scores, order, -2)


def shared_tasks(scores: Mapping[str, Any]) -> Bool[np.ndarray, " tasks"]:
    """The tasks of which every method has a run: averages over other tasks are not comparable between methods."""
    if not scores:
        raise ValueError("There are no methods: give at least one table of scores.")
    tables = {name: as_scores(table, f"scores of {name}") for name, table in scores.items()}
    widths = {table.shape[-1] for table in tables.values()}
    if len(widths) > 1:
        raise ValueError(f"Every method must have the same tasks in the same order, got {sorted(widths)} columns.")
    return np.all([counts(table) > 0 for table in tables.values()], axis=0)
