"""Where the residual is: by sample, coordinate and agent, and in a plane to draw it in (`cor:pythag`)."""

import numpy as np

from hpml.diagnosis.result import BlockShare, CoordinateShare, Plane
from hpml.diagnostics.conventions import leading_axes
from hpml.geometry.metric import Euclidean, Metric
from hpml.record.samples import SampleData

LISTED = 12  # coordinates that are listed


def residual_shares(R: np.ndarray, F: np.ndarray, X: np.ndarray, w: np.ndarray, metric: Metric) -> np.ndarray:
    """|R|^2 over the mean of |F|^2."""
    whole = float(w @ np.asarray(metric.inner(F, F, X)))
    return np.asarray(metric.inner(R, R, X)) / whole if whole > 0 else np.zeros(len(X))


def coordinate_energies(data: SampleData, F: np.ndarray, direction: np.ndarray, w: np.ndarray, metric: Metric):
    """Each coordinate's part of E|F|_M^2 and E|R|_M^2; from two estimates without their noise."""
    a, b = data.field if data.field.ndim == 3 else (F, F)

    def parts(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.maximum(w @ (np.asarray(metric.lower(left, data.points)) * right), 0.0)

    return parts(a, b), parts(a - direction, b - direction)


def block_shares(data: SampleData, of_field: np.ndarray, of_residual: np.ndarray) -> tuple[BlockShare, ...]:
    """The energies by agent."""
    whole, turning = max(float(of_field.sum()), 1e-300), max(float(of_residual.sum()), 1e-300)
    found, start = [], 0
    for name, size in data.blocks.items():
        piece = slice(start, start + size)
        own, rest = float(of_field[piece].sum()), float(of_residual[piece].sum())
        share = rest / own if own > 0 else 0.0
        found.append(BlockShare(name, start, size, own / whole, rest / turning, share))
        start += size
    return tuple(found)


def coordinate_shares(data: SampleData, of_field: np.ndarray, of_residual: np.ndarray) -> tuple[CoordinateShare, ...]:
    """The coordinates with the largest residual first."""
    whole, turning = max(float(of_field.sum()), 1e-300), max(float(of_residual.sum()), 1e-300)
    order = np.argsort(-of_residual, kind="stable")[:LISTED]
    return tuple(
        CoordinateShare(data.names[c], float(of_residual[c]) / turning, float(of_field[c]) / whole) for c in order
    )


def drawing_plane(X: np.ndarray, F: np.ndarray, direction: np.ndarray, metric: Metric, names: tuple[str, ...]) -> Plane:
    """Two coordinates to draw in: the given ones where there are two, else the leading principal axes."""
    whiten = (lambda v: np.asarray(metric.whiten(v))) if metric.constant else (lambda v: v)
    centre = X.mean(0)
    Y = whiten(X - centre)
    d = Y.shape[1]
    variance = max(float((Y**2).sum()), 1e-300)
    if d <= 2:
        axes = np.eye(2)[:, :d]
        titles = (names[0], names[1] if d == 2 else "")
        explained = (Y**2).sum(0) @ axes.T / variance
        if isinstance(metric, Euclidean):  # the caller's own coordinates can be drawn as they are
            centre, Y = np.zeros(d), X
    else:
        axes = leading_axes(Y, 2)
        explained = ((Y @ axes.T) ** 2).sum(0) / variance
        first, second = (f"principal axis {k + 1} ({100 * explained[k]:.0f} % of the spread)" for k in range(2))
        titles = (first, second)
    return Plane(
        points=Y @ axes.T,
        field=whiten(F) @ axes.T,
        direction=whiten(direction) @ axes.T,
        residual=whiten(F - direction) @ axes.T,
        centre=centre,
        axes=axes,
        explained=explained,
        names=titles,
    )


def spread_dimension(X: np.ndarray) -> float:
    """In how many directions the points spread, (sum v)^2 / sum v^2 over the variances v of the principal axes."""
    Y = X - X.mean(0)
    gram = Y.T @ Y if Y.shape[1] <= len(Y) else Y @ Y.T
    squares = float((gram**2).sum())
    return float(np.trace(gram) ** 2 / squares) if squares > 0 else 0.0
