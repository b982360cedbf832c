"""Figures of a sweep: curves with a panel a scenario, and dots with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpml.report.figures.layout import axis, colour_of, dash_of, keys_of, layout, symbol_of
from hpml.report.parts import FigurePart, Panel
from hpml.report.sweep.paper import title_of
from hpml.report.sweep.study import Study
from hpml.statistics.aggregate import MEAN
from hpml.statistics.curves import Band, learning_curve

WINDOW = 0.06
"""Smoothing averages over this share of the points around each, and over three at least."""


@dataclass(frozen=True)
class Look:
    """How a method is drawn, the same in all figures."""

    colour: str
    dash: str
    symbol: str


@dataclass(frozen=True)
class Dot:
    """A value with a narrow interval (drawn thick) and a wide one (drawn thin); ends may be NaN."""

    value: float
    thick: tuple[float, float]
    thin: tuple[float, float]


def looks(study: Study) -> dict[str, Look]:
    """A colour for each method, and a dash where colours repeat."""
    return {
        method.name: Look(colour_of("", place), dash_of(place), symbol_of(place))
        for place, method in enumerate(study.methods)
    }


def curve_panels(
    study: Study,
    column: str,
    title: str,
    caption: str,
    y_label: str,
    from_zero: bool = False,
) -> FigurePart | None:
    """One panel a scenario: the mean over seeds of a column, with one standard error on either side; None without any.

    The line and its band are smoothed for the eye; the mean as it is lies faint under it, and the CSV has only that.
    """
    style = looks(study)
    panels: list[Panel] = []
    data: dict[str, list[Any]] = {name: [] for name in ("scenario", "method", "steps", "mean", "low", "high", "seeds")}
    shown: dict[str, None] = {}
    for environment in study.environments:
        bands = {}
        for method in study.methods:
            line = study.lines.get((environment, method.name), {}).get(column)
            if line is None:
                continue
            whole = np.isfinite(line.values).all(1)  # a seed that ends early would make the mean jump
            if whole.any():
                bands[method.name] = learning_curve(line.values[whole], line.steps[whole], MEAN, "error")
        if not bands:
            continue
        panels.append(_panel(bands, style, title_of(environment), from_zero))
        for name, band in bands.items():
            shown[name] = None
            count = len(band.at)
            data["scenario"] += [environment] * count
            data["method"] += [name] * count
            data["steps"] += band.at.tolist()
            data["mean"] += band.value.tolist()
            data["low"] += band.low.tolist()
            data["high"] += band.high.tolist()
            data["seeds"] += [int(runs) for runs in band.runs]
    if not panels:
        return None
    if len(panels) == 1:
        panels = [replace(panels[0], height=340)]
    names = [method.name for method in study.methods if method.name in shown]
    dashes = ["line" if style[name].dash == "solid" else "dash" for name in names]
    return FigurePart(
        figure=tuple(panels),
        caption=caption,
        data=data,
        title=title,
        alt=f"{y_label} against environment steps for {', '.join(names)}.",
        legend=keys_of(names, [style[name].colour for name in names], dashes),
        columns=_columns(len(panels)),
    )


def smooth(values: np.ndarray) -> np.ndarray:
    """A moving average for the eye, shorter at the ends, which it does not move."""
    reach = max(1, round(WINDOW * len(values) / 2))
    if len(values) < 5:
        return np.asarray(values, float)
    total = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    half = np.minimum(reach, np.minimum(place, len(values) - 1 - place))
    return (total[place + half + 1] - total[place - half]) / (2 * half + 1)


def dot_panels(
    groups: Mapping[str, Mapping[str, Dot]],
    style: Mapping[str, Look],
    title: str,
    caption: str,
    x_labels: Sequence[str],
    line: float | None = None,
    x_range: tuple[float, float] | None = None,
) -> FigurePart:
    """One panel a group: methods under each other, each a dot with its two intervals; `line` is drawn across."""
    panels = []
    data: dict[str, list[Any]] = {
        name: [] for name in ("panel", "method", "value", "low", "high", "wide low", "wide high")
    }
    for place, (group, dots) in enumerate(groups.items()):
        x = axis(x_labels[place], zeroline=False)
        if x_range is not None:
            x["range"] = list(x_range)
        panels.append(_dots(dots, style, group if len(groups) > 1 else "", x, line))
        for name, dot in dots.items():
            for key, value in zip(data, (group, name, dot.value, *dot.thick, *dot.thin), strict=True):
                data[key].append(value)
    return FigurePart(
        figure=tuple(panels),
        caption=caption,
        data=data,
        title=title,
        alt=f"{title}: {', '.join(next(iter(groups.values())))}.",
        columns=min(len(panels), 2),
    )


def _columns(count: int) -> int:
    return count if count <= 2 else 2 if count == 4 else 3


def _panel(
    bands: Mapping[str, Band],
    style: Mapping[str, Look],
    title: str,
    from_zero: bool,
) -> Panel:
    traces: list[dict[str, Any]] = []
    for name, band in bands.items():
        low, high = smooth(band.low), smooth(band.high)
        seen = np.isfinite(low) & np.isfinite(high)
        if seen.any():
            x = band.at[seen]
            around = {"x": np.concatenate([x, x[::-1]]), "y": np.concatenate([low[seen], high[seen][::-1]])}
            fill = {"fill": "toself", "fillcolor": f"{style[name].colour}/0.12", "line": {"width": 0}, "mode": "lines"}
            traces.append({"type": "scatter", "hoverinfo": "skip", "legendgroup": name, **around, **fill})
    for name, band in bands.items():
        raw = {"color": f"{style[name].colour}/0.3", "width": 1}
        traces.append(_trace(name, band.at, band.value, raw) | {"hoverinfo": "skip"})
    for name, band in bands.items():
        stroke = {"color": style[name].colour, "width": 2, "dash": style[name].dash}
        hover = {"hovertemplate": "%{y:.4g} at %{x:.3~s} steps<extra>%{fullData.name}</extra>"}
        single = {"mode": "markers", "marker": {"color": style[name].colour, "size": 7}} if len(band.at) == 1 else {}
        traces.append(_trace(name, band.at, smooth(band.value), stroke) | hover | single)
    x_axis = axis("steps", zeroline=False, tickformat="~s", nticks=5, rangemode="tozero")
    y_axis = axis(zeroline=False, nticks=5)
    if from_zero:
        y_axis["rangemode"] = "tozero"
    figure = layout(x_axis, y_axis, margin={"l": 8, "r": 12, "t": 8, "b": 8})
    return Panel({"data": traces, "layout": figure}, title=title, height=225)


def _trace(name: str, x: np.ndarray, y: np.ndarray, line: dict[str, Any]) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "name": name, "legendgroup": name, "line": line}


def _dots(
    dots: Mapping[str, Dot], style: Mapping[str, Look], title: str, x: dict[str, Any], line: float | None
) -> Panel:
    names = list(dots)
    traces: list[dict[str, Any]] = []
    for name in reversed(names):
        dot, look = dots[name], style[name]
        for ends, width, shade in ((dot.thin, 1.6, "/0.55"), (dot.thick, 5, "")):
            if np.isfinite(ends).all():
                stroke = {"color": look.colour + shade, "width": width}
                traces.append(
                    _trace(name, np.array(ends), np.array([name, name], object), stroke) | {"hoverinfo": "skip"}
                )
        marker = {"color": "@paper", "size": 9, "symbol": look.symbol, "line": {"color": look.colour, "width": 2.5}}
        hover = f"{dot.value:.3g}<br>{_ends(dot.thick)}<br>{_ends(dot.thin)}<extra>%{{y}}</extra>"
        point = {"type": "scatter", "mode": "markers", "x": [dot.value], "y": [name], "legendgroup": name}
        traces.append({**point, "name": name, "marker": marker, "hovertemplate": hover})
    shapes = []
    if line is not None:
        stroke = {"color": "@soft", "width": 1.2, "dash": "dash"}
        shapes.append({"type": "line", "yref": "paper", "y0": 0, "y1": 1, "x0": line, "x1": line, "line": stroke})
    y = axis(showgrid=False, ticksuffix="  ", categoryorder="array", categoryarray=names[::-1])
    y |= {"dtick": 1, "tickfont": {"size": 12.5, "color": "@ink"}, "range": [-0.6, len(names) - 0.4]}
    figure = layout(x, y, shapes=shapes, margin={"l": 8, "r": 14, "t": 8, "b": 8})
    return Panel({"data": traces, "layout": figure}, title=title, height=80 + 30 * max(len(names), 2))


def _ends(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.3g} to {ends[1]:.3g}" if np.isfinite(ends).all() else "no interval"
