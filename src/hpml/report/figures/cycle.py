"""The graph of conventions (`rem:convention_graph`): where the circulation goes, and which loops carry it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hpml.report.figures.arrows import GAP
from hpml.report.figures.layout import bare_axis, keys_of, layout
from hpml.report.parts import FigurePart, Panel, Scale
from hpml.report.theme import SHADES

NODE = 0.11
"""The radius around a node that edges keep away from."""
WIDE = 1.7
"""The picture's width over its height."""
BANDS = (("@residual", "@residual/0.32"), ("@s3", "@s3/0.32"), ("@s4", "@s4/0.36"), ("@s2", "@s2/0.32"))
"""The colours of the strongest loops, in the legend and as bands under the arrows."""


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
    flow_label: str = "cyclic flow along the edge",
) -> FigurePart:
    """Nodes with names, arrows from `edges[:, 0]` to `edges[:, 1]` where `flow` is positive and back where it is not.

    - `loops` are pairs of node numbers in order and the share of the circulation that they carry, strongest first;
      the `shown` strongest (at most four) are bands under the arrows and are named in the legend.
    - `positions` (k, 2) places the nodes; without it they stand on a circle, the strongest loop in its own order.
    - `sizes` (k,) are the shares of samples in each convention.
    """
    edges, flow = np.asarray(edges, int).reshape(-1, 2), np.asarray(flow, float)
    places = _circle(len(names), loops) if positions is None else _fitted(np.asarray(positions, float))
    # A flow of negative sign runs against its edge.
    tails, heads = np.where(flow[:, None] >= 0, edges, edges[:, ::-1]).T
    strength = np.abs(flow)
    strongest = max(float(strength.max(initial=0.0)), 1e-300)
    texts = [loop_text([names[node] for node in loop], share) for loop, share in loops[: min(shown, len(BANDS))]]
    used: dict[frozenset[int], int] = {}
    bands = [
        _band(places, list(loop), colour, text, used)
        for text, (loop, _), (_, colour) in zip(texts, loops, BANDS, strict=False)
    ]
    traces = [trace for band in reversed(bands) for trace in band]
    for place in np.argsort(strength):
        if strength[place] > 1e-3 * strongest:
            text = f"{names[tails[place]]} → {names[heads[place]]}: {strength[place]:.3g}"
            traces += _edge(places[tails[place]], places[heads[place]], strength[place] / strongest, text)
    traces.append(_nodes(places, names, sizes))
    order = np.argsort(-strength)
    return FigurePart(
        figure=(
            Panel(
                {"data": traces, "layout": _frame(places, WIDE)},
                aspect=WIDE,
                narrow_aspect=1.0,
                # Beside a node there is no room for its name on a phone.
                narrow={"layout": _frame(places, 1.0), "data": {len(traces) - 1: _above(places)}},
            ),
        ),
        caption=caption,
        data={
            "from": [names[node] for node in tails[order]],
            "to": [names[node] for node in heads[order]],
            "cyclic flow": strength[order],
        },
        title=title,
        alt=". ".join([f"A graph of {', '.join(names)} with arrows along the circulation", *texts, ""]).strip(),
        legend=keys_of(texts, [colour for colour, _ in BANDS[: len(texts)]], "area"),
        scale=Scale(flow_label, 0.0, strongest),
    )


def _circle(count: int, loops: Sequence[tuple[Sequence[int], float]]) -> np.ndarray:
    first = list(dict.fromkeys(loops[0][0])) if len(loops) else []
    order = first + [node for node in range(count) if node not in first]
    angle = np.pi / 2 - 2 * np.pi * np.arange(count) / max(count, 1)
    places = np.empty((count, 2))
    places[order] = np.stack([np.cos(angle), np.sin(angle)], -1)
    return places


def _fitted(places: np.ndarray) -> np.ndarray:
    centre = (places.max(0) + places.min(0)) / 2
    return (places - centre) / max(float(np.abs(places - centre).max()), 1e-12)


def _frame(places: np.ndarray, wide: float) -> dict[str, Any]:
    room = np.array([0.45, 0.22])  # for the names
    low, high = places.min(0) - room, places.max(0) + room
    height = max(float(high[1] - low[1]), float(high[0] - low[0]) / wide)
    x, y = (low + high) / 2
    across = bare_axis(x - wide * height / 2, x + wide * height / 2)
    up = bare_axis(y - height / 2, y + height / 2, scaleanchor="x", scaleratio=1)
    return layout(across, up, margin={"l": 2, "r": 2, "t": 2, "b": 2})


def _ends(tail: np.ndarray, head: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    ahead = head - tail
    length = max(float(np.linalg.norm(ahead)), 1e-12)
    aim = ahead / length
    gap = min(NODE, 0.3 * length)
    return tail + gap * aim, head - gap * aim, aim


def _edge(tail: np.ndarray, head: np.ndarray, share: float, text: str) -> list[dict[str, Any]]:
    colour = f"@m{min(int(share * SHADES), SHADES - 1)}"
    start, end, aim = _ends(tail, head)
    size = 0.07 + 0.06 * share
    side = np.array([-aim[1], aim[0]])
    neck = end - 0.8 * size * aim
    tip = np.array([end, end - size * aim + 0.4 * size * side, end - size * aim - 0.4 * size * side])
    style = {"fill": "toself", "fillcolor": colour, "line": {"color": colour, "width": 0.5}}
    along = start + np.linspace(0.1, 0.9, 15)[:, None] * (end - start)
    unseen = {"size": 14, "color": "rgba(0,0,0,0)"}
    return [
        _line(np.stack([start, neck])) | {"line": {"color": colour, "width": 1.0 + 3.5 * share}},
        _line(tip) | style,
        _line(along) | {"mode": "markers", "marker": unseen, "text": text, "hoverinfo": "text"},
    ]


def _band(
    places: np.ndarray, loop: Sequence[int], colour: str, text: str, used: dict[frozenset[int], int]
) -> list[dict[str, Any]]:
    """Wide, pale lines along a loop; on an edge that stronger loops use too, wider, so that it shows beside them."""
    widths: dict[int, list[np.ndarray]] = {}
    for tail, head in zip(loop, [*loop[1:], loop[0]], strict=True):
        start, end, _ = _ends(places[tail], places[head])
        before = used.get(frozenset((tail, head)), 0)
        used[frozenset((tail, head))] = before + 1
        widths.setdefault(14 + 12 * before, []).extend([np.stack([start, end]), GAP])
    group = {"legendgroup": text}
    return [
        _line(np.concatenate(lines)) | {"line": {"color": colour, "width": width}} | group
        for width, lines in widths.items()
    ]


def _line(points: np.ndarray) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines", "x": points[:, 0], "y": points[:, 1], "hoverinfo": "skip"}


def _nodes(places: np.ndarray, names: Sequence[str], sizes: np.ndarray | None) -> dict[str, Any]:
    area = np.full(len(names), 0.5) if sizes is None else np.sqrt(sizes / max(float(np.max(sizes)), 1e-12))
    hover = list(names)
    if sizes is not None:
        hover = [f"{name}, {100 * size:.0f} % of the samples" for name, size in zip(names, sizes, strict=True)]
    # Names stand on the far side of the centre, away from the edges.
    spots = [_spot(*(place - places.mean(0))) for place in places]
    text = {"text": list(names), "textposition": spots, "textfont": {"size": 14, "color": "@ink"}, "hovertext": hover}
    marker = {"size": 10 + 10 * area, "color": "@ink", "opacity": 1, "line": {"color": "@paper", "width": 2}}
    return _line(places) | {"mode": "markers+text", "marker": marker, "hoverinfo": "text", "cliponaxis": False} | text


def _above(places: np.ndarray) -> dict[str, Any]:
    up = places[:, 1] >= places[:, 1].mean()
    return {"textposition": np.where(up, "top center", "bottom center"), "textfont": {"size": 12}}


def _spot(x: float, y: float) -> str:
    if abs(x) < 0.25:
        return "top center" if y >= 0 else "bottom center"
    return "middle right" if x >= 0 else "middle left"
