"""Samples as they come from a user, checked: points, field, and what else is known about each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from hpml.geometry.arrays import as_finite, as_matrix

LIMIT = 20_000  # samples that a diagnosis takes; more change its numbers by less than its interval
CHECKED = 50_000_000  # numbers that are looked at even where not all samples are used


@dataclass(frozen=True)
class SampleData:
    """Points and field, with the user's labels and names.

    - `points` (n, d), `field` (n, d) or (2, n, d), `weights` (n,) or None.
    - `labels`: one a sample, or None; `blocks`: each agent's name and number of coordinates; `names`: the coordinates'.
    - `rows` (n,): which of the `given` samples these are; `source`: where they come from; `notes`: what was done.
    """

    points: Float[np.ndarray, "n d"]
    field: Float[np.ndarray, "n d"] | Float[np.ndarray, "2 n d"]
    weights: Float[np.ndarray, " n"] | None
    labels: tuple[str, ...] | None
    blocks: Mapping[str, int]
    names: tuple[str, ...]
    rows: Int[np.ndarray, " n"]
    given: int
    source: str
    notes: tuple[str, ...]


def make_samples(
    points: Any,
    field: Any,
    labels: Any = None,
    weights: Any = None,
    blocks: Any = None,
    names: Any = None,
    source: str = "arrays",
    notes: Sequence[str] = (),
    limit: int = LIMIT,
    seed: int = 0,
) -> SampleData:
    """Check what a user gave; more than `limit` samples are thinned to a uniform choice, which a note says."""
    if limit < 2:
        raise ValueError(f"limit must be at least 2, got {limit}.")
    shape, of_field = np.shape(points), np.shape(field)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"points must have shape (n, d), a row for each sample, got {shape}.")
    if len(of_field) not in (2, 3) or of_field[-2:] != shape or (len(of_field) == 3 and of_field[0] != 2):
        raise ValueError(
            f"points has shape {shape} and field {of_field}: field must have a row for each point, (n, d), or be "
            "(2, n, d) for two independent estimates."
        )
    n, d = shape
    if n < 2:
        raise ValueError("there is one sample only: a diagnosis compares at least two, and wants some hundreds.")
    rows = np.arange(n)
    notes = list(notes)
    if n > limit:
        rows = np.sort(np.random.default_rng(seed).choice(n, limit, replace=False))
        notes.append(f"{limit:,} of {n:,} samples are used, chosen uniformly at random.")
    if n > limit and n * d <= CHECKED:  # a sample that is not used may still tell that the file is broken
        points, field = as_matrix(points, "points"), as_finite(field, "field")
    whole = slice(None) if len(rows) == n else rows
    sizes = _blocks(blocks, d)
    X = as_matrix(np.asarray(points)[whole], "points")
    F = as_finite(np.asarray(field)[..., whole, :], "field")
    return SampleData(
        points=X,
        field=F,
        weights=_weights(weights, n, rows),
        labels=_labels(labels, n, rows),
        blocks=sizes,
        names=_names(names, d, sizes),
        rows=rows,
        given=n,
        source=source,
        notes=tuple(notes),
    )


def take(samples: SampleData, rows: Int[np.ndarray, " m"]) -> SampleData:
    """Some of the samples."""
    return replace(
        samples,
        points=samples.points[rows],
        field=samples.field[..., rows, :],
        weights=None if samples.weights is None else samples.weights[rows],
        labels=None if samples.labels is None else tuple(samples.labels[i] for i in rows),
        rows=samples.rows[rows],
    )


def _weights(weights: Any, n: int, rows: np.ndarray) -> np.ndarray | None:
    if weights is None:
        return None
    w = as_finite(weights, "weights")
    if w.shape != (n,):
        raise ValueError(f"weights must have shape ({n},), one for each sample; got {w.shape}.")
    if (w < 0).any() or not (w[rows] > 0).sum() >= 2:
        raise ValueError("weights must not be negative, and at least two samples must count.")
    return None if np.ptp(w[rows]) == 0 else w[rows]


def _labels(labels: Any, n: int, rows: np.ndarray) -> tuple[str, ...] | None:
    if labels is None:
        return None
    if np.ndim(labels) != 1 or len(labels) != n:
        raise ValueError(f"labels must have one entry for each of the {n} samples, got shape {np.shape(labels)}.")
    return tuple(str(labels[i]) for i in rows)


def _blocks(blocks: Any, d: int) -> dict[str, int]:
    if blocks is None:
        return {"all": d}
    if not isinstance(blocks, Mapping):
        blocks = {f"agent {i + 1}": size for i, size in enumerate(np.asarray(blocks).reshape(-1))}
    sizes = {str(name): int(size) for name, size in blocks.items()}
    if min(sizes.values(), default=0) < 1 or sum(sizes.values()) != d:
        raise ValueError(
            f"blocks must say how many of the {d} coordinates each agent has, in order; got {list(sizes.values())}, "
            f"which sum to {sum(sizes.values())}."
        )
    return sizes


def _names(names: Any, d: int, blocks: Mapping[str, int]) -> tuple[str, ...]:
    if names is None and len(blocks) == 1:
        return tuple(f"x{c + 1}" for c in range(d))
    if names is None:
        return tuple(name if size == 1 else f"{name} x{c + 1}" for name, size in blocks.items() for c in range(size))
    found = tuple(str(name) for name in names)
    if len(found) != d:
        raise ValueError(f"names must name the {d} coordinates, got {len(found)}.")
    return found
