"""Curves with bands, and points, on linear or logarithmic axes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpml.report.figures.layout import axis, colour_of, dash_of, keys_of, layout, log_ticks, long_columns, symbol_of
from hpml.report.parts import FigurePart, Panel


@dataclass(frozen=True)
class Curve:
    """One series: `y` over `x`, and a band from `low` to `high` where they are given.

    `marks` is lines, points or both; `dash` draws the line dashed, for what is exact or expected.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    colour: str = ""
    marks: str = "lines"
    dash: bool = False


def curves(
    series: Sequence[Curve],
    title: str,
    caption: str,
    x_label: str,
    y_label: str,
    x_log: bool = False,
    y_log: bool = False,
    y_range: tuple[float, float] | None = None,
    lines: Mapping[str, float] | None = None,
    height: int = 380,
    equal: bool = False,
    alt: str = "",
) -> FigurePart:
    """All series on one pair of axes; `lines` are horizontal lines with a name (a bound, an exact value).

    `equal` gives both axes the same unit, for points of a plane.

    What is not positive has no place on a logarithmic axis: it is left out of the drawing and kept in the data.
    """
    colours = [colour_of(curve.colour, place) for place, curve in enumerate(series)]
    traces: list[dict[str, Any]] = []
    for curve, colour in zip(series, colours, strict=True):
        if curve.low is not None and curve.high is not None:
            traces.append(_band(curve, colour, y_log))
    for place, (curve, colour) in enumerate(zip(series, colours, strict=True)):
        line = _line(curve, colour, "dash" if curve.dash else dash_of(place), y_log)
        line["marker"]["symbol"] = symbol_of(place)
        traces.append(line)
    notes: list[dict[str, Any]] = []
    shapes: list[dict[str, Any]] = []
    for name, value in (lines or {}).items():
        stroke = {"color": "@soft", "width": 1.2, "dash": "dash"}
        shapes.append({"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": value, "y1": value, "line": stroke})
        level = float(np.log10(value)) if y_log else value
        spot: dict[str, Any] = {"xref": "paper", "x": 1, "xanchor": "right", "y": level, "yanchor": "bottom"}
        notes.append({"text": name, "font": {"size": 12, "color": "@soft"}, "showarrow": False, **spot})
    x = axis(x_label, x_log, zeroline=False, **(log_ticks([curve.x for curve in series]) if x_log else {}))
    y = axis(y_label, y_log, zeroline=False, **(log_ticks([curve.y for curve in series]) if y_log else {}))
    if y_range is not None:
        y["range"] = [float(np.log10(end)) for end in y_range] if y_log else list(y_range)
    if equal:
        y |= {"scaleanchor": "x", "scaleratio": 1}
    dashed = [curve.dash or dash_of(place) != "solid" for place, curve in enumerate(series)]
    shapes_of = [
        "dot" if curve.marks == "points" else "dash" if dash else "line"
        for curve, dash in zip(series, dashed, strict=True)
    ]
    margin = {"l": 8, "r": 14, "t": 14, "b": 8}
    figure = layout(x, y, shapes=shapes, annotations=notes, margin=margin)
    return FigurePart(
        figure=(Panel({"data": traces, "layout": figure}, height=height, aspect=1.0 if equal else None),),
        caption=caption,
        data=_data(series, x_label, y_label),
        title=title,
        alt=alt or f"{y_label} against {x_label} for {', '.join(curve.name for curve in series)}.",
        legend=keys_of([curve.name for curve in series], colours, shapes_of),
    )


def _line(curve: Curve, colour: str, dash: str, y_log: bool) -> dict[str, Any]:
    mode = {"lines": "lines", "points": "markers", "both": "lines+markers"}[curve.marks]
    y = np.asarray(curve.y, float)
    return {
        "type": "scatter",
        "mode": mode,
        "x": curve.x,
        "y": np.where(y > 0, y, np.nan) if y_log else y,
        "name": curve.name,
        "legendgroup": curve.name,
        "line": {"color": colour, "width": 2.2, "dash": dash},
        "marker": {"color": colour, "size": 7, "line": {"color": "@paper", "width": 1}},
        "hovertemplate": "%{y:.4g} at %{x:.4~g}<extra>%{fullData.name}</extra>",
    }


def _band(curve: Curve, colour: str, y_log: bool) -> dict[str, Any]:
    low, high = np.asarray(curve.low, float), np.asarray(curve.high, float)
    if y_log:
        # A band that reaches zero is cut two decades below its top, or it would swallow the axis.
        low = np.maximum(low, 1e-2 * high)
    seen = np.isfinite(low) & np.isfinite(high) & ((high > 0) | (not y_log))
    x = np.asarray(curve.x, float)[seen]
    style = {"fill": "toself", "fillcolor": f"{colour}/0.13", "line": {"width": 0}, "mode": "lines"}
    around = {"x": np.concatenate([x, x[::-1]]), "y": np.concatenate([low[seen], high[seen][::-1]])}
    return {"type": "scatter", "hoverinfo": "skip", "legendgroup": curve.name, **around, **style}


def _data(series: Sequence[Curve], x_label: str, y_label: str) -> dict[str, list[Any]]:
    groups = {}
    for curve in series:
        columns = {x_label or "x": curve.x, y_label or "y": curve.y}
        columns |= {} if curve.low is None else {"low": curve.low}
        columns |= {} if curve.high is None else {"high": curve.high}
        groups[curve.name] = columns
    return long_columns(groups, "series")
