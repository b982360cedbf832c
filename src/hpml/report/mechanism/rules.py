"""Sections on update rules: exploitability by field evaluations, where dropping hurts, one shared reward."""

from collections.abc import Sequence

import numpy as np

from hpml.geometry.arrays import Array
from hpml.mechanism.bridge import Bridge
from hpml.mechanism.comparison import GameComparison
from hpml.mechanism.harm import Harm
from hpml.report.figures.bars import bars
from hpml.report.figures.curves import Curve, curves
from hpml.report.page import Section
from hpml.report.parts import Mark, TablePart

FLOOR = 1e-12  # below this a logarithmic axis shows rounding
WORSE, SMALL = 1.25, 1e-3  # dropping hurts where it leaves so many times what raw ascent leaves, and more than this


def comparison_section(found: Sequence[GameComparison]) -> Section:
    """Every rule."""
    words = (
        "Exploitability over the field evaluations spent, not over steps: extragradient evaluates twice a step, "
        "products with the Jacobian count as two evaluations each, and HPML's samples count before its first step. "
        "Every rule takes the best of the same four steps, chosen on starts that are not shown."
    )
    parts: list = []
    for game in found:
        series = [
            Curve(c.name, np.asarray(c.evaluations), _shown(c.last.median), _shown(c.last.low), _shown(c.last.high))
            for c in game.curves
        ]
        caption = (
            "Median of the last iterate, with quartiles over the starts. Lower is better; a click on a name hides it."
        )
        parts.append(curves(series, game.name, caption, "field evaluations", "exploitability", y_log=True, height=440))
        best = min(float(c.last.median[-1]) for c in game.curves)
        rows = [
            [
                c.name,
                c.step,
                Mark(f"{c.last.median[-1]:.2g}")
                if c.last.median[-1] <= max(best, FLOOR)
                else f"{c.last.median[-1]:.2g}",
                "–" if c.average is None else f"{c.average.median[-1]:.2g}",
            ]
            for c in game.curves
        ]
        note = f"After {game.budget} evaluations. Average: the mean of all iterates."
        parts.append(TablePart(["rule", "step", "last iterate", "average"], rows, note))
    return Section("Every update rule, by field evaluations", [words], parts)


def harm_section(found: Sequence[Harm]) -> Section:
    """Where dropping hurts."""
    hurt = [game.name for game in found if _hurts(game)]
    words = (
        "Dropping the residual changes the rest points. Where the residual is small nothing happens; where the game is "
        "the residual, what is left is not the game. Treating the residual keeps the equilibria."
    )
    verdict = (
        f"Dropping leaves at least a quarter more than raw ascent in: {', '.join(hurt)}."
        if hurt
        else "It hurts in none of these games."
    )
    slow = [game.name for game in found if _left(game, "adjust") > max(WORSE * _left(game, "raw"), SMALL)]
    if slow:
        verdict += f" Adjusting is slower than raw ascent in: {', '.join(slow)}."
    kinds = [trace.name for trace in found[0].traces]
    rows = [
        [
            game.name,
            f"{game.nonpotentiality:.3f}",
            *(
                Mark(f"{t.exploitable:.3f}", "bad") if t.name == "drop" and _hurts(game) else f"{t.exploitable:.3f}"
                for t in game.traces
            ),
        ]
        for game in found
    ]
    note = "Exploitability after the same number of steps, median over the starts, one step size for all; 200 samples."
    names = ["game", "NonPot", *("dropped" if kind == "drop" else kind for kind in kinds)]
    return Section("Where dropping the residual hurts", [words, verdict], [TablePart(names, rows, note)])


def bridge_section(found: Bridge) -> Section:
    """One shared reward."""
    words = (
        "Markov games in which all agents get one reward. Followed as one exact joint gradient the field is that of "
        "the return, and nothing circulates. The same games updated in blocks, one agent after the other, or with a "
        "critic that looks less far ahead do have a residual: sharing the reward is not enough."
    )
    names = list(found.random)
    low, high = ({"random games": np.array([pick(found.random[n]) for n in names])} for pick in (np.min, np.max))
    alone = np.array([found.relay[n] for n in names])
    figure = bars(
        names,
        {"relay": alone, "random games": np.array([found.random[n].mean() for n in names])},
        "One reward, four ways to update",
        "The share of the Jacobian's energy that is antisymmetric, with the range over the random games. What to see: "
        "exactly zero for exact joint gradients, and for nothing else.",
        "antisymmetric share",
        {"relay": alone} | low,
        {"relay": alone} | high,
    )
    return Section("One shared reward is not enough", [words], [figure])


def _shown(values: Array) -> np.ndarray:
    return np.maximum(values, FLOOR)


def _hurts(game: Harm) -> bool:
    return _left(game, "drop") > max(WORSE * _left(game, "raw"), SMALL)


def _left(game: Harm, kind: str) -> float:
    return next(float(trace.exploitable or 0.0) for trace in game.traces if trace.name == kind)
