"""The paper's four panels go on paper: both files are written, fonts stay text, and each panel shows its paths."""

import numpy as np
from matplotlib.colors import to_hex

from hpml.report.figures.curves import Curve
from hpml.report.static import FourPanels, PlanePanel, draw_panels, write_panels
from hpml.report.theme import LIGHT


def panels():
    points = np.array([[x, y] for x in (-1.0, 0.0, 1.0) for y in (-1.0, 0.0, 1.0)])
    turned = points @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    path = np.linspace([1.0, 0.0], [0.0, 0.0], 9)
    plane = PlanePanel(points, turned - points, -points, [path], [path[::-1]])
    square = PlanePanel(points / 2 + 0.5, turned, -points, x_label="$p$", y_label="$q$", limits=(0.0, 1.0))
    simplex = np.linspace([0.6, 0.2, 0.2], [0.3, 0.3, 0.4], 12)
    n = np.array([30, 100, 300])
    cosine = [Curve("graph (paper)", n, n / 400), Curve("kernel", n, 1 - 1 / n, 1 - 2 / n, np.ones(3))]
    return FourPanels([simplex], [simplex[:4]], plane, square, cosine)


def test_both_files_are_written_with_fonts_as_text(tmp_path):
    image, document = write_panels(panels(), tmp_path)
    assert image.read_bytes().startswith(b"\x89PNG")
    content = document.read_bytes()
    assert content.startswith(b"%PDF")
    assert b"/Type3" not in content  # journals refuse them
    assert b"/Type0" in content
    assert content == write_panels(panels(), tmp_path / "again")[1].read_bytes()


def test_each_panel_shows_raw_against_projected():
    figure = draw_panels(panels())
    axes = figure.axes
    assert [ax.get_title()[:3] for ax in axes] == ["(a)", "(b)", "(c)", "(d)"]
    for ax in axes[:2]:
        assert {to_hex(line.get_color()) for line in ax.lines} >= {LIGHT.residual, LIGHT.potential}
    assert [line.get_label() for line in axes[3].lines] == ["graph (paper)", "kernel"]
    assert axes[3].get_xscale() == "log"
    assert axes[2].get_xlim() == (0.0, 1.0)
