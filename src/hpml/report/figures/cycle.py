"""The graph of conventions: who beats whom, how strongly, and which loops carry the circulation (`rem:convention_graph`)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpml.report.figures.arrows import GAP
from hpml.report.figures.layout import bare_axis, colour_of, keys_of, layout
from hpml.report.parts import FigurePart, Panel, Scale
from hpml.report.theme import SHADES

NODE = 0.13
"""The radius around a node that edges keep away from."""


def loop_text(names: Sequence[str], share: float) -> str:
    """A loop in words: "rock → paper → scissors, 71 % of the circulation"."""
    return f"{' → '.join(names)}, {100 * share:.0f} % of the circulation"


def cycle_graph(
    names: Sequence[str],
    edges: np.ndarray,
    flow: np.ndarray,
    loops: Sequence[tuple[Sequence[int], float]],
    title: str,
    caption: str,
    positions: np.ndarray | None = None,
    shown: int = 3,
    sizes: np.ndarray | None = None,
) -> FigurePart:
    """Nodes with names, arrows from `edges[:, 0]` to `edges[:, 1]` where `flow` is positive and back where it is not.

    - `loops` are pairs of node numbers in order and the share of the circulation that they carry, strongest first;
      the `shown` strongest are drawn over the graph and named in the legend.
    - `positions` (k, 2) places the nodes; without it they stand on a circle, the strongest loop in its own order.
    - `sizes` (k,) are the shares of samples in each convention.
    """
    count = len(names)
    edges, flow = np.asarray(edges, int).reshape(-1, 2), np.asarray(flow, float)
    places = _circle(count, loops) if positions is None else _fitted(np.asarray(positions, float))
    forward = flow >= 0
    tails, heads = np.where(forward, edges[:, 0], edges[:, 1]), np.where(forward, edges[:, 1], edges[:, 0])
    strength = np.abs(flow)
    strongest = float(strength.max()) if len(strength) else 1.0
    traces: list[dict[str, Any]] = []
    for place in np.argsort(strength):
        if strength[place] > 0:
            text = f"{names[tails[place]]} → {names[heads[place]]}: {strength[place]:.3g}"
            share = strength[place] / strongest
            traces += _edge(places[tails[place]], places[heads[place]], share, text)
    keys = {}
    for order, (loop, share) in enumerate(loops[:shown]):
        colour = colour_of("@residual" if order == 0 else "", (1, 3, 4)[order % 3])
        text = loop_text([names[node] for node in loop], share)
        keys[text] = colour
        traces += _loop(places[list(loop)], colour, text, order)
    traces.append(_nodes(places, names, np.full(count, 1 / count) if sizes is None else np.asarray(sizes, float)))
    low, high = places.min(0) - 0.32, places.max(0) + 0.32
    span = max(float((high - low)[0]) / 1.5, float((high - low)[1]))
    middle = (low + high) / 2
    x, y = (
        bare_axis(middle[0] - 0.75 * span, middle[0] + 0.75 * span),
        bare_axis(middle[1] - span / 2, middle[1] + span / 2, scaleanchor="x", scaleratio=1),
    )
    panel = Panel({"data": traces, "layout": layout(x, y, margin={"l": 2, "r": 2, "t": 2, "b": 2})}, aspect=1.5)
    order = np.argsort(-strength)
    return FigurePart(
        figure=(panel,),
        caption=caption,
        data={
            "from": [names[node] for node in tails[order]],
            "to": [names[node] for node in heads[order]],
            "cyclic flow": strength[order],
        },
        title=title,
        alt=f"A graph of the conventions {', '.join(names)} with arrows along the circulation. "
        + " ".join(text + "." for text in keys),
        legend=keys_of(list(keys), list(keys.values())),
        scale=Scale("cyclic flow along the edge", 0.0, strongest),
    )


def _circle(count: int, loops: Sequence[tuple[Sequence[int], float]]) -> np.ndarray:
    first = list(loops[0][0]) if len(loops) else []
    order = first + [node for node in range(count) if node not in first]
    angle = np.pi / 2 - 2 * np.pi * np.arange(count) / max(count, 1)
    places = np.empty((count, 2))
    places[order] = np.stack([np.cos(angle), np.sin(angle)], -1)
    return places


def _fitted(places: np.ndarray) -> np.ndarray:
    centre = (places.max(0) + places.min(0)) / 2
    return (places - centre) / max(float(np.abs(places - centre).max()), 1e-12)


def _edge(tail: np.ndarray, head: np.ndarray, share: float, text: str) -> list[dict[str, Any]]:
    colour = f"@m{min(int(share * SHADES), SHADES - 1)}"
    line, tip = _bow(tail, head, 0.0)
    width = 1.0 + 4.0 * share
    size = 0.05 + 0.05 * share
    stroke = {"mode": "lines", "line": {"color": colour, "width": width}, "hoverinfo": "skip"}
    middle = {
        "x": line[8:-8, 0],
        "y": line[8:-8, 1],
        "mode": "markers",
        "marker": {"size": 12, "color": "rgba(0,0,0,0)"},
    }
    return [
        {"type": "scatter", "x": line[:, 0], "y": line[:, 1], **stroke},
        _tip(line[-1], tip, size, colour),
        {"type": "scatter", "text": text, "hoverinfo": "text", **middle},
    ]


def _loop(places: np.ndarray, colour: str, text: str, order: int) -> list[dict[str, Any]]:
    lines, tips = [], []
    for tail, head in zip(places, np.roll(places, -1, 0), strict=True):
        line, aim = _bow(tail, head, 0.16 + 0.09 * order)
        lines += [line, GAP]
        tips.append((line[-1], aim))
    x, y = np.concatenate(lines).T
    group = {"legendgroup": text}
    stroke = {"mode": "lines", "line": {"color": colour, "width": 3.5 - 0.6 * order}, "hoverinfo": "skip"}
    traces = [{"type": "scatter", "x": x, "y": y, **stroke, **group}]
    return traces + [_tip(place, aim, 0.085, colour) | group for place, aim in tips]


def _bow(tail: np.ndarray, head: np.ndarray, bend: float) -> tuple[np.ndarray, np.ndarray]:
    """A curve between two nodes that keeps off both, bent to its left, and the direction of its end."""
    ahead = head - tail
    length = float(np.linalg.norm(ahead)) or 1.0
    side = np.array([-ahead[1], ahead[0]]) * bend
    t = np.linspace(0.0, 1.0, 41)[:, None]
    curve = (1 - t) * tail + t * head + 4 * t * (1 - t) * side / 2
    away = np.minimum(np.linalg.norm(curve - tail, axis=1), np.linalg.norm(curve - head, axis=1))
    curve = curve[away > min(NODE, 0.3 * length)]
    aim = curve[-1] - curve[-4]
    return curve, aim / max(float(np.linalg.norm(aim)), 1e-12)


def _tip(place: np.ndarray, aim: np.ndarray, size: float, colour: str) -> dict[str, Any]:
    side = np.array([-aim[1], aim[0]])
    x, y = np.array(
        [place + 0.4 * size * aim, place - size * aim + 0.45 * size * side, place - size * aim - 0.45 * size * side]
    ).T
    style = {"mode": "lines", "fill": "toself", "fillcolor": colour, "line": {"color": colour, "width": 0.5}}
    return {"type": "scatter", "x": x, "y": y, "hoverinfo": "skip", **style}


def _nodes(places: np.ndarray, names: Sequence[str], sizes: np.ndarray) -> dict[str, Any]:
    area = np.sqrt(sizes / max(float(sizes.max()), 1e-12))
    marker = {"size": 10 + 10 * area, "color": "@ink", "line": {"color": "@paper", "width": 2}}
    # Names stand on the far side of the centre, away from the edges.
    centre = places.mean(0)
    spots = [_spot(*(place - centre)) for place in places]
    text = {"text": list(names), "textposition": spots, "textfont": {"size": 14, "color": "@ink"}}
    hover = {
        "hovertext": [f"{name}, {100 * size:.0f} % of the samples" for name, size in zip(names, sizes, strict=True)]
    }
    node = {"type": "scatter", "mode": "markers+text", "x": places[:, 0], "y": places[:, 1], "cliponaxis": False}
    return node | {"marker": marker, "hoverinfo": "text"} | text | hover


def _spot(x: float, y: float) -> str:
    if abs(y) > 0.6 * abs(x):
        return "top center" if y >= 0 else "bottom center"
    return "middle right" if x >= 0 else "middle left"
