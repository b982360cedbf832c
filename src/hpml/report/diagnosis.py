"""The report of `hpml diagnose`: the verdict first, then where it comes from and what to do (`def:nonpot`)."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from hpml.diagnosis import Diagnosis
from hpml.report.encode import as_csv
from hpml.report.figures.bars import bars, share_bar
from hpml.report.figures.curves import Curve, curves
from hpml.report.figures.cycle import cycle_graph
from hpml.report.figures.layout import grid
from hpml.report.figures.portrait import Portrait, split_portrait
from hpml.report.figures.samples import sample_map
from hpml.report.page import Fact, Page, Section, write_page
from hpml.report.parts import CodePart, FigurePart, ListPart, Mark, Part, TablePart

DRAWN = 3000
"""Samples in a figure; the folder's samples.csv has them all."""
ROUNDING = 1e-6
"""A residual with less than this part of the field's energy is not drawn."""
ACROSS = 16
"""Arrows of a portrait keep this part of the picture's width from each other."""


def write_diagnosis(found: Diagnosis, folder: Path, command: str = "") -> Path:
    """Write the page, the numbers as JSON and the samples and loops as CSV under `folder`; return the page's path.

    `command` is what the reader types to see the page again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(numbers(found), indent=2, ensure_ascii=False) + "\n")
    (folder / "samples.csv").write_text(as_csv(_sample_columns(found)), encoding="utf-8")
    (folder / "loops.csv").write_text(as_csv(_loop_columns(found)), encoding="utf-8")
    return write_page(diagnosis_page(found, command), folder / "report.html")


def diagnosis_page(found: Diagnosis, command: str = "") -> Page:
    """The whole page."""
    share = found.nonpotentiality
    interval = f"{100 * share.low:.0f}–{100 * share.high:.0f} %" if share.high >= 0.005 else percent(share.high)
    facts = [
        Fact("not known", "how much circulates")
        if share.warning
        else Fact(interval, f"circulates ({100 * found.level:.0f} % interval)"),
        Fact(percent(found.loops[0].share), f"of it around {_short(found.loops[0].names)}")
        if found.loops
        else Fact("none", "of the conventions form a loop"),
        Fact("not known" if share.noise is None else percent(share.noise), "of what was recorded is noise"),
        Fact(f"{found.count:,}", f"samples of {found.dimension:,} coordinates"),
    ]
    sections = [
        Section("How much circulates", parts=[_energy(found), *_notes(found)]),
        Section("Where the residual is large", parts=_where(found)),
        Section("Which conventions form the circle", parts=_loops(found)),
        Section("In which planes it turns", parts=_planes(found)),
        Section("What these samples cannot tell", parts=_sentences(found.limits, "Nothing that we know of.")),
        Section("What to do next", parts=_sentences(found.advice, "Nothing.", ordered=True)),
        Section("What was read", parts=_settings(found, command)),
    ]
    return Page("Does this training go in circles?", found.headline, sections, facts)


def percent(share: float) -> str:
    """A share in words: "71 %", and "under 1 %" rather than nothing."""
    if 0 < share < 0.005:
        return "under 1 %"
    return f"{100 * share:.0f} %"


def numbers(found: Diagnosis) -> dict[str, Any]:
    """Everything but the samples, ready for JSON."""
    share, energy = found.nonpotentiality, found.energy
    return {
        "headline": found.headline,
        "source": found.source,
        "given": found.given,
        "count": found.count,
        "dimension": found.dimension,
        "estimates": found.estimates,
        "method": found.method,
        "nonpotentiality": {
            "estimate": float(share.estimate),
            "low": float(share.low),
            "high": float(share.high),
            "level": found.level,
            "noise": None if share.noise is None else float(share.noise),
            "identifiable": float(share.identifiable),
            "in_sample": float(share.in_sample),
        },
        "energy": {name: float(getattr(energy, name)) for name in ("potential", "circulation", "noise")},
        "conventions": [
            {"name": name, "share": float(mass)}
            for name, mass in zip(found.conventions.names, found.conventions.mass, strict=True)
        ],
        "loops": [
            {"names": list(loop.names), "share": float(loop.share), "circulation": float(loop.circulation)}
            for loop in found.loops
        ],
        "blocks": [
            {"name": block.name, "residual": float(block.residual), "nonpotentiality": float(block.nonpotentiality)}
            for block in found.blocks
        ],
        "coordinates": [{"name": entry.name, "residual": float(entry.residual)} for entry in found.coordinates],
        "limits": list(found.limits),
        "advice": list(found.advice),
        "notes": list(found.notes),
    }


def _energy(found: Diagnosis) -> FigurePart:
    energy = found.energy
    parts = {"potential": energy.potential, "circulation": energy.circulation, "noise": energy.noise}
    total = sum(float(part) for part in parts.values()) or 1.0
    share = found.nonpotentiality
    caption = "Blue climbs one hill and is safe to follow; orange goes in circles. "
    if share.warning:
        caption += "Here the bar says nothing: these samples cannot tell the two apart."
    else:
        caption += (
            "The bar is the split of the samples that were fitted. Held out, that is on samples the fit has not seen, "
            f"{percent(share.estimate)} of the field without noise circulates, between {percent(share.low)} and "
            f"{percent(share.high)}."
        )
    colours = {"potential": "@potential", "circulation": "@residual", "noise": "@faint"}
    shares = {name: max(float(part), 0.0) / total for name, part in parts.items()}
    return share_bar(shares, "The field's energy in three parts", caption, colours)


def _where(found: Diagnosis) -> list[Part]:
    plane, kept = found.plane, _thinned(found.count, DRAWN)
    top = float(np.quantile(found.residual_share, 0.99))
    if top < ROUNDING:
        return ["Nowhere: at every sample the residual is rounding."]
    drawn = "" if len(kept) == found.count else f" Drawn: {len(kept):,} of {found.count:,} samples."
    parts: list[Part] = [
        sample_map(
            np.asarray(plane.points)[kept],
            np.asarray(found.residual_share)[kept],
            "Samples, coloured by their residual",
            "Each point is a sample, on the two axes along which the samples spread most. Large points are where the "
            f"circulation is strong; 1 is the field's mean energy.{drawn}",
            "residual energy",
            *plane.names,
            names=_labels(found, kept),
            top=top,
        )
    ]
    few = kept[_spread(np.asarray(plane.points)[kept])]
    field, direction, residual = (np.asarray(part)[few] for part in (plane.field, plane.direction, plane.residual))
    if np.abs(field).max() > 0:
        parts.append(
            split_portrait(
                Portrait(np.asarray(plane.points)[few], field),
                direction,
                residual,
                "F = potential part + residual, in the same plane",
                "The same axes, at some of the samples: what of each arrow lies in the plane. On the right, look for "
                "arrows that go round.",
            )
        )
    if len(found.blocks) > 1:
        parts.append(
            bars(
                [block.name for block in found.blocks],
                {
                    "share of the field": np.array([block.field for block in found.blocks]),
                    "share of the residual": np.array([block.residual for block in found.blocks]),
                },
                "Agent by agent",
                "An agent whose orange bar is the longer one takes more than its part in the circle.",
                "share of the energy",
                colours={"share of the field": "@soft", "share of the residual": "@residual"},
            )
        )
    if len(found.coordinates) > 1:
        parts.append(
            bars(
                [entry.name for entry in found.coordinates],
                {
                    "share of the field": np.array([entry.field for entry in found.coordinates]),
                    "share of the residual": np.array([entry.residual for entry in found.coordinates]),
                },
                "Coordinate by coordinate",
                f"The {len(found.coordinates)} coordinates with the most residual, of {found.dimension:,}.",
                "share of the energy",
                colours={"share of the field": "@soft", "share of the residual": "@residual"},
            )
        )
    return parts


def _loops(found: Diagnosis) -> list[Part]:
    conventions, flow = found.conventions, found.graph.flow
    origin = {
        "labels": "the samples' own labels",
        "strategies": "what each agent mostly plays",
        "clusters": "groups of samples that lie together",
    }.get(conventions.origin, conventions.origin)
    words = f"A convention is a recurring joint behaviour: here {origin}, {conventions.count} of them."
    edges = np.asarray(flow.edges).reshape(-1, 2)
    if not len(edges) or not found.loops:
        return [words, "No loop among them carries any circulation."]
    first = found.loops[0]
    figure = cycle_graph(
        conventions.names,
        edges,
        np.asarray(flow.weights) * np.asarray(flow.cyclic),
        [(loop.nodes, float(loop.share)) for loop in found.loops],
        "Conventions and the circulation between them",
        "Arrows show where the update drifts once the climb is taken out; thick ones carry more. Follow the "
        f"orange band: {' → '.join(first.names)}, and back to {first.names[0]}.",
        sizes=np.asarray(conventions.mass, float),
        flow_label="cyclic flow along the arrow",
    )
    rows = [
        [
            " → ".join(loop.names),
            percent(loop.share),
            float(loop.circulation),
            "–" if loop.error is None else f"{loop.error:.2g}",
            Mark("yes") if loop.certain else Mark("not certain", "soft"),
        ]
        for loop in found.loops
    ]
    table = TablePart(
        ["loop", "share", "circulation", "± error", "beyond doubt"],
        rows,
        "share: of the energy that circulates between conventions. circulation: what one round adds up to, with one "
        "standard error from the sampling; beyond doubt where it is more than two of them.",
        title="The loops, strongest first",
    )
    return [words, figure, table]


def _planes(found: Diagnosis) -> list[Part]:
    planes, kept = found.disc, _thinned(found.count, DRAWN)
    if planes.count == 0:
        return ["The samples show no plane in which the field turns."]
    points = np.asarray(found.disc_points)[kept]
    member = np.asarray(found.conventions.member)[kept]
    figures = {}
    for place in range(planes.count):
        clouds = [
            Curve(name, points[member == group, place, 0], points[member == group, place, 1], marks="points")
            for group, name in enumerate(found.conventions.names)
        ]
        name = f"plane {place + 1}, {percent(float(planes.shares[place]))} of the turning"
        figures[name] = curves(clouds, "", "", "standard deviations", "standard deviations", equal=True)
    caption = (
        "The samples seen along each plane of rotation, coloured by convention. In every panel the field turns "
        "counter-clockwise around the middle; conventions that follow each other in that sense chase each other."
    )
    return [grid(figures, "Planes of rotation", caption, columns=min(planes.count, 3) if planes.count > 1 else 2)]


def _notes(found: Diagnosis) -> list[Part]:
    return [ListPart(list(found.notes))] if found.notes else []


def _sentences(sentences: tuple[str, ...], nothing: str, ordered: bool = False) -> list[Part]:
    return [ListPart(list(sentences), ordered)] if sentences else [nothing]


def _settings(found: Diagnosis, command: str) -> list[Part]:
    share = found.nonpotentiality
    rows = [
        ["file", found.source],
        ["samples in it", f"{found.given:,}"],
        ["samples used", f"{found.count:,}"],
        ["coordinates", f"{found.dimension:,}"],
        ["estimates of the field", "two, independent" if found.estimates == 2 else "one"],
        ["method", found.method],
        ["share of circulation, held out", f"{share.estimate:.3f} ({share.low:.3f} to {share.high:.3f})"],
        ["the same at the fitted samples", f"{share.in_sample:.3f}"],
        ["how much of circulation the samples can show", f"{share.identifiable:.2f} of 1"],
        ["conventions", f"{found.conventions.count}, from {found.conventions.origin}"],
    ]
    parts: list[Part] = [TablePart(["what", "value"], rows, title="Settings and numbers")]
    return [*parts, "The same page again:", CodePart(command)] if command else parts


def _short(names: tuple[str, ...]) -> str:
    text = " → ".join(names)
    return text if len(text) <= 40 else f"one loop of {len(names)} conventions"


def _thinned(count: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def _spread(points: np.ndarray) -> np.ndarray:
    """Rows that keep a distance from each other, so that arrows do not cover arrows."""
    apart = float((points.max(0) - points.min(0)).max()) / ACROSS
    chosen: list[int] = []
    for row, point in enumerate(points):
        if not chosen or np.linalg.norm(points[chosen] - point, axis=1).min() >= apart:
            chosen.append(row)
    return np.array(chosen)


def _labels(found: Diagnosis, kept: np.ndarray) -> list[str]:
    member = np.asarray(found.conventions.member)
    return [found.conventions.names[member[row]] for row in kept]


def _sample_columns(found: Diagnosis) -> dict[str, Any]:
    x, y = np.asarray(found.plane.points).T
    member = np.asarray(found.conventions.member)
    columns: dict[str, Any] = {"row": np.asarray(found.rows), "x": x, "y": y}
    columns |= {"potential": np.asarray(found.potential), "residual energy": np.asarray(found.residual_share)}
    columns["convention"] = [found.conventions.names[group] for group in member]
    return columns | ({} if found.labels is None else {"label": list(found.labels)})


def _loop_columns(found: Diagnosis) -> dict[str, Any]:
    return {
        "loop": [" → ".join(loop.names) for loop in found.loops],
        "share": [float(loop.share) for loop in found.loops],
        "circulation": [float(loop.circulation) for loop in found.loops],
        "error": [None if loop.error is None else float(loop.error) for loop in found.loops],
    }
