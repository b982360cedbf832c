"""A table of numbers as colours."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpml.report.figures.layout import axis, layout
from hpml.report.parts import FigurePart, Panel, Scale


def heat_map(
    x: Sequence[Any] | np.ndarray,
    y: Sequence[Any] | np.ndarray,
    values: np.ndarray,
    title: str,
    caption: str,
    value_label: str,
    x_label: str = "",
    y_label: str = "",
    signed: bool = False,
    square: bool = False,
    alt: str = "",
) -> FigurePart:
    """`values` (len(y), len(x)) in cells, the first row on top; `signed` ones are coloured both ways from zero."""
    values = np.asarray(values, float)
    high = float(np.nanmax(np.abs(values)) if signed else np.nanmax(values))
    low = -high if signed else min(float(np.nanmin(values)), 0.0)
    across, down = [_name(entry) for entry in x], [_name(entry) for entry in y]
    small = values.size <= 150
    trace: dict[str, Any] = {
        "type": "heatmap",
        "x": across,
        "y": down,
        "z": values,
        "colorscale": "@signed" if signed else "@magnitudes",
        "zmin": low,
        "zmax": high,
        "showscale": False,
        "xgap": 1.5 if small else 0,
        "ygap": 1.5 if small else 0,
        "hovertemplate": f"{x_label} %{{x}}, {y_label} %{{y}}<br>{value_label} %{{z:.4g}}<extra></extra>",
    }
    if small:
        trace |= {"texttemplate": "%{z:.2~f}", "textfont": {"size": 12}}
    names: dict[str, Any] = {"type": "category", "showgrid": False, "nticks": 12}
    figure = layout(axis(x_label, **names), axis(y_label, autorange="reversed", **names))
    grid_x, grid_y = np.meshgrid(np.arange(len(across)), np.arange(len(down)))
    return FigurePart(
        figure=(
            Panel(
                {"data": [trace], "layout": figure},
                aspect=1.0 if square else None,
                height=120 + 30 * min(len(down), 12),
            ),
        ),
        caption=caption,
        data={
            x_label or "x": [across[place] for place in grid_x.ravel()],
            y_label or "y": [down[place] for place in grid_y.ravel()],
            value_label: values.ravel(),
        },
        title=title,
        alt=alt or f"{value_label} for every {x_label or 'column'} and {y_label or 'row'}, as colours.",
        scale=Scale(value_label, low, high, "signed" if signed else "magnitudes"),
    )


def _name(entry: Any) -> str:
    return f"{entry:g}" if isinstance(entry, float | np.floating) else str(entry)
