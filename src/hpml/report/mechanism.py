"""The report of `hpml mechanism`: a page, its picture as PNG and PDF, and the numbers as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from hpml.mechanism import SHOWN, MechanismConfig, MechanismRow, SplitField
from hpml.report.drawings import draw_split, encode
from hpml.report.figures.portrait import Portrait, portraits, split_portrait
from hpml.report.page import Page, Section, write_page
from hpml.report.parts import CodePart, FigurePart, TablePart
from hpml.report.table import COLUMNS, mechanism_cells


def write_mechanism(config: MechanismConfig, rows: Sequence[MechanismRow], folder: Path) -> Path:
    """Write everything under `folder` and return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = next((row for row in rows if row.name == SHOWN), rows[-1])
    drawing = draw_split(shown.split)
    for kind in ("png", "pdf"):
        (folder / f"split.{kind}").write_bytes(encode(drawing, kind))
    (folder / "result.json").write_text(json.dumps(_numbers(config, rows), indent=2) + "\n")
    return write_page(_page(config, rows, shown), folder / "report.html")


def _page(config: MechanismConfig, rows: Sequence[MechanismRow], shown: MechanismRow) -> Page:
    share = rows[0].exact_nonpotentiality
    noise = f", with noise of standard deviation {config.noise:g} on each of two estimates" if config.noise else ""
    command = " ".join(f"--{f.name} {getattr(config, f.name):g}" for f in fields(config))
    lead = (
        f"F(z) = −z + ρ J z pulls to the centre and turns around it, with ρ = {config.rho:g}. The projectors see it at "
        f"{config.samples} random points of the unit disc{noise}, and nothing else. On the disc the turning part is "
        "orthogonal to every gradient, so the exact potential part is −z and the exact share of circulation is "
        f"ρ²/(1+ρ²) = **{share:.3f}**."
    )
    note = (
        f"error: |answer − (−z)| / |z| over {config.queries} new points, 0 is exact, and the raw field scores "
        f"{abs(config.rho):g}. at samples: the same at the samples themselves. cosine: mean cosine of the angle to −z, "
        "at new points. NonPot: the share of the field's energy that the projector calls circulation, to be read "
        "beside the exact share. seconds: with compilation."
    )
    table = TablePart(COLUMNS, [mechanism_cells(row) for row in rows], note)
    sections = [
        Section("The split", parts=[_split_figure(shown)]),
        Section("How close each projector comes", parts=[table, _methods_figure(rows)]),
        Section("Again", parts=[CodePart(f"hpml mechanism {command}")]),
    ]
    return Page("Splitting a field whose answer is known", lead, sections)


def _split_figure(shown: MechanismRow) -> FigurePart:
    caption = (
        f"The field, the part that climbs one hill, and the rest, as the {shown.name} projector splits it. Grey lines "
        "are level sets of the potential that it found; one colour scale serves all three."
    )
    split = shown.split
    return split_portrait(
        _portrait(split, split.field), split.direction, split.residual, "F = potential part + residual", caption
    )


def _methods_figure(rows: Sequence[MechanismRow]) -> FigurePart:
    first = rows[0].split
    panels = {"exact: −z": _portrait(first, -first.points, exact=True)}
    panels |= {f"{row.name}, error {row.error:.2f}": _portrait(row.split, row.split.direction) for row in rows}
    caption = (
        "The potential part by each projector, from the same samples. The exact one points straight to the centre. "
        "Arrows longer than the field's longest are drawn at that length."
    )
    longest = float(np.linalg.norm(first.field, axis=1).max())
    return portraits(panels, "The potential part that each projector finds", caption, longest=longest)


def _portrait(split: SplitField, vectors: np.ndarray, exact: bool = False) -> Portrait:
    angle = np.linspace(0, 2 * np.pi, 200)
    potential = split.potential
    if exact:
        square = split.axis[None] ** 2 + split.axis[:, None] ** 2
        potential = np.where(np.isfinite(potential), -square / 2, np.nan)
    rim = np.stack([np.cos(angle), np.sin(angle)], -1)
    return Portrait(split.points, vectors, split.axis, split.axis, potential, rim)


def _numbers(config: MechanismConfig, rows: Sequence[MechanismRow]) -> dict[str, object]:
    kept = [f.name for f in fields(MechanismRow) if f.name != "split"]
    return {"config": asdict(config), "rows": [{name: getattr(row, name) for name in kept} for row in rows]}
