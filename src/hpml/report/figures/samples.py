"""Samples on a plane, coloured by a number each: where the residual is large."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpml.report.figures.layout import axis, layout
from hpml.report.parts import FigurePart, Panel, Scale

DRAWN = 3000
"""More points than this are drawn by the graphics card."""


def sample_map(
    points: np.ndarray,
    values: np.ndarray,
    title: str,
    caption: str,
    value_label: str,
    x_label: str = "",
    y_label: str = "",
    names: Sequence[str] | None = None,
    top: float | None = None,
    alt: str = "",
) -> FigurePart:
    """Points (n, 2) coloured and sized by `values` (n,) from 0 to `top`; `names` show on hover and stay in the data."""
    points, values = np.asarray(points, float), np.asarray(values, float)
    top = float(values.max()) if top is None else top
    # The largest are drawn last, on top of the others.
    order = np.argsort(values, kind="stable")
    place, value = points[order], values[order]
    share = np.clip(value / max(top, 1e-300), 0.0, 1.0)
    texts = [f"{value_label} {entry:.3g}" for entry in value]
    if names is not None:
        texts = [f"{names[index]}<br>{text}" for index, text in zip(order, texts, strict=True)]
    colours = {"color": value, "colorscale": "@magnitudes", "cmin": 0.0, "cmax": top, "showscale": False}
    marker: dict[str, Any] = {**colours, "size": 5 + 7 * share, "line": {"width": 0.5, "color": "@paper"}}
    trace = {
        "type": "scatter" if len(values) <= DRAWN else "scattergl",
        "mode": "markers",
        "x": place[:, 0],
        "y": place[:, 1],
        "marker": marker,
        "text": texts,
        "hoverinfo": "text",
    }
    figure = layout(axis(x_label, zeroline=False), axis(y_label, zeroline=False, scaleanchor="x", scaleratio=1))
    data: dict[str, Any] = {x_label or "x": points[:, 0], y_label or "y": points[:, 1], value_label: values}
    return FigurePart(
        figure=(Panel({"data": [trace], "layout": figure}, height=430),),
        caption=caption,
        data=data if names is None else data | {"label": list(names)},
        title=title,
        alt=alt or f"{len(values)} samples on a plane, coloured by {value_label}.",
        scale=Scale(value_label, 0.0, top),
    )
