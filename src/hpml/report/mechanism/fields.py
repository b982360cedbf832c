"""Sections on fields with a known split: the 2-D swirl, the logistic game, the 3-D test, the sweeps over rho."""

from collections.abc import Sequence

import numpy as np

from hpml.mechanism.accuracy import Accuracy
from hpml.mechanism.config import OURS, PAPER
from hpml.mechanism.portraits import PortraitRuns, Split
from hpml.mechanism.sweeps import Sweep
from hpml.report.figures.curves import Curve, curves
from hpml.report.figures.layout import Track, grid
from hpml.report.figures.portrait import Portrait, portraits, split_portrait
from hpml.report.mechanism.cycles import run_table
from hpml.report.page import Section
from hpml.report.parts import FigurePart

DRAWN = 3
COLOURS = {"raw": "@residual", PAPER: "@s2", "graph": "@s3", OURS: "@potential", "neural": "@s5"}


def swirl_section(runs: PortraitRuns, rho: float) -> Section:
    """-z + rho J z."""
    share = rho**2 / (1 + rho**2)
    words = (
        f"F(z) = −z + ρ J z pulls to the centre and turns around it, with ρ = {rho:g}. On the disc the turning part is "
        "orthogonal to every gradient: the exact potential part is −z, and the exact share of circulation is "
        f"{share:.3f}."
    )
    angle = np.linspace(0, 2 * np.pi, 121)
    rim = np.stack([np.cos(angle), np.sin(angle)], 1)
    return Section("A pull and a turn", [words], _portrait_parts(runs, "z₁", "z₂", rim))


def logistic_section(runs: PortraitRuns) -> Section:
    """The logistic game."""
    words = (
        "Matching pennies with logits as parameters, drawn on the probabilities (p, q) of each agent's first action. "
        "The projection is taken on the logits, uniform between −4 and 4. Raw ascent spirals outwards; the projected "
        "field hardly moves, because almost nothing of this game is a hill."
    )
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    return Section("The logistic 2x2 game", [words], _portrait_parts(runs, "p", "q", square))


def accuracy_section(found: Accuracy) -> Section:
    """Cosine against n."""
    series = []
    for name, values in found.cosines.items():
        low, high = (values.min(1), values.max(1)) if values.shape[1] > 1 else (None, None)
        series.append(Curve(name, found.counts, values.mean(1), low, high, COLOURS[name], "both"))
    figure = curves(
        series,
        "Cosine to −z against the number of samples",
        f"Mean cosine at new points of the ball, ρ = {found.rho:g}; bands are the range over draws. What to see: the "
        "paper's graph stays where it is however many samples there are.",
        "samples",
        "mean cosine",
        x_log=True,
        y_range=(0.0, 1.02),
        lines={"the raw field": found.raw},
    )
    words = (
        "F(z) = −z + ρ S z in the unit ball with a known skew S: the exact potential part is −z. A graph with m "
        "edges over n nodes explains a share n/m of any flow, so a fixed number of neighbours leaks rotation into "
        "the potential."
    )
    return Section("How close each projector comes", [words], [figure])


def sweeps_section(sweeps: Sequence[Sweep]) -> Section:
    """The sweeps over rho."""
    worst = max(float(np.abs(s.shares[OURS] - s.exact).max()) for s in sweeps)
    words = (
        "The stronger the rotation, the more circulates and the longer raw runs take; projected runs should not "
        f"care. The share that the default projector finds is within **{worst:.3f}** of the exact one at every ρ, in "
        "2-D and 3-D."
    )
    panels: dict[str, FigurePart] = {}
    for sweep in sweeps:
        series = [Curve(n, sweep.rhos, v, colour=COLOURS[n], marks="both") for n, v in sweep.shares.items()]
        series.insert(0, Curve("exact", sweep.rhos, sweep.exact, colour="@ink", dash=True))
        panels[f"{sweep.name}, share of circulation"] = curves(series, "", "", "ρ", "NonPot", y_range=(-0.02, 1.02))
        for title, pick, log in (
            ("orbit diameter", lambda t: t.diameter, False),
            ("path length", lambda t: t.length, True),
            ("gap at the end", lambda t: t.gap, True),
        ):
            series = [
                Curve(n, sweep.rhos, np.array([pick(t) for t in ts]), colour=COLOURS[n], marks="both")
                for n, ts in sweep.traces.items()
            ]
            panels[f"{sweep.name}, {title}"] = curves(series, "", "", "ρ", title, y_log=log)
    figure = grid(
        panels,
        "Sweeps over the rotation",
        "Runs of 60 steps. What to see: the kernel's share lies on the exact one, and its runs are as short at ρ = 6 "
        "as at ρ = 0; the paper's projector leaves rotation in, and its runs grow with ρ. The gap is that of the whole "
        "field: dropping leaves what the rotation adds where the projected run stops.",
        columns=2,
    )
    return Section("Sweeps over the rotation", [words], [figure])


def _portrait_parts(runs: PortraitRuns, x: str, y: str, outline: np.ndarray) -> list:
    by_name = {split.name: split for split in runs.splits}
    tracks = dict(zip([t.name for t in runs.traces], runs.paths, strict=True))
    ours = by_name[OURS]
    lines = {
        "field": _tracks("raw", tracks["raw"], "@residual"),
        "direction": _tracks("projected", tracks[f"dropped, {OURS}"], "@potential"),
    }
    field = _portrait(ours, ours.field, outline)
    split = split_portrait(
        field,
        ours.direction,
        ours.residual,
        "F = potential part + residual",
        "One colour scale for all three; grey lines are level sets of the potential. What to see: raw runs turn, "
        "projected runs go straight.",
        x,
        y,
        lines,
    )
    panels = {
        name: _portrait(s, s.direction, outline, _tracks("projected", tracks[f"dropped, {name}"], "@potential"))
        for name, s in by_name.items()
    }
    both = portraits(
        panels,
        "The potential part, the paper's projector and ours",
        "From the same samples, on the colour scale above. What to see: the paper's recipe keeps part of the rotation.",
        x,
        y,
        columns=2,
        longest=float(np.linalg.norm(ours.field, axis=1).max()),
    )
    return [split, both, run_table(runs.traces)]


def _portrait(split: Split, vectors: np.ndarray, outline: np.ndarray, tracks: Sequence[Track] = ()) -> Portrait:
    return Portrait(split.points, vectors, split.axis, split.axis, split.potential, outline, tracks)


def _tracks(name: str, paths: np.ndarray, colour: str) -> list[Track]:
    return [Track(name, paths[:, k], colour) for k in range(min(DRAWN, paths.shape[1]))]
