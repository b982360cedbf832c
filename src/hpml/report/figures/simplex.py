"""The simplex of three actions: paths of runs, the field as arrows, level sets left to the plane portraits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpml.report.figures.arrows import arrow_traces, spacing, track_traces
from hpml.report.figures.layout import Track, bare_axis, colour_of, keys_of, layout
from hpml.report.parts import FigurePart, Panel, Scale

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
"""Where the three pure actions stand: left, right, top."""


@dataclass(frozen=True)
class Simplex:
    """Paths of probabilities `tracks` (t, 3), and a field `vectors` (n, 3) at `points` (n, 3) where one is shown."""

    tracks: Sequence[Track] = ()
    points: np.ndarray | None = None
    vectors: np.ndarray | None = None


def simplex_plot(
    panels: Mapping[str, Simplex],
    labels: Sequence[str],
    title: str,
    caption: str,
    columns: int = 3,
    longest: float | None = None,
    alt: str = "",
) -> FigurePart:
    """Triangles side by side, one a key; `labels` names the three actions. Fields share one colour scale."""
    if len(labels) != 3:
        raise ValueError(f"A simplex plot has three corners, got {len(labels)} labels: {list(labels)}.")
    names = list(dict.fromkeys(track.name for panel in panels.values() for track in panel.tracks))
    asked = {track.name: track.colour for panel in panels.values() for track in panel.tracks}
    colours = {name: colour_of(asked[name], place) for place, name in enumerate(names)}
    lengths = [
        np.linalg.norm(panel.vectors @ CORNERS, axis=1) for panel in panels.values() if panel.vectors is not None
    ]
    if longest is None and lengths:
        longest = float(max(length.max() for length in lengths))
    drawn = tuple(
        Panel(_spec(panel, labels, colours, longest or 1.0), name if len(panels) > 1 else "", aspect=1.08)
        for name, panel in panels.items()
    )
    return FigurePart(
        figure=drawn,
        caption=caption,
        data=_data(panels, labels),
        title=title,
        alt=alt or f"Triangles with the corners {', '.join(labels)} and the paths {', '.join(names)}.",
        legend=keys_of(names, list(colours.values())),
        scale=Scale("length of the arrow", 0.0, longest or 1.0) if lengths else None,
        columns=min(columns, len(panels)),
    )


def _spec(panel: Simplex, labels: Sequence[str], colours: Mapping[str, str], longest: float) -> dict[str, Any]:
    closed = CORNERS[[0, 1, 2, 0]]
    rim = {"x": closed[:, 0], "y": closed[:, 1], "mode": "lines", "hoverinfo": "skip"}
    rim |= {"line": {"color": "@faint", "width": 1.4}, "fill": "toself", "fillcolor": "@panel/0.6"}
    traces: list[dict[str, Any]] = [{"type": "scatter", **rim}]
    # Thirds of each probability, so that the eye can read a point without ticks.
    for share in (1 / 3, 2 / 3):
        for corner in range(3):
            others = [place for place in range(3) if place != corner]
            ends = [share * CORNERS[corner] + (1 - share) * CORNERS[other] for other in others]
            x, y = np.array(ends).T
            style = {"mode": "lines", "line": {"color": "@grid", "width": 1}, "hoverinfo": "skip"}
            traces.append({"type": "scatter", "x": x, "y": y, **style})
    if panel.points is not None and panel.vectors is not None:
        flat, aims = panel.points @ CORNERS, panel.vectors @ CORNERS
        traces += arrow_traces(flat, aims, longest, 1.15 * spacing(flat), _texts(panel.points, labels))
    for track in panel.tracks:
        path = np.asarray(track.points, float)
        flat = Track(track.name, path @ CORNERS)
        words = [f"{label} %{{customdata[{place}]:.3f}}" for place, label in enumerate(labels)]
        hover = {"customdata": path, "hovertemplate": "<br>".join(words) + "<extra>%{fullData.name}</extra>"}
        traces += track_traces(flat, colours[track.name], 0.024, hover)
    spots = ((0.09, -0.02, "top"), (0.91, -0.02, "top"), (0.5, 0.88, "bottom"))
    names = [
        {"x": x, "y": y, "text": label, "yanchor": side, "showarrow": False, "font": {"size": 13, "color": "@ink"}}
        for label, (x, y, side) in zip(labels, spots, strict=True)
    ]
    across, up = bare_axis(-0.08, 1.08), bare_axis(-0.11, 0.97, scaleanchor="x", scaleratio=1)
    return {
        "data": traces,
        "layout": layout(across, up, annotations=names, margin={"l": 2, "r": 2, "t": 2, "b": 2}),
    }


def _texts(points: np.ndarray, labels: Sequence[str]) -> list[str]:
    return ["<br>".join(f"{label} {share:.3f}" for label, share in zip(labels, point, strict=True)) for point in points]


def _data(panels: Mapping[str, Simplex], labels: Sequence[str]) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {name: [] for name in ("panel", "kind", "step", *labels)}
    moves = [f"field {label}" for label in labels]
    if any(panel.vectors is not None for panel in panels.values()):
        rows |= {name: [] for name in moves}
    width = len(rows)
    for name, panel in panels.items():
        cells: list[tuple[Any, ...]] = []
        if panel.points is not None and panel.vectors is not None:
            arrows = zip(panel.points.tolist(), panel.vectors.tolist(), strict=True)
            cells += [(name, "arrow", None, *point, *vector) for point, vector in arrows]
        for track in panel.tracks:
            path = np.asarray(track.points, float).tolist()
            cells += [(name, track.name, step, *point) for step, point in enumerate(path)]
        for cell in cells:
            full = (*cell, *[None] * (width - len(cell)))
            for column, entry in zip(rows.values(), full, strict=True):
                column.append(entry)
    return rows
