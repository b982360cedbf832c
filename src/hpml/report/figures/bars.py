"""Bars: values with intervals in groups, and one bar cut into the shares of a whole. They lie down, so names fit."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hpml.report.figures.layout import axis, colour_of, keys_of, layout, log_ticks
from hpml.report.parts import FigurePart, Panel


def bars(
    groups: Sequence[str],
    values: Mapping[str, np.ndarray],
    title: str,
    caption: str,
    x_label: str,
    low: Mapping[str, np.ndarray] | None = None,
    high: Mapping[str, np.ndarray] | None = None,
    x_log: bool = False,
    colours: Mapping[str, str] | None = None,
    alt: str = "",
) -> FigurePart:
    """One bar a group and series: `values[series]` (len(groups),), with whiskers from `low` to `high`.

    On a logarithmic axis values are dots, since a bar would have to start at zero.
    """
    low, high = low or {}, high or {}
    shades = [colour_of((colours or {}).get(name, ""), place) for place, name in enumerate(values)]
    traces: list[dict[str, Any]] = []
    # The first group and the first series stand on top.
    for (name, value), colour in reversed(list(zip(values.items(), shades, strict=True))):
        value = np.asarray(value, float)
        trace: dict[str, Any] = {
            "y": list(groups)[::-1],
            "x": value[::-1],
            "name": name,
            "legendgroup": name,
            "marker": {"color": colour, "size": 10} if x_log else {"color": colour},
            "hovertemplate": "%{y}: %{x:.4g}<extra>%{fullData.name}</extra>",
        }
        trace |= {"type": "scatter", "mode": "markers"} if x_log else {"type": "bar", "orientation": "h"}
        if name in low and name in high:
            above, below = np.asarray(high[name]) - value, value - np.asarray(low[name])
            whiskers = {"type": "data", "array": above[::-1], "arrayminus": below[::-1]}
            trace["error_x"] = {"color": "@ink", "thickness": 1.4, "width": 4, **whiskers}
        traces.append(trace)
    rows = len(groups) * (1 if x_log else max(len(values), 1))
    y = axis(showgrid=False, ticksuffix="  ") | {"nticks": len(groups), "tickfont": {"size": 13, "color": "@ink"}}
    x = axis(x_label, x_log, **(log_ticks(list(values.values())) if x_log else {}))
    figure = layout(x, y, barmode="group", bargap=0.28, bargroupgap=0.08)
    columns: dict[str, list[Any]] = {name: [] for name in ("group", "series", "value", "low", "high")}
    for name, value in values.items():
        columns["group"] += list(groups)
        columns["series"] += [name] * len(groups)
        columns["value"] += np.asarray(value, float).tolist()
        columns["low"] += np.asarray(low[name], float).tolist() if name in low else [None] * len(groups)
        columns["high"] += np.asarray(high[name], float).tolist() if name in high else [None] * len(groups)
    return FigurePart(
        figure=(Panel({"data": traces, "layout": figure}, height=90 + 26 * max(rows, 2)),),
        caption=caption,
        data=columns,
        title=title,
        alt=alt or f"Bars of {x_label} for {', '.join(groups)}.",
        legend=keys_of(list(values), shades, "dot" if x_log else "area") if len(values) > 1 else (),
    )


def share_bar(shares: Mapping[str, float], title: str, caption: str, colours: Mapping[str, str]) -> FigurePart:
    """One bar from 0 to 100 % cut into `shares`, each with its number inside where it fits."""
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "y": [""],
            "x": [100 * share],
            "name": name,
            "legendgroup": name,
            "marker": {"color": colours.get(name) or f"@s{place}", "line": {"color": "@paper", "width": 2}},
            "text": [f"{100 * share:.0f} %" if share >= 0.08 else ""],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "textfont": {"size": 15, "color": "@paper"},
            "hovertemplate": f"{name}: {100 * share:.1f} %<extra></extra>",
        }
        for place, (name, share) in enumerate(shares.items())
    ]
    ticks: dict[str, Any] = {"tickvals": [0, 25, 50, 75, 100], "showgrid": False, "zeroline": False}
    ticks["ticktext"] = [f"{place} %" for place in ticks["tickvals"]]
    x = axis("", range=[0, 100.5], fixedrange=True, **ticks)
    y = axis(visible=False, fixedrange=True)
    figure = layout(x, y, barmode="stack", bargap=0.0, margin={"l": 16, "r": 22, "t": 4, "b": 24})
    names = list(shares)
    shades = [colours.get(name) or f"@s{place}" for place, name in enumerate(names)]
    return FigurePart(
        figure=(Panel({"data": traces, "layout": figure}, height=96),),
        caption=caption,
        data={"part": names, "share": [shares[name] for name in names]},
        title=title,
        alt="A bar of shares: " + ", ".join(f"{name} {100 * share:.0f} %" for name, share in shares.items()) + ".",
        legend=keys_of(names, shades, "area"),
    )
