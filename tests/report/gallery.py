"""A page with one figure of every kind, for the tests of the figures and of the page."""

import numpy as np

from hpml.report.figures.bars import bars, share_bar
from hpml.report.figures.curves import Curve, curves
from hpml.report.figures.cycle import cycle_graph
from hpml.report.figures.heat import heat_map
from hpml.report.figures.layout import Track, grid
from hpml.report.figures.portrait import Portrait, split_portrait
from hpml.report.figures.samples import sample_map
from hpml.report.figures.simplex import Simplex, simplex_plot
from hpml.report.figures.space import Space, space_plot
from hpml.report.page import Fact, Page, Section
from hpml.report.parts import CodePart, ListPart, Mark, TablePart

TURN = np.array([[0.0, -1.0], [1.0, 0.0]])
POINTS = np.array([[x, y] for x in (-0.8, -0.3, 0.3, 0.8) for y in (-0.8, -0.3, 0.3, 0.8)])
FIELD = -POINTS + 2.0 * POINTS @ TURN.T


def portrait_part():
    angle = np.linspace(0.0, 2 * np.pi, 60)
    axis = np.linspace(-1.0, 1.0, 15)
    potential = -(axis[None] ** 2 + axis[:, None] ** 2) / 2
    spiral = np.exp(-0.2 * angle)[:, None] * np.stack([np.cos(angle), np.sin(angle)], -1)
    rim = np.stack([np.cos(angle), np.sin(angle)], -1)
    field = Portrait(POINTS, FIELD, axis, axis, potential, rim, [Track("raw", spiral, "@residual")])
    return split_portrait(field, -POINTS, FIELD + POINTS, "F = potential part + residual", "The right one turns.")


def simplex_part():
    angle = np.linspace(0.0, 6.0, 80)
    circle = 1 / 3 + 0.2 * np.stack([np.cos(angle + shift) for shift in (0.0, 2.1, 4.2)], -1)
    circle /= circle.sum(1, keepdims=True)
    still = np.linspace(circle[0], np.full(3, 1 / 3), 20)
    points = np.array([[0.2, 0.3, 0.5], [0.5, 0.2, 0.3], [0.3, 0.5, 0.2]])
    vectors = np.roll(points, 1, axis=1) - points
    panels = {
        "raw": Simplex([Track("raw", circle)], points, vectors),
        "projected": Simplex([Track("projected", still)]),
    }
    return simplex_plot(panels, ["rock", "paper", "scissors"], "The simplex", "The raw run goes round.", columns=2)


def cycle_part():
    return cycle_graph(
        ["rock", "paper", "scissors", "well"],
        np.array([[0, 1], [2, 1], [0, 2], [0, 3], [3, 1]]),
        np.array([1.0, -0.9, -0.8, 0.3, 0.2]),
        [((0, 1, 2), 0.71), ((0, 3, 1, 2), 0.29)],
        "Who beats whom",
        "Follow the orange band.",
        sizes=np.array([0.4, 0.3, 0.2, 0.1]),
    )


def curves_part():
    x = np.array([1.0, 10.0, 100.0, 1000.0])
    series = [
        Curve("raw", x, np.array([1.0, 0.9, 0.8, 0.9])),
        Curve("treated", x, np.array([1.0, 0.1, 0.01, 0.0]), np.zeros(4), np.array([2.0, 0.2, 0.02, 0.002])),
    ]
    lines = {"target": 1e-3}
    return curves(
        series, "Exploitability", "Lower is better.", "evaluations", "exploitability", True, True, lines=lines
    )


def bars_part():
    values = {"raw": np.array([0.9, 0.5]), "projected": np.array([0.3, 0.1])}
    low, high = {"raw": np.array([0.8, 0.4])}, {"raw": np.array([1.0, 0.7])}
    return bars(["small ρ", "large ρ"], values, "Orbit diameter", "Shorter is calmer.", "diameter", low, high)


def share_part():
    colours = {"potential": "@potential", "circulation": "@residual"}
    return share_bar({"potential": 0.3, "circulation": 0.7}, "Energy", "Most circulates.", colours)


def samples_part():
    return sample_map(POINTS, np.linalg.norm(POINTS, axis=1), "Samples", "The rim is strong.", "energy", "x", "y")


def space_part():
    points = np.array([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])
    path = np.linspace([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], 10)
    return space_plot({"F": Space(points, -points, [Track("path", path)])}, "In space", "Turn it.")


def heat_part():
    values = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0]])
    return heat_map(["a", "b", "c"], ["one", "two"], values, "Payoffs", "Orange wins.", "payoff", "x", "y", signed=True)


def grid_part():
    x = np.array([0.0, 1.0, 2.0])
    panels = {
        f"ρ = {rho}": curves([Curve("raw", x, rho * x)], "", "", "steps", "distance", height=200) for rho in (1, 2)
    }
    return grid(panels, "Several ρ", "The right one is steeper.", columns=2)


PARTS = {
    "portrait": portrait_part,
    "simplex": simplex_part,
    "cycle": cycle_part,
    "curves": curves_part,
    "bars": bars_part,
    "share": share_part,
    "samples": samples_part,
    "space": space_part,
    "heat": heat_part,
    "grid": grid_part,
}


def space_page():
    return Page("In space", "One view that the reader can turn.", [Section("The view", parts=[space_part()])])


def gallery():
    """Every kind but the view in space, which needs a graphics card or much patience."""
    names = [f"column {place}" for place in range(9)]
    table = TablePart(["rule", *names], [["raw", *range(8), Mark("fails", "bad")]], "A wide table.", "Numbers")
    sections = [
        Section("The <split>", ["With `code` & **strong** words."], [portrait_part(), table]),
        Section("Games", parts=[simplex_part(), "Words between parts.", cycle_part()]),
        Section("Curves", parts=[curves_part(), bars_part(), share_part(), grid_part()]),
        Section("Games", parts=[samples_part(), heat_part()]),
        Section("Next", parts=[ListPart(["do this", "then that"], ordered=True), CodePart("hpml list")]),
    ]
    return Page("Every kind of figure", "All of them, **once**.", sections, [Fact("0.80", "circulates")])
