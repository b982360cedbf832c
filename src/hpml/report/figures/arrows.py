"""Arrows and paths on a map: plotly has neither, so arrows are small filled shapes in the map's own units."""

from typing import Any

import numpy as np

from hpml.report.figures.layout import Track
from hpml.report.theme import SHADES

GAP = np.full((1, 2), np.nan)


def arrow_traces(
    points: np.ndarray, vectors: np.ndarray, longest: float, reach: float, texts: list[str] | None = None
) -> list[dict[str, Any]]:
    """Arrows centred at `points`, coloured by length on the scale 0 to `longest`, which is drawn `reach` units long.

    Longer ones are drawn at that length: one wild arrow would hide all others.
    """
    length = np.linalg.norm(vectors, axis=1)
    share = np.minimum(length / max(longest, 1e-300), 1.0)
    shade = np.minimum((share * SHADES).astype(int), SHADES - 1)
    shapes = _shapes(points, vectors / np.maximum(length, 1e-300)[:, None], share * reach, reach)
    traces = []
    for level in np.unique(shade[share > 0]):
        x, y = np.concatenate([np.vstack([shape, GAP]) for shape in shapes[(shade == level) & (share > 0)]]).T
        traces.append(_filled(x, y, f"@m{level}"))
    if texts is None:
        texts = [f"length {size:.3g}" for size in length]
    traces.append(_hover(points, texts))
    return traces


def track_traces(track: Track, colour: str, head: float, hover: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """A path with an open circle where it starts, a full one where it ends, and arrow heads `head` units long."""
    path = np.asarray(track.points, float)
    x, y = path.T
    group = {"legendgroup": track.name, "name": track.name}
    # Long paths cross themselves: thinner lines keep them apart.
    stroke = {"color": colour, "width": 2.0 if len(path) <= 300 else 1.4}
    line = {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": stroke} | group
    line |= {"hoverinfo": "x+y+name"} if hover is None else hover
    traces = [line]
    places, aims = _heads(path, head)
    if len(places):
        shapes = _shapes(places, aims, np.full(len(places), head), head * 2.2, barbs=True)
        hx, hy = np.concatenate([np.vstack([shape, GAP]) for shape in shapes]).T
        traces.append(_filled(hx, hy, colour) | group)
    ends = (("@paper", path[:1], "start"), (colour, path[-1:], "end"))
    for fill, place, word in ends:
        marker = {"size": 9, "color": fill, "line": {"color": colour, "width": 2}}
        dot = {"type": "scatter", "mode": "markers", "x": place[:, 0], "y": place[:, 1], "marker": marker}
        traces.append(dot | group | {"text": [f"{track.name}, {word}"], "hoverinfo": "text"})
    return traces


def spacing(points: np.ndarray) -> float:
    """The median distance to the nearest other point, for the length of arrows."""
    points = np.asarray(points, float)[:400]
    distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
    distance[distance == 0] = np.inf
    nearest = distance.min(1)
    nearest = nearest[np.isfinite(nearest)]
    return float(np.median(nearest)) if len(nearest) else 1.0


def _shapes(points: np.ndarray, aims: np.ndarray, lengths: np.ndarray, reach: float, barbs: bool = False) -> np.ndarray:
    """Seven corners an arrow, (n, 7, 2); with `barbs` the head alone."""
    shaft, head, wing = 0.028 * reach, 0.26 * reach, 0.105 * reach
    # Short arrows shrink as a whole, so that a head never is longer than its arrow.
    small = np.minimum(1.0, lengths / (1.5 * head))
    if barbs:
        shaft, head, wing, small = 0.0, float(lengths.max()), 0.42 * float(lengths.max()), np.ones_like(lengths)
    along = np.stack([-lengths / 2, lengths / 2 - small * head, lengths / 2 - small * head, lengths / 2], -1)
    along = along[:, [0, 1, 2, 3, 2, 1, 0]]
    across = np.array([shaft, shaft, wing, 0.0, -wing, -shaft, -shaft])[None] * small[:, None]
    normal = np.stack([-aims[:, 1], aims[:, 0]], -1)
    return points[:, None] + along[..., None] * aims[:, None] + across[..., None] * normal[:, None]


def _heads(path: np.ndarray, head: float) -> tuple[np.ndarray, np.ndarray]:
    steps = np.linalg.norm(np.diff(path, axis=0), axis=1)
    travelled = np.concatenate([[0.0], np.cumsum(steps)])
    total = travelled[-1]
    if not np.isfinite(total) or total < 3 * head:
        return np.empty((0, 2)), np.empty((0, 2))
    stops = np.arange(4 * head, total, max(7 * head, total / 24))
    if not len(stops):
        stops = np.array([total / 2])
    places = np.stack([np.interp(stops, travelled, path[:, axis]) for axis in range(2)], -1)
    behind = np.stack([np.interp(stops - head, travelled, path[:, axis]) for axis in range(2)], -1)
    aims = places - behind
    return places, aims / np.maximum(np.linalg.norm(aims, axis=1), 1e-300)[:, None]


def _filled(x: np.ndarray, y: np.ndarray, colour: str) -> dict[str, Any]:
    # Simplified lines lose corners of small shapes.
    style = {"fill": "toself", "fillcolor": colour, "line": {"color": colour, "width": 0.4, "simplify": False}}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "hoverinfo": "skip", **style}


def _hover(points: np.ndarray, texts: list[str]) -> dict[str, Any]:
    marker = {"size": 12, "color": "rgba(0,0,0,0)"}
    place = {"x": points[:, 0], "y": points[:, 1], "text": texts, "hoverinfo": "text"}
    return {"type": "scatter", "mode": "markers", "marker": marker, **place}
