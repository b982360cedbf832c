"""The four panels of the paper's mechanism figure (`fig:part1`) as a drawing for PNG and PDF."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from hpml.report.drawings import encode
from hpml.report.figures.curves import Curve
from hpml.report.figures.simplex import CORNERS
from hpml.report.theme import LIGHT, Theme

RAW, PROJECTED = "residual", "potential"
"""The roles of the two colours: what turns, and what climbs."""


@dataclass(frozen=True)
class PlanePanel:
    """A plane field and its projection at `points` (n, 2), and runs that follow each, `raw_paths` and `paths`."""

    points: np.ndarray
    raw: np.ndarray
    projected: np.ndarray
    raw_paths: Sequence[np.ndarray] = ()
    paths: Sequence[np.ndarray] = ()
    x_label: str = "$z_1$"
    y_label: str = "$z_2$"
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class FourPanels:
    """What the figure shows, panel by panel.

    - `raw_simplex` and `simplex` are paths of probabilities (t, 3); `actions` names the corners.
    - `field` is the plane field -z + rho J z, `logistic` the logistic game on (p, q).
    - `cosine` holds one curve a projector: mean cosine to -z over `cosine_label`.
    """

    raw_simplex: Sequence[np.ndarray]
    simplex: Sequence[np.ndarray]
    field: PlanePanel
    logistic: PlanePanel
    cosine: Sequence[Curve]
    actions: Sequence[str] = ("rock", "paper", "scissors")
    cosine_label: str = "samples $n$"
    cosine_log: bool = True


def write_panels(panels: FourPanels, folder: Path, name: str = "panels") -> list[Path]:
    """Write the figure as PNG and PDF and return both paths."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = draw_panels(panels)
    paths = []
    for kind in ("png", "pdf"):
        path = folder / f"{name}.{kind}"
        path.write_bytes(encode(figure, kind, dpi=200))
        paths.append(path)
    return paths


def draw_panels(panels: FourPanels, theme: Theme = LIGHT) -> Figure:
    """Four panels in a row, as wide as a page of two columns."""
    small = {"font.size": 8, "axes.titlesize": 9, "axes.linewidth": 0.6, "xtick.labelsize": 7, "ytick.labelsize": 7}
    with matplotlib.rc_context(theme.settings() | small):  # type: ignore[arg-type]
        figure = Figure(figsize=(7.6, 2.35))
        axes = figure.subplots(1, 4, gridspec_kw={"wspace": 0.34})
        figure.subplots_adjust(left=0.015, right=0.985, top=0.89, bottom=0.3)
        _simplex(axes[0], panels, theme)
        _plane(axes[1], panels.field, theme)
        _plane(axes[2], panels.logistic, theme)
        _cosine(axes[3], panels, theme)
        titles = ("(a) RPS simplex", "(b) 2D field", "(c) Logistic game", "(d) 3D projection")
        for ax, title in zip(axes, titles, strict=True):
            ax.set_title(title, pad=5)
        handles = [
            Line2D([], [], color=getattr(theme, RAW), linewidth=1.6, label="raw"),
            Line2D([], [], color=getattr(theme, PROJECTED), linewidth=1.6, label="projected"),
            Line2D([], [], color=theme.soft, marker="o", mfc=theme.paper, linestyle="", markersize=4, label="start"),
            Line2D([], [], color=theme.soft, marker="o", linestyle="", markersize=4, label="end"),
        ]
        figure.legend(handles=handles, loc="lower left", ncols=4, bbox_to_anchor=(0.14, 0.0), **_quiet())
        columns = 2 if len(panels.cosine) <= 4 else 3
        place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1.0, -0.01), "ncols": columns}
        entries, names = axes[3].get_legend_handles_labels()
        figure.legend(entries, names, fontsize=6.5, labelspacing=0.25, **place, **_quiet())
        return figure


def _simplex(ax: Axes, panels: FourPanels, theme: Theme) -> None:
    closed = CORNERS[[0, 1, 2, 0]]
    ax.plot(*closed.T, color=theme.faint, linewidth=0.9)
    groups = ((panels.raw_simplex, getattr(theme, RAW)), (panels.simplex, getattr(theme, PROJECTED)))
    for paths, colour in groups:
        for path in paths:
            _path(ax, np.asarray(path) @ CORNERS, colour, theme)
    spots = ((0.0, -0.05, "left", "top"), (1.0, -0.05, "right", "top"), (0.5, 0.9, "center", "bottom"))
    for action, (x, y, across, up) in zip(panels.actions, spots, strict=True):
        ax.text(x, y, action, ha=across, va=up, fontsize=7.5)
    ax.set(aspect="equal", xlim=(-0.04, 1.04), ylim=(-0.1, 0.98))
    ax.set_axis_off()


def _plane(ax: Axes, panel: PlanePanel, theme: Theme) -> None:
    longest = float(np.linalg.norm(panel.raw, axis=1).max()) or 1.0
    low = panel.points.min(0) if panel.limits is None else np.full(2, panel.limits[0])
    high = panel.points.max(0) if panel.limits is None else np.full(2, panel.limits[1])
    edge = 0.07 * (high - low) if panel.limits is None else np.zeros(2)
    reach = 0.15 * float((high - low).max())
    arrows: dict[str, Any] = {"angles": "xy", "scale_units": "xy", "scale": longest / reach, "pivot": "mid"}
    arrows |= {"width": 0.009, "headwidth": 3.4, "headlength": 3.6, "headaxislength": 3.2, "minlength": 0.2}
    ax.quiver(*panel.points.T, *panel.raw.T, color=getattr(theme, RAW), alpha=0.45, **arrows)
    ax.quiver(*panel.points.T, *panel.projected.T, color=getattr(theme, PROJECTED), alpha=0.6, **arrows)
    for paths, colour in ((panel.raw_paths, getattr(theme, RAW)), (panel.paths, getattr(theme, PROJECTED))):
        for path in paths:
            _path(ax, np.asarray(path), colour, theme)
    ax.set(aspect="equal", xlim=(low[0] - edge[0], high[0] + edge[0]), ylim=(low[1] - edge[1], high[1] + edge[1]))
    ax.set_xlabel(panel.x_label, labelpad=1)
    ax.set_ylabel(panel.y_label, labelpad=1)
    ax.locator_params(nbins=3)
    ax.tick_params(length=2, pad=2)


def _cosine(ax: Axes, panels: FourPanels, theme: Theme) -> None:
    for place, curve in enumerate(panels.cosine):
        # The first two colours mean raw and projected.
        colour = curve.colour if curve.colour.startswith("#") else theme.series[2 + place % (len(theme.series) - 2)]
        style = "--" if curve.dash else "-"
        ax.plot(curve.x, curve.y, style, color=colour, linewidth=1.4, marker="o", markersize=2.5, label=curve.name)
        if curve.low is not None and curve.high is not None:
            ax.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.15, linewidth=0)
    if panels.cosine_log:
        ax.set_xscale("log")
    places = np.unique(np.concatenate([np.asarray(curve.x, float) for curve in panels.cosine]))
    if len(places) <= 5:
        ax.set_xticks(places, [f"{place:g}" for place in places])
        ax.minorticks_off()
    ax.set_xlabel(panels.cosine_label, labelpad=1)
    ax.set_ylabel("cosine to $-z$", labelpad=2)
    ax.set_ylim(top=1.03)
    ax.set_box_aspect(1)
    ax.grid(color=theme.grid, linewidth=0.6)
    ax.tick_params(length=2, pad=2, which="both")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)


def _path(ax: Axes, path: np.ndarray, colour: str, theme: Theme) -> None:
    ax.plot(*path.T, color=colour, linewidth=1.3 if len(path) <= 100 else 0.9, solid_capstyle="round")
    ax.plot(*path[0], "o", color=colour, markerfacecolor=theme.paper, markersize=4, markeredgewidth=1.0, zorder=4)
    ax.plot(*path[-1], "o", color=colour, markersize=4, zorder=4)


def _quiet() -> dict[str, Any]:
    return {"frameon": False, "handlelength": 1.4, "handletextpad": 0.5, "columnspacing": 1.2}
