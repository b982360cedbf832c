"""Colours and type of every figure, once for light pages and once for dark ones.

Interactive figures name colours by role ("@ink", "@s0", "@potential/0.2" with an opacity) and the page fills them in
for the reader's screen; drawings on paper take the same colours from here.
"""

from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Colormap, ListedColormap, to_hex

SHADES = 16
"""How many colours of magnitude there are: "@m0" is the weakest, "@m15" the strongest."""


@dataclass(frozen=True)
class Theme:
    """Ink and paper, greys, the colours of magnitudes from weak to strong, and a set of colours for series.

    The series are Okabe and Ito's, which people with any colour vision tell apart, lightened for dark pages.
    """

    name: str
    ink: str
    paper: str
    panel: str
    soft: str
    faint: str
    grid: str
    potential: str
    residual: str
    good: str
    bad: str
    magnitudes: Colormap
    series: tuple[str, ...]

    def shades(self) -> list[str]:
        """The colours of magnitudes as a list."""
        return [to_hex(self.magnitudes(level)) for level in np.linspace(0.0, 1.0, SHADES)]

    def roles(self) -> dict[str, object]:
        """Every name that a figure may use for a colour."""
        names = ("ink", "paper", "panel", "soft", "faint", "grid", "potential", "residual", "good", "bad")
        shades = self.shades()
        scale = [[place / (SHADES - 1), shade] for place, shade in enumerate(shades)]
        signed = [[0.0, self.potential], [0.5, self.panel], [1.0, self.residual]]
        return (
            {name: getattr(self, name) for name in names}
            | {f"s{place}": colour for place, colour in enumerate(self.series)}
            | {f"m{place}": colour for place, colour in enumerate(shades)}
            | {"magnitudes": scale, "signed": signed}
        )

    def variables(self) -> str:
        """The colours as custom properties of a style sheet."""
        plain = {name: colour for name, colour in self.roles().items() if isinstance(colour, str)}
        gradients = {
            "magnitudes": ", ".join(self.shades()),
            "signed": f"{self.potential}, {self.panel}, {self.residual}",
        }
        lines = [f"--{name}: {colour};" for name, colour in plain.items()]
        lines += [f"--{name}: linear-gradient(90deg, {colours});" for name, colours in gradients.items()]
        return " ".join(lines)

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
        }


def _part(name: str, low: float, high: float) -> ListedColormap:
    # The pale end of a map vanishes on paper of its own colour.
    return ListedColormap(colormaps[name](np.linspace(low, high, 256)))


LIGHT = Theme(
    name="light",
    ink="#1b1f24",
    paper="#ffffff",
    panel="#f5f7f9",
    soft="#57606a",
    faint="#b9c0c8",
    grid="#e7ebef",
    potential="#0072b2",
    residual="#d55e00",
    good="#00704f",
    bad="#b3261e",
    magnitudes=_part("YlGnBu", 0.38, 1.0),
    series=("#0072b2", "#d55e00", "#009e73", "#b0568f", "#c58800", "#3aa0dc", "#5b646e", "#7a4a1e"),
)
DARK = Theme(
    name="dark",
    ink="#e6e9ed",
    paper="#14171b",
    panel="#1d2126",
    soft="#a3acb6",
    faint="#555d66",
    grid="#2a3037",
    potential="#56b4e9",
    residual="#ff8f4a",
    good="#4fd1a5",
    bad="#ff8a80",
    magnitudes=_part("YlGnBu_r", 0.25, 0.9),
    series=("#56b4e9", "#ff8f4a", "#2cc79a", "#e39bc6", "#f0c04a", "#9ad6ff", "#a3acb6", "#c99a6b"),
)
