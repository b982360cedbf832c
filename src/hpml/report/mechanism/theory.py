"""Sections on what is exact: the decomposition of finite games, and the certificates."""

from collections.abc import Sequence

import numpy as np

from hpml.mechanism.certified import Certified
from hpml.mechanism.truth import Truth
from hpml.report.figures.curves import Curve, curves
from hpml.report.mechanism.fields import COLOURS
from hpml.report.page import Section
from hpml.report.parts import Mark, Part, TablePart

TONES = {"holds": "good", "fails": "bad", "assumption violated": "soft"}


def truth_section(found: Truth) -> Section:
    """The exact decomposition."""
    series = [Curve("harmonic share", found.shares, found.exact.mean(1), colour="@ink", dash=True)]
    for name, values in found.found.items():
        series.append(
            Curve(name, found.shares, values.mean(1), values.min(1), values.max(1), COLOURS[name], marks="both")
        )
    figure = curves(
        series,
        "Finite games: sampled against exact",
        "Random 3 x 3 games from all potential to all harmonic; bands are the range over games. What to see: both "
        "start at zero and rise together; the projection ends lower, because rotation that crosses the simplex's "
        "boundary has a true gradient part.",
        "harmonic share of the game",
        "share of circulation",
        y_range=(-0.02, 1.02),
    )
    words = (
        "For finite games the split into potential, harmonic and non-strategic parts is known exactly (Candogan, "
        "Menache, Ozdaglar and Parrilo, 2011). It weighs pure strategy profiles, the projection weighs mixed "
        "strategies by the measure: two questions, one answer only where the game is a potential game."
    )
    return Section("Beside the exact decomposition", [words], [figure])


def certified_section(found: Sequence[Certified]) -> Section:
    """The certificates."""
    words = (
        "Each bound of the paper on each run: the measured value, the bound, and a verdict. The last runs are there to "
        "fail: one goes down its potential, one has a step above 1/L, where the theory says nothing."
    )
    parts: list[Part] = []
    for run in found:
        rows = []
        for c in run.certificates:
            guessed = [name for name, constant in c.constants.items() if constant.source == "estimated"]
            reason = "; ".join(c.violated) or ("every point satisfies it" if c.vacuous else "")
            rows.append(
                [
                    c.label,
                    f"{c.value:.3g}",
                    f"{'≤' if c.relation == '<=' else '≥'} {c.bound:.3g}",
                    Mark(c.verdict, TONES[c.verdict]),
                    ", ".join(guessed) or "–",
                    reason or "; ".join(c.unchecked) or "–",
                ]
            )
        columns = ["bound", "value", "should be", "verdict", "estimated constants", "what is open"]
        parts.append(TablePart(columns, rows, title=run.name))
    return Section("What is certified", [words], parts)


def held(found: Sequence[Certified]) -> tuple[int, int]:
    """How many certificates hold of those whose assumptions do, on the runs that are meant to keep them."""
    verdicts = [c.verdict for run in found if not run.meant_to_fail for c in run.certificates]
    counted = [verdict for verdict in verdicts if verdict != "assumption violated"]
    return int(np.sum([verdict == "holds" for verdict in counted])), len(counted)
