"""What all interactive figures share: axes, colours of series, the paths of runs, and several figures as one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hpml.report.parts import Columns, FigurePart, Key, Panel

FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif"
SERIES = 8
SYMBOLS = ("circle", "diamond", "square", "triangle-up")
DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class Track:
    """The path of one run, drawn over a figure: `points` (t, d); its colour is a role, chosen by order where empty."""

    name: str
    points: np.ndarray
    colour: str = ""


def colour_of(given: str, place: int) -> str:
    """The colour that was asked for, or the next one of the series."""
    return given or f"@s{place % SERIES}"


def dash_of(place: int) -> str:
    """Series that share a colour differ by their dashes."""
    return DASHES[(place // SERIES) % len(DASHES)]


def symbol_of(place: int) -> str:
    """Points that share a colour differ by their shape."""
    return SYMBOLS[(place // SERIES) % len(SYMBOLS)]


def axis(label: str = "", log: bool = False, **more: Any) -> dict[str, Any]:
    """A quiet axis: thin grid, no box, ticks written small; powers of ten on a logarithmic one."""
    settings: dict[str, Any] = {
        "title": {"text": label, "font": {"size": 13, "color": "@soft"}, "standoff": 8},
        "gridcolor": "@grid",
        "linecolor": "@faint",
        "zerolinecolor": "@grid",
        "tickfont": {"size": 12, "color": "@soft"},
        "automargin": True,
        "ticklen": 4,
        "tickcolor": "rgba(0,0,0,0)",
        "nticks": 7,
    }
    if log:
        settings |= {"type": "log", "exponentformat": "power"}
    return settings | more


def log_ticks(values: Sequence[np.ndarray]) -> dict[str, Any]:
    """Ticks at powers of ten only where there are two or more of them; digits between them would crowd a phone."""
    positive = np.concatenate([np.ravel(value)[np.ravel(value) > 0] for value in values] or [np.empty(0)])
    positive = positive[np.isfinite(positive)]
    if not len(positive):
        return {}
    decades = float(np.log10(positive.max()) - np.log10(positive.min()))
    return {"dtick": max(1, round(decades / 7))} if decades >= 1.5 else {}


def bare_axis(low: float, high: float, **more: Any) -> dict[str, Any]:
    """An axis of a map: no ticks, no grid, the same unit in both directions."""
    return {"visible": False, "range": [low, high], "constrain": "domain", **more}


def layout(x: Mapping[str, Any], y: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The layout of a panel with two axes."""
    return base() | {"xaxis": dict(x), "yaxis": dict(y)} | more


def base() -> dict[str, Any]:
    """Type, colours and margins of every panel."""
    return {
        "font": {"family": FONT, "size": 13, "color": "@ink"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "showlegend": False,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8, "pad": 0},
        "hoverlabel": {"bgcolor": "@panel", "bordercolor": "@faint", "font": {"color": "@ink", "size": 13}},
        "hovermode": "closest",
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@faint", "activecolor": "@soft"},
        "uirevision": "kept",
    }


def grid(
    parts: Mapping[str, FigurePart], title: str, caption: str, columns: int = 3, narrow: int = 1, alt: str = ""
) -> FigurePart:
    """Several figures as the panels of one: titles from the keys, one legend, one table of numbers.

    Colours of magnitude are shared only where the parts were drawn on the same scale.
    """
    panels: list[Panel] = []
    legend: dict[str, Key] = {}
    for name, part in parts.items():
        for panel in part.figure:
            panels.append(replace(panel, title=f"{name}: {panel.title}" if panel.title else name))
        legend |= {key.name: key for key in part.legend}
    scales = [part.scale for part in parts.values() if part.scale is not None]
    return FigurePart(
        figure=tuple(panels),
        caption=caption,
        data=_stacked({name: part.data for name, part in parts.items()}),
        title=title,
        alt=alt,
        legend=tuple(legend.values()),
        scale=scales[0] if scales and all(scale == scales[0] for scale in scales) else None,
        columns=columns,
        narrow=narrow,
    )


def long_columns(groups: Mapping[str, Columns], label: str) -> dict[str, list[Any]]:
    """Groups of columns under each other, with a first column that says which group a row is of."""
    return _stacked(groups, label)


def _stacked(groups: Mapping[str, Columns], label: str = "panel") -> dict[str, list[Any]]:
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    columns: dict[str, list[Any]] = {label: []} | {name: [] for name in names}
    for key, group in groups.items():
        rows = len(next(iter(group.values()), ()))
        columns[label] += [key] * rows
        for name in names:
            columns[name] += list(group[name]) if name in group else [None] * rows
    return columns


def keys_of(names: Sequence[str], colours: Sequence[str], shapes: Sequence[str] | str = "line") -> tuple[Key, ...]:
    """A legend from names and colours."""
    shapes = [shapes] * len(names) if isinstance(shapes, str) else shapes
    return tuple(Key(*entry) for entry in zip(names, colours, shapes, strict=True))
