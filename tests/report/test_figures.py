"""Figures show what they are given: plotly accepts them, arrows point along the field, data are the input's numbers."""

import copy
import re

import numpy as np
import plotly.graph_objects as go
import pytest
from report.gallery import FIELD, PARTS, POINTS, curves_part, cycle_part, portrait_part

from hpml.report.encode import _plain
from hpml.report.figures.arrows import arrow_traces, track_traces
from hpml.report.figures.curves import Curve, curves
from hpml.report.figures.cycle import cycle_graph, loop_text
from hpml.report.figures.layout import Track
from hpml.report.figures.simplex import Simplex, simplex_plot
from hpml.report.theme import DARK, LIGHT, SHADES


def painted(value, roles):
    """What the page's script does with the names of colours."""
    if isinstance(value, str) and (found := re.fullmatch(r"@(\w+)(?:/[\d.]+)?", value)):
        return roles[found[1]]
    if isinstance(value, dict):
        return {key: painted(entry, roles) for key, entry in value.items()}
    return [painted(entry, roles) for entry in value] if isinstance(value, list) else value


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("kind", PARTS)
def test_plotly_accepts_every_figure(kind, theme):
    for panel in PARTS[kind]().figure:
        spec = painted(copy.deepcopy(_plain(dict(panel.spec))), theme.roles())
        go.Figure(data=spec["data"], layout=spec["layout"])  # raises at any name or value that plotly does not know
        assert "@" not in str(spec["data"])


@pytest.mark.parametrize("kind", PARTS)
def test_every_figure_has_a_caption_words_and_equal_columns(kind):
    part = PARTS[kind]()
    assert part.caption
    assert part.title
    assert len({len(column) for column in part.data.values()}) == 1
    assert {trace.get("legendgroup") for panel in part.figure for trace in panel.spec["data"]} >= {
        key.name for key in part.legend
    }


def shapes(trace):
    """The corners of each arrow of a trace."""
    x, y = np.asarray(trace["x"], float), np.asarray(trace["y"], float)
    corners = np.stack([x, y], -1)
    return np.split(corners, np.flatnonzero(np.isnan(x)))


def test_arrows_point_along_the_field_and_are_as_long():
    vectors = FIELD
    longest = float(np.linalg.norm(vectors, axis=1).max())
    drawn = {}
    for trace in arrow_traces(POINTS, vectors, longest, reach=0.4):
        if trace.get("fill") == "toself":
            for shape in shapes(trace):
                corners = shape[~np.isnan(shape).any(1)]
                if len(corners):
                    tail, tip = (corners[0] + corners[6]) / 2, corners[3]
                    drawn[tuple(np.round((tail + tip) / 2, 6))] = (tip - tail, trace["fillcolor"])
    assert len(drawn) == len(POINTS)
    for point, vector in zip(POINTS, vectors, strict=True):
        arrow, colour = drawn[tuple(np.round(point, 6))]
        assert np.allclose(arrow, 0.4 * vector / longest)
        assert colour == f"@m{min(int(SHADES * np.linalg.norm(vector) / longest), SHADES - 1)}"


def test_a_wild_arrow_is_cut_to_the_scale():
    traces = arrow_traces(np.zeros((1, 2)), np.array([[50.0, 0.0]]), longest=1.0, reach=0.4)
    assert np.nanmax(traces[0]["x"]) - np.nanmin(traces[0]["x"]) == pytest.approx(0.4)


def test_a_path_shows_its_direction():
    path = np.stack([np.linspace(0.0, 1.0, 50), np.zeros(50)], -1)
    traces = track_traces(Track("run", path), "@s0", head=0.03)
    (heads,) = [trace for trace in traces if trace.get("fill") == "toself"]
    for shape in shapes(heads):
        corners = shape[~np.isnan(shape).any(1)]
        if len(corners):
            assert corners[3, 0] > corners[0, 0]
    start, end = traces[-2], traces[-1]
    assert (start["x"][0], end["x"][0]) == (0.0, 1.0)
    assert start["marker"]["color"] == "@paper"


def test_the_three_parts_share_one_scale_and_add_up():
    part = portrait_part()
    assert len(part.figure) == 3
    assert part.scale.high == pytest.approx(np.linalg.norm(FIELD, axis=1).max())
    rows = np.array([part.data[name] for name in ("u", "v")]).T
    arrows = np.array([kind == "arrow" for kind in part.data["kind"]])
    field, direction, residual = rows[arrows].astype(float).reshape(3, -1, 2)
    assert np.allclose(field, direction + residual)
    kinds = [{trace["type"] for trace in panel.spec["data"]} for panel in part.figure]
    assert ["contour" in kind for kind in kinds] == [True, True, False]


def test_edges_run_along_the_flow():
    data = cycle_part().data
    assert list(zip(data["from"], data["to"], strict=True))[:3] == [
        ("rock", "paper"),
        ("paper", "scissors"),
        ("scissors", "rock"),
    ]
    assert (np.asarray(data["cyclic flow"]) > 0).all()


def test_loops_are_named_with_their_share():
    text = loop_text(["rock", "paper", "scissors"], 0.71)
    assert text == "rock → paper → scissors, 71 % of the circulation"
    part = cycle_part()
    assert part.legend[0].name == text
    assert text in part.alt


def test_a_graph_without_flow_is_drawn_all_the_same():
    part = cycle_graph(["a", "b"], np.empty((0, 2)), np.empty(0), [], "No loop", "Nothing turns.")
    assert part.legend == ()
    assert len(part.data["from"]) == 0


def test_the_logarithm_leaves_out_what_it_cannot_show_and_the_data_keep_it():
    part = curves_part()
    lines = {trace["name"]: trace for trace in part.figure[0].spec["data"] if "name" in trace}
    assert np.isnan(lines["treated"]["y"][3])
    assert part.data["exploitability"][-1] == 0.0
    # A band down to zero would stretch the axis over three hundred decades.
    (band,) = [trace for trace in part.figure[0].spec["data"] if trace.get("fill") == "toself"]
    assert np.min(band["y"]) > 1e-6


def test_more_series_than_colours_differ_by_dashes():
    x = np.array([0.0, 1.0])
    part = curves([Curve(f"rule {place}", x, x) for place in range(12)], "Many", "All differ.", "x", "y")
    styles = {
        (trace["line"]["color"], trace["line"]["dash"]) for trace in part.figure[0].spec["data"] if "name" in trace
    }
    assert len(styles) == 12


def test_a_simplex_has_three_corners():
    with pytest.raises(ValueError, match="three corners"):
        simplex_plot({"one": Simplex()}, ["heads", "tails"], "Two", "No triangle.")


def test_the_map_of_a_simplex_puts_pure_actions_on_its_corners():
    pure = np.eye(3)
    part = simplex_plot({"one": Simplex([Track("run", pure)])}, ["a", "b", "c"], "Corners", "Round the rim.")
    line = next(trace for trace in part.figure[0].spec["data"] if trace.get("name") == "run")
    places = np.stack([line["x"], line["y"]], -1)
    sides = np.linalg.norm(places - np.roll(places, 1, axis=0), axis=1)
    assert np.allclose(sides, 1.0)


def test_series_colours_are_far_apart_for_any_colour_vision():
    """The first six differ in lightness or between blue and yellow, which red-green blindness leaves."""
    for theme in (LIGHT, DARK):
        rgb = np.array([[int(c[k : k + 2], 16) / 255 for k in (1, 3, 5)] for c in theme.series[:6]])
        light = rgb @ [0.2126, 0.7152, 0.0722]
        blue_yellow = rgb[:, 2] - rgb[:, :2].mean(1)
        apart = np.hypot(light[:, None] - light, blue_yellow[:, None] - blue_yellow) + np.eye(6)
        assert apart.min() > 0.05
