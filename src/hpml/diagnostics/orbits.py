"""Orbits of runs: windowed diameter, path length, distance, average (`app:exp_interpretable_details`).

Points come as a run has them: (steps + 1, starts, d), and each start is an orbit of its own.
"""

from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.ndimage import maximum_filter1d
from scipy.spatial.distance import cdist

from hpml.geometry.arrays import Array, as_finite

Orbits = Float[np.ndarray, "time s d"]

ROWS = 512  # rows of a distance matrix held at once


def orbit_diameter(points: Any, window: int = 100) -> Float[np.ndarray, " s"]:
    """The largest distance between two of each orbit's last `window` points (of all, where there are fewer)."""
    X = as_orbits(points, window)[-window:]
    return np.array([_diameter(X[:, k]) for k in range(X.shape[1])])


def windowed_diameters(points: Any, window: int = 100) -> Float[np.ndarray, "windows s"]:
    """The largest distance between two points of every window of `window` points in a row; row t starts at point t.

    Pairs are taken lag by lag, each lag with a running maximum over the pairs that lie inside a window: the cost is
    steps x window instead of steps x window^2.
    """
    X = as_orbits(points, window)
    width = min(window, len(X))
    largest = np.zeros((len(X) - width + 1, X.shape[1]))
    for lag in range(1, width):
        distances = np.linalg.norm(X[lag:] - X[:-lag], axis=-1)
        span = width - lag  # pairs of this lag in one window
        # Origin -(span // 2) turns the centred filter into one that looks ahead.
        ahead = maximum_filter1d(distances, span, axis=0, origin=-(span // 2), mode="nearest")
        np.maximum(largest, ahead[: len(largest)], out=largest)
    return largest


def path_length(points: Any) -> Float[np.ndarray, " s"]:
    """How far each orbit went in all, step by step."""
    return np.linalg.norm(np.diff(as_orbits(points), axis=0), axis=-1).sum(0)


def distance_to(points: Any, target: Float[Array, " d"]) -> Float[np.ndarray, "time s"]:
    """Each point's distance to one place, such as the game's equilibrium."""
    X, z = as_orbits(points), as_finite(target, "target")
    if z.shape != X.shape[-1:]:
        raise ValueError(f"target must have shape ({X.shape[-1]},) like the points, got {z.shape}.")
    return np.linalg.norm(X - z, axis=-1)


def average_iterate(points: Any) -> Orbits:
    """The mean of each orbit's points so far; the last row is the average of the whole orbit."""
    X = as_orbits(points)
    return np.cumsum(X, axis=0) / np.arange(1, len(X) + 1)[:, None, None]


def as_orbits(points: Any, window: int = 2) -> Orbits:
    """The points in float64, or a `ValueError` where they are no orbits or the window holds no pair."""
    X = as_finite(points, "points")
    if X.ndim != 3 or len(X) < 1:
        raise ValueError(f"points must have shape (steps + 1, starts, d), got {X.shape}: one orbit is points[:, None].")
    if window < 2:
        raise ValueError(f"A window needs at least two points, got {window}.")
    return X


def _diameter(X: np.ndarray) -> float:
    """Exact; points close to the centre are skipped as soon as they cannot be an end of the longest chord."""
    radius = np.linalg.norm(X - X.mean(0), axis=1)
    order = np.argsort(-radius)
    X, radius = X[order], radius[order]
    longest = 0.0
    for start in range(0, len(X), ROWS):
        if radius[start] + radius[0] <= longest:
            break
        longest = max(longest, float(cdist(X[start : start + ROWS], X).max()))
    return longest
