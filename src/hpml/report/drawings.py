"""The split of a field as a drawing: arrows coloured by magnitude on one scale, the potential's contours under them."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from PIL import Image

from hpml.mechanism.portraits import Split
from hpml.report.theme import LIGHT, Theme


def draw_split(split: Split, columns: int = 3, theme: Theme = LIGHT) -> Figure:
    """The field, its potential part and its residual side by side, or stacked with `columns=1`."""
    panels = [
        ("F, the joint update", split.field, split),
        ("potential part", split.direction, split),
        ("residual, the circulation", split.residual, split),
    ]
    return _draw(panels, columns, theme, side=3.4)


def encode(figure: Figure, kind: str, dpi: int = 110) -> bytes:
    """The figure as a file's bytes; no dates inside, so that equal figures are equal files."""
    buffer = BytesIO()
    if kind == "png":
        figure.savefig(buffer, format=kind, dpi=dpi)
        # A palette makes the file a quarter of the size, and no eye sees it in line art.
        small = Image.open(buffer).convert("RGB").quantize(96, dither=Image.Dither.NONE)
        buffer = BytesIO()
        small.save(buffer, format=kind, optimize=True)
    else:
        # Journals refuse Type 3 fonts; the setting is read when the file is written.
        with matplotlib.rc_context({"pdf.fonttype": 42}):
            figure.savefig(buffer, format=kind, metadata={"CreationDate": None})
    return buffer.getvalue()


def _draw(panels: Sequence[tuple[str, np.ndarray, Split]], columns: int, theme: Theme, side: float) -> Figure:
    with matplotlib.rc_context(theme.settings()):  # type: ignore[arg-type]
        rows = -(-len(panels) // columns)
        figure = Figure(figsize=(side * columns + 0.9, (side + 0.2) * rows), layout=ConstrainedLayoutEngine(h_pad=0.1))
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        # The field's own longest arrow sets the scale: one wild arrow of a bad answer would hide all others.
        scale = Normalize(0.0, max(np.linalg.norm(split.field, axis=1).max() for _, _, split in panels))
        for ax, (title, vectors, split) in zip(axes, panels, strict=False):
            arrows = _panel(ax, title, vectors, split, scale, theme)
        for ax in axes[len(panels) :]:
            ax.set_axis_off()
        cut = any(np.linalg.norm(vectors, axis=1).max() > 1.001 * (scale.vmax or 0.0) for _, vectors, _ in panels)
        extend = "max" if cut else "neither"
        bar = figure.colorbar(arrows, ax=list(axes), extend=extend, fraction=0.03, shrink=0.8, aspect=30, pad=0.01)
        bar.locator = MaxNLocator(5)
        bar.set_label("length of the arrow")
        bar.outline.set_edgecolor(theme.faint)  # type: ignore[operator]
        return figure


def _panel(ax: Axes, title: str, vectors: np.ndarray, split: Split, scale: Normalize, theme: Theme):
    ax.set_title(title, fontsize=11)
    low, high = np.nanmin(split.potential), np.nanmax(split.potential)
    if high > low:
        levels = np.linspace(low, high, 11)[2:-1]  # the lowest ones would be cut by the rim
        ax.contour(split.axis, split.axis, split.potential, levels, colors=theme.faint, linewidths=0.9, linestyles="-")
    reach = 0.27  # of the longest arrow: a little more than the lattice's spacing
    style: dict[str, Any] = {
        "width": 0.008,
        "headwidth": 3.6,
        "headlength": 3.6,
        "headaxislength": 3.2,
        "minlength": 0.1,
    }
    length = np.linalg.norm(vectors, axis=1)
    drawn = vectors * np.minimum(1.0, (scale.vmax or 1.0) / np.maximum(length, 1e-300))[:, None]
    arrows = ax.quiver(
        *split.points.T,
        *drawn.T,
        length,
        cmap=theme.magnitudes,
        norm=scale,
        pivot="mid",
        angles="xy",
        scale_units="xy",
        scale=(scale.vmax or 1.0) / reach,
        **style,
    )
    circle = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(circle), np.sin(circle), color=theme.faint, linewidth=0.9)
    ax.set(aspect="equal", xlim=(-1.08, 1.08), ylim=(-1.08, 1.08), xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)
    return arrows
