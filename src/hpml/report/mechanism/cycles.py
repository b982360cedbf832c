"""Sections on cyclic games: the runs on the simplex, the optimum away from the middle, the loops by name."""

from collections.abc import Mapping, Sequence

import numpy as np

from hpml.mechanism.cycles import CycleRuns
from hpml.mechanism.loops import NamedLoops
from hpml.mechanism.traces import Trace
from hpml.report.figures.cycle import cycle_graph
from hpml.report.figures.layout import Track
from hpml.report.figures.simplex import Simplex, simplex_plot
from hpml.report.page import Section
from hpml.report.parts import FigurePart, TablePart

DRAWN = 3  # starts that are drawn
POINTS = 400  # along a path


def cycle_section(runs: CycleRuns) -> Section:
    """Rock-paper-scissors."""
    raw = runs.traces[0]
    kernel = next(t for t in runs.traces if t.name.startswith("dropped, kernel"))
    treated = runs.traces[-1]
    words = (
        "Two agents, each with a mix of rock, paper and scissors; the picture shows the first agent's. Raw ascent "
        f"keeps going round: the last 100 points of a run are up to **{raw.diameter:.2f}** apart. With the residual "
        f"dropped, as in the paper, the run stands still (**{kernel.diameter:.3f}**), but not at the equilibrium: "
        f"{kernel.exploitable:.2f} is left of the exploitability. With the residual adjusted instead, the run arrives: "
        f"exploitability **{treated.exploitable:.4f}**."
    )
    why = (
        "Why dropping stops elsewhere: rotation that crosses the boundary of the simplex has a true gradient part "
        "under the uniform law, and the projection climbs that hill. The projection is right; the game's equilibrium "
        "is just not its top."
    )
    caption = "Open circles are starts, full ones ends. What to see: raw orbits, dropped runs that stop, treated runs "
    return Section(
        "Rock-paper-scissors",
        [words, why],
        [_simplices(runs, "Raw, dropped and treated", caption + "that meet in the middle."), run_table(runs.traces)],
    )


def optimum_section(runs: CycleRuns) -> Section:
    """The cycle with an optimum."""
    kernel = next(k for k, t in enumerate(runs.traces) if t.name.startswith("dropped, kernel"))
    words = (
        "The same cycle with a pull to a mix away from the middle. Standing still fails here: the run has to get "
        "there. The law is uniform on the ball that fits into the simplices, where the rotation is orthogonal to "
        "every gradient, so that the exact projection is the pull. The projected run ends "
        f"**{runs.distances[kernel]:.3f}** from the potential's optimum, the raw one goes round "
        f"({runs.distances[0]:.2f}). The equilibrium of the whole game is another point: the treated run goes there."
    )
    extra = {"distance to the optimum": runs.distances}
    caption = "What to see: the dropped run of the kernel projector ends at the optimum, whatever the rotation."
    return Section(
        "A cycle with an optimum",
        [words],
        [_simplices(runs, "A pull beside the cycle", caption), run_table(runs.traces, extra)],
    )


def loops_section(found: Sequence[NamedLoops]) -> Section:
    """Which strategies form the circle."""
    words = (
        "Samples are grouped by what each agent mostly plays; the field's cyclic flow between the groups is a sum of "
        "loops, and a loop's share is the part of the circulation's energy that it carries."
    )
    parts: list = []
    for game in found:
        strongest = [(loop.nodes, loop.share) for loop in game.loops]
        caption = "Arrows are the cyclic flow between conventions; the bands are the strongest loops."
        flow = game.graph.flow
        parts.append(
            cycle_graph(
                game.graph.names, np.asarray(flow.edges), np.asarray(flow.cyclic), strongest, game.name, caption
            )
        )
    rows = [
        [game.name, f"{game.nonpotentiality:.2f}", ", ".join(f"{s:.2f}" for s in np.asarray(game.planes.strengths))]
        for game in found
    ]
    note = (
        "NonPot: the share of the field's energy that circulates. Disc planes: the turning rates of the antisymmetric "
        "part of the Jacobian at rest, a plane each."
    )
    parts.append(TablePart(["game", "NonPot", "disc planes turn at"], rows, note))
    return Section("Which strategies form the circle", [words], parts)


def small(value: float | None) -> str | None:
    """Four decimals: what is smaller is rounding to a reader."""
    return None if value is None else f"{value:.4f}" if value < 10 else f"{value:.1f}"


def _simplices(runs: CycleRuns, title: str, caption: str) -> FigurePart:
    panels = {}
    for trace, mixes in zip(runs.traces, runs.mixes, strict=True):
        colour = "@residual" if trace.name == "raw" else "@potential" if trace.name.startswith("dropped") else "@s2"
        kind = trace.name.split(",")[0]
        thin = max(1, len(mixes) // POINTS)
        panels[trace.name] = Simplex([Track(kind, mixes[::thin, k], colour) for k in range(min(DRAWN, mixes.shape[1]))])
    return simplex_plot(panels, runs.labels, title, caption, columns=4)


def run_table(traces: Sequence[Trace], extra: Mapping[str, Sequence[float]] | None = None) -> TablePart:
    """The figures of runs, a row each, with `extra` columns."""
    extra = extra or {}
    columns = ["run", "orbit diameter", "path length", "NonPot", "gap", "exploitability", *extra, "evaluations"]
    rows = [
        [
            t.name,
            small(t.diameter),
            small(t.length),
            t.nonpotentiality,
            small(t.gap),
            small(t.exploitable),
            *(values[k] for values in extra.values()),
            int(t.evaluations[-1]),
        ]
        for k, t in enumerate(traces)
    ]
    note = (
        "Medians over the starts. Orbit diameter: the largest distance between two of the last points. Gap: the "
        "Stampacchia gap of the game at the end. Evaluations of the field for one start, with the projection's samples."
    )
    return TablePart(columns, rows, note)
