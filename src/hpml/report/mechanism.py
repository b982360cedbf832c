"""The report of `hpml mechanism`: a page, its figures as PNG and PDF, and the numbers as JSON."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from hpml.mechanism import SHOWN, MechanismConfig, MechanismRow
from hpml.report.drawings import draw_methods, draw_split, encode
from hpml.report.page import Picture, page, table_markup
from hpml.report.table import COLUMNS, mechanism_cells
from hpml.report.theme import DARK, LIGHT


def write_mechanism(config: MechanismConfig, rows: Sequence[MechanismRow], folder: Path) -> Path:
    """Write everything under `folder` and return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = next((row for row in rows if row.name == SHOWN), rows[-1])
    figures = {
        "split": lambda columns, theme: draw_split(shown.split, columns, theme),
        "methods": lambda columns, theme: draw_methods(rows, columns, theme),
    }
    pictures = {}
    for name, draw in figures.items():
        wide = 3 if name == "split" else 5
        narrow = 1 if name == "split" else 2
        light = draw(wide, LIGHT)
        (folder / f"{name}.pdf").write_bytes(encode(light, "pdf"))
        image = encode(light, "png")
        (folder / f"{name}.png").write_bytes(image)
        dark = encode(draw(wide, DARK), "png")
        light_narrow, dark_narrow = (encode(draw(narrow, theme), "png") for theme in (LIGHT, DARK))
        pictures[name] = Picture(image, dark, light_narrow, dark_narrow, *_words(name, shown))
    (folder / "result.json").write_text(json.dumps(_numbers(config, rows), indent=2) + "\n")
    path = folder / "report.html"
    path.write_text(page("HPML: splitting a field whose answer is known", _body(config, rows, pictures)))
    return path


def _words(name: str, shown: MechanismRow) -> tuple[str, str]:
    if name == "split":
        return (
            "Three discs of arrows: a spiral, arrows to the centre, and a rotation.",
            f"The field, the part that climbs one hill, and the rest, as the {shown.name} projector splits it. Grey "
            "lines are level sets of the potential that it found; one colour scale serves all three.",
        )
    return (
        "Discs of arrows: the exact potential part and what each projector finds.",
        "The potential part by each projector, from the same samples. The exact one points straight to the centre. "
        "Arrows longer than the field's longest are drawn at that length.",
    )


def _body(config: MechanismConfig, rows: Sequence[MechanismRow], pictures: dict[str, Picture]) -> str:
    share = rows[0].exact_nonpotentiality
    cells = [mechanism_cells(row) for row in rows]
    noise = f", with noise of standard deviation {config.noise:g} on each of two estimates" if config.noise else ""
    command = " ".join(f"--{f.name} {getattr(config, f.name):g}" for f in fields(config))
    return f"""
<h1>Splitting a field whose answer is known</h1>
<p>F(z) = −z + ρ J z pulls to the centre and turns around it, with ρ = {config.rho:g}. The projectors see it at
{config.samples} random points of the unit disc{noise}, and nothing else. On the disc the turning part is orthogonal to
every gradient, so the exact potential part is −z and the exact share of circulation is ρ²/(1+ρ²) = {share:.3f}.</p>
{pictures["split"].markup()}
<h2>How close each projector comes</h2>
{table_markup(COLUMNS, cells)}
<p class=soft>error: |answer − (−z)| / |z| over {config.queries} new points, 0 is exact, and the raw field scores
{abs(config.rho):g}. at samples: the same at the samples themselves. cosine: mean cosine of the angle to −z, at new
points. NonPot: the share of the field's energy that the projector calls circulation, to be read beside the exact share.
seconds: with compilation.</p>
{pictures["methods"].markup()}
<h2>Again</h2>
<p><code>hpml mechanism {command}</code></p>
"""


def _numbers(config: MechanismConfig, rows: Sequence[MechanismRow]) -> dict[str, object]:
    kept = [f.name for f in fields(MechanismRow) if f.name != "split"]
    return {"config": asdict(config), "rows": [{name: getattr(row, name) for name in kept} for row in rows]}
