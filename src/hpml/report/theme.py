"""Colours and type of every figure, once for light pages and once for dark ones."""

from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, ListedColormap


@dataclass(frozen=True)
class Theme:
    """Ink, paper, the grey of contours, and the colours of magnitudes from weak to strong."""

    name: str
    ink: str
    paper: str
    faint: str
    magnitudes: Colormap

    def settings(self) -> dict[str, object]:
        """The matplotlib settings of the theme."""
        return {
            "font.size": 11,
            "text.color": self.ink,
            "axes.labelcolor": self.ink,
            "axes.edgecolor": self.faint,
            "axes.titlecolor": self.ink,
            "xtick.color": self.ink,
            "ytick.color": self.ink,
            "figure.facecolor": self.paper,
            "axes.facecolor": self.paper,
            "savefig.facecolor": self.paper,
            "pdf.fonttype": 42,
        }


def _part(name: str, low: float, high: float) -> ListedColormap:
    # The pale end of a map vanishes on paper of its own colour.
    return ListedColormap(colormaps[name](np.linspace(low, high, 256)))


LIGHT = Theme("light", "#1b1f24", "#ffffff", "#b9c0c8", _part("YlGnBu", 0.38, 1.0))
DARK = Theme("dark", "#e6e9ed", "#14171b", "#555d66", _part("YlGnBu_r", 0.25, 0.9))
