"""Fields and paths in three dimensions, which the reader can turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpml.report.figures.layout import Track, base, colour_of, keys_of
from hpml.report.parts import FigurePart, Panel, Scale


@dataclass(frozen=True)
class Space:
    """A field `vectors` (n, 3) at `points` (n, 3) drawn as cones, and the runs `tracks` (t, 3)."""

    points: np.ndarray | None = None
    vectors: np.ndarray | None = None
    tracks: Sequence[Track] = ()


def space_plot(
    panels: Mapping[str, Space],
    title: str,
    caption: str,
    labels: Sequence[str] = ("x", "y", "z"),
    columns: int = 3,
    longest: float | None = None,
    alt: str = "",
) -> FigurePart:
    """Views side by side, one a key, with cones on one colour scale."""
    fields = [panel.vectors for panel in panels.values() if panel.vectors is not None]
    if longest is None and fields:
        longest = float(max(np.linalg.norm(vectors, axis=1).max() for vectors in fields))
    names = list(dict.fromkeys(track.name for panel in panels.values() for track in panel.tracks))
    asked = {track.name: track.colour for panel in panels.values() for track in panel.tracks}
    colours = {name: colour_of(asked[name], place) for place, name in enumerate(names)}
    drawn = tuple(
        Panel(_spec(panel, labels, colours, longest or 1.0), name if len(panels) > 1 else "", aspect=1.0)
        for name, panel in panels.items()
    )
    return FigurePart(
        figure=drawn,
        caption=caption,
        data=_data(panels, labels),
        title=title,
        alt=alt or f"Views in three dimensions: {', '.join(panels)}.",
        legend=keys_of(names, list(colours.values())),
        scale=Scale("length of the arrow", 0.0, longest or 1.0) if fields else None,
        columns=min(columns, len(panels)),
    )


def _spec(panel: Space, labels: Sequence[str], colours: Mapping[str, str], longest: float) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    if panel.points is not None and panel.vectors is not None:
        x, y, z = np.asarray(panel.points, float).T
        u, v, w = np.asarray(panel.vectors, float).T
        length = np.linalg.norm(panel.vectors, axis=1)
        traces.append(
            {
                "type": "cone",
                **{"x": x, "y": y, "z": z, "u": u, "v": v, "w": w},
                **{"colorscale": "@magnitudes", "cmin": 0.0, "cmax": longest, "showscale": False},
                **{"sizemode": "scaled", "sizeref": 1.1 * float(length.max()) / longest, "anchor": "center"},
                "hovertemplate": "length %{norm:.3g}<extra></extra>",
            }
        )
    for track in panel.tracks:
        path = np.asarray(track.points, float)
        x, y, z = path.T
        shared = {"type": "scatter3d", "legendgroup": track.name, "name": track.name, "hoverinfo": "name"}
        colour = colours[track.name]
        traces.append({"mode": "lines", "x": x, "y": y, "z": z, "line": {"color": colour, "width": 5}, **shared})
        for fill, place in (("@paper", path[:1]), (colour, path[-1:])):
            marker = {"size": 5, "color": fill, "line": {"color": colour, "width": 2}}
            traces.append(
                {"mode": "markers", "x": place[:, 0], "y": place[:, 1], "z": place[:, 2], "marker": marker, **shared}
            )
    quiet = {"gridcolor": "@grid", "zerolinecolor": "@faint", "linecolor": "@faint", "showbackground": False}
    ticks = {"tickfont": {"size": 10, "color": "@soft"}, "nticks": 4, "showspikes": False}
    axes = {
        name: {**quiet, **ticks, "title": {"text": label, "font": {"size": 12, "color": "@soft"}}}
        for name, label in zip(("xaxis", "yaxis", "zaxis"), labels, strict=True)
    }
    eye = {"eye": {"x": 1.6, "y": 1.6, "z": 1.05}, "center": {"x": 0, "y": 0, "z": -0.22}}
    scene = {**axes, "aspectmode": "data", "camera": eye, "dragmode": "turntable"}
    return {"data": traces, "layout": base() | {"scene": scene, "margin": {"l": 0, "r": 0, "t": 0, "b": 0}}}


def _data(panels: Mapping[str, Space], labels: Sequence[str]) -> dict[str, list[Any]]:
    cells: list[tuple[Any, ...]] = []
    for name, panel in panels.items():
        if panel.points is not None and panel.vectors is not None:
            rows = np.hstack([np.asarray(panel.points, float), np.asarray(panel.vectors, float)]).tolist()
            cells += [(name, "arrow", *row) for row in rows]
        for track in panel.tracks:
            path = np.asarray(track.points, float).tolist()
            cells += [(name, track.name, *point, None, None, None) for point in path]
    names = ("panel", "kind", *labels, *(f"field {label}" for label in labels))
    return {name: [cell[place] for cell in cells] for place, name in enumerate(names)}
