"""Phase portraits of plane fields: arrows coloured by length on one scale, level sets of the potential, paths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpml.report.figures.arrows import arrow_traces, spacing, track_traces
from hpml.report.figures.layout import Track, axis, bare_axis, colour_of, keys_of, layout
from hpml.report.parts import FigurePart, Panel, Scale


@dataclass(frozen=True)
class Portrait:
    """A plane field at `points` (n, 2), and what is drawn with it.

    - `potential` (len(y), len(x)) on the grid `x`, `y` is drawn as level sets, NaN outside the domain.
    - `outline` (t, 2) is the rim of the domain; `tracks` are the runs drawn over the arrows.
    """

    points: np.ndarray
    vectors: np.ndarray
    x: np.ndarray | None = None
    y: np.ndarray | None = None
    potential: np.ndarray | None = None
    outline: np.ndarray | None = None
    tracks: Sequence[Track] = ()


def portraits(
    panels: Mapping[str, Portrait],
    title: str,
    caption: str,
    x_label: str = "",
    y_label: str = "",
    columns: int = 3,
    longest: float | None = None,
    alt: str = "",
) -> FigurePart:
    """Portraits side by side on one colour scale; axes are drawn where they have labels.

    The scale ends at `longest`, which is the longest arrow of the first portrait where it is not given.
    """
    first = next(iter(panels.values()))
    longest = float(np.linalg.norm(first.vectors, axis=1).max()) if longest is None else longest
    extent = _extent(list(panels.values()))
    reach = 1.25 * spacing(first.points)
    tracks = {track.name: track for panel in panels.values() for track in panel.tracks}
    colours = {name: colour_of(track.colour, place) for place, (name, track) in enumerate(tracks.items())}
    drawn = tuple(
        Panel(_spec(panel, extent, longest, reach, colours, x_label, y_label), name, aspect=1.0)
        for name, panel in panels.items()
    )
    return FigurePart(
        figure=drawn,
        caption=caption,
        data=_data(panels),
        title=title,
        alt=alt or f"{len(panels)} maps of arrows: {', '.join(panels)}.",
        legend=keys_of(list(colours), list(colours.values())),
        scale=Scale("length of the arrow", 0.0, longest),
        columns=min(columns, len(panels)),
    )


def split_portrait(
    field: Portrait,
    direction: np.ndarray,
    residual: np.ndarray,
    title: str,
    caption: str,
    x_label: str = "",
    y_label: str = "",
    tracks: Mapping[str, Sequence[Track]] | None = None,
) -> FigurePart:
    """F = potential part + residual on one colour scale; `tracks` may hold runs for "field", "direction" and
    "residual" each."""
    names = ("F, the joint update", "its potential part", "its residual, the circulation")
    over = {"field": field.tracks, "direction": (), "residual": ()} | dict(tracks or {})
    parts = zip(names, over.values(), (field.vectors, direction, residual), strict=True)
    panels = {name: replace(field, vectors=vectors, tracks=paths) for name, paths, vectors in parts}
    # Level sets of the potential say nothing about the circulation.
    panels[names[2]] = replace(panels[names[2]], potential=None)
    alt = "Three maps of arrows: the field, the part that climbs one hill, and the circulation that is left."
    return portraits(panels, title, caption, x_label, y_label, columns=3, alt=alt)


def _spec(
    panel: Portrait,
    extent: np.ndarray,
    longest: float,
    reach: float,
    colours: Mapping[str, str],
    x_label: str,
    y_label: str,
) -> dict[str, Any]:
    traces: list[dict[str, Any]] = []
    if panel.potential is not None and np.nanmax(panel.potential) > np.nanmin(panel.potential):
        traces.append(_levels(panel))
    if panel.outline is not None:
        rim = {"x": panel.outline[:, 0], "y": panel.outline[:, 1], "mode": "lines", "hoverinfo": "skip"}
        traces.append({"type": "scatter", "line": {"color": "@faint", "width": 1.2}, **rim})
    texts = [
        f"({x:.3g}, {y:.3g})<br>field ({u:.3g}, {v:.3g})"
        for (x, y), (u, v) in zip(panel.points, panel.vectors, strict=True)
    ]
    traces += arrow_traces(panel.points, panel.vectors, longest, reach, texts)
    head = 0.022 * float((extent[1] - extent[0]).max())
    for track in panel.tracks:
        traces += track_traces(track, colours[track.name], head)
    (left, bottom), (right, top) = extent
    scaled = {"scaleanchor": "x", "scaleratio": 1}
    if x_label or y_label:
        x = axis(x_label, range=[left, right], constrain="domain", nticks=5, zeroline=False, showgrid=False)
        y = axis(y_label, range=[bottom, top], constrain="domain", nticks=5, zeroline=False, showgrid=False) | scaled
        return {"data": traces, "layout": layout(x, y)}
    margin = {"l": 2, "r": 2, "t": 2, "b": 2}
    return {
        "data": traces,
        "layout": layout(bare_axis(left, right), bare_axis(bottom, top, **scaled), margin=margin),
    }


def _levels(panel: Portrait) -> dict[str, Any]:
    values = np.asarray(panel.potential, float)
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    step = (high - low) / 10
    # The lowest levels would be cut by the rim of the domain.
    contours = {"coloring": "none", "start": low + 2 * step, "end": high - step / 2, "size": step}
    style = {"line": {"color": "@faint", "width": 1, "smoothing": 1.0}, "showscale": False, "hoverinfo": "skip"}
    grid = {"x": panel.x, "y": panel.y, "z": values, "autocontour": False, "contours": contours}
    return {"type": "contour", "connectgaps": False, **grid, **style}


def _extent(panels: Sequence[Portrait]) -> np.ndarray:
    clouds = [panel.points for panel in panels]
    clouds += [panel.outline for panel in panels if panel.outline is not None]
    clouds += [np.asarray(track.points) for panel in panels for track in panel.tracks]
    everything = np.concatenate([cloud[np.isfinite(cloud).all(1)] for cloud in clouds])
    low, high = everything.min(0), everything.max(0)
    edge = 0.06 * float((high - low).max() or 1.0)
    return np.stack([low - edge, high + edge])


def _data(panels: Mapping[str, Portrait]) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {name: [] for name in ("panel", "kind", "x", "y", "u", "v")}
    for name, panel in panels.items():
        arrows = zip(panel.points.tolist(), panel.vectors.tolist(), strict=True)
        cells = [(name, "arrow", *point, *vector) for point, vector in arrows]
        for track in panel.tracks:
            cells += [(name, track.name, *point, None, None) for point in np.asarray(track.points, float).tolist()]
        for column, entries in zip(rows.values(), zip(*cells, strict=True), strict=True):
            column += entries
    return rows
