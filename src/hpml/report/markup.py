"""The HTML of each part of a page."""

import html
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from hpml.report.encode import as_csv, as_json, as_link
from hpml.report.parts import CodePart, FigurePart, Key, ListPart, Mark, Panel, Part, Scale, TablePart


def part_markup(part: Part, number: int) -> str:
    """The HTML of a part; figures and tables are numbered through the page."""
    if isinstance(part, FigurePart):
        return _figure(part, number)
    if isinstance(part, TablePart):
        return _table(part, number)
    if isinstance(part, ListPart):
        tag = "ol" if part.ordered else "ul"
        return f"<{tag}>{''.join(f'<li>{prose(item)}</li>' for item in part.items)}</{tag}>"
    if isinstance(part, CodePart):
        return f'<pre tabindex="0"><code>{html.escape(part.text)}</code></pre>'
    return f"<p>{prose(part)}</p>"


def prose(text: str) -> str:
    """Plain text as HTML, with `code` and **strong** words."""
    text = html.escape(text, quote=False)
    text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
    return re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", text)


def slug(text: str) -> str:
    """A name for files and anchors: small letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "part"


def cell_text(value: Any) -> str:
    """A cell as readers see it: numbers to four digits."""
    if isinstance(value, Mark):
        return value.text
    if value is None:
        return "–"
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}".replace("-", "−").replace("e−0", "e−").replace("e+0", "e")
    return str(value)


def _figure(part: FigurePart, number: int) -> str:
    name = f"figure-{number}"
    title = part.title or f"Figure {number}"
    alt = html.escape(part.alt or part.caption)
    panels = "".join(_panel(panel, f"{name}-{place}", alt) for place, panel in enumerate(part.figure))
    heading = f'<h3 id="{name}-title">{prose(title)}</h3>'
    download = (
        f'<a class="download" download="{slug(title)}.csv" href="{as_link(as_csv(part.data))}" '
        f'aria-label="Data of {html.escape(title)} as CSV">Data (CSV)</a>'
    )
    layout = f"--columns:{part.columns};--narrow:{part.narrow}"
    return (
        f'<figure id="{name}" aria-labelledby="{name}-title">{heading}{_legend(part.legend)}'
        f'<div class="panels" style="{layout}" data-columns="{part.columns}">{panels}</div>{_scale(part.scale)}'
        f"<figcaption><p>{prose(part.caption)}</p>{download}</figcaption></figure>"
    )


def _panel(panel: Panel, name: str, alt: str) -> str:
    size = f"height:{panel.height / 16:g}rem"
    if panel.aspect:
        size = f"--aspect:{panel.aspect:g};--narrow-aspect:{panel.narrow_aspect or panel.aspect:g}"
    spec = panel.spec if panel.narrow is None else {**panel.spec, "narrow": panel.narrow}
    title = f'<p class="panel-title">{prose(panel.title)}</p>' if panel.title else ""
    label = f"{html.escape(panel.title)}: {alt}" if panel.title else alt
    return (
        f'<div class="panel">{title}<div class="plot" id="{name}" role="img" aria-label="{label}" style="{size}" '
        f'data-aspect="{panel.aspect or 0:g}" data-height="{panel.height}"></div>'
        f'<script type="application/json" id="{name}-spec">{as_json(spec)}</script></div>'
    )


def _legend(keys: Sequence[Key]) -> str:
    if not keys:
        return ""
    buttons = "".join(
        f'<button type="button" aria-pressed="true" data-series="{html.escape(key.name)}">'
        f'<i class="swatch {key.shape}" style="--colour:var(--{key.colour.lstrip("@")})"></i>'
        f"{html.escape(key.name)}</button>"
        for key in keys
    )
    return f'<div class="legend" role="group" aria-label="Show or hide">{buttons}</div>'


def _scale(scale: Scale | None) -> str:
    if scale is None:
        return ""
    low, high = cell_text(float(f"{scale.low:.3g}")), cell_text(float(f"{scale.high:.3g}"))
    return (
        f'<div class="scale"><span>{prose(scale.label)}</span><span>{low}</span>'
        f'<i style="--map:var(--{scale.map})"></i><span>{high}</span></div>'
    )


def _table(part: TablePart, number: int) -> str:
    numeric = [all(_is_number(row[place]) for row in part.rows) for place in range(len(part.columns))]
    kinds = ["number" if is_number else "text" for is_number in numeric]
    head = "".join(
        f'<th scope="col" class="{kind}">{prose(column)}</th>' for kind, column in zip(kinds, part.columns, strict=True)
    )
    body = "".join(
        "<tr>" + "".join(_cell(value, kind) for value, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in part.rows
    )
    title = part.title or f"Table {number}"
    tight = ' class="tight"' if part.tight else ""
    heading = f"<h3>{prose(part.title)}</h3>" if part.title else ""
    columns = {name: [_plain(row[place]) for row in part.rows] for place, name in enumerate(part.columns)}
    note = f"<p>{prose(part.note)}</p>" if part.note else "<p></p>"
    return (
        f'<div class="table" id="table-{number}">{heading}<div class="scroll" tabindex="0" role="region" '
        f'aria-label="{html.escape(title)}"><table{tight}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
        f'<div class="note">{note}<a class="download" download="{slug(title)}.csv" href="{as_link(as_csv(columns))}" '
        f'aria-label="{html.escape(title)} as CSV">Table (CSV)</a></div></div>'
    )


def _cell(value: Any, kind: str) -> str:
    text = prose(cell_text(value))
    if isinstance(value, Mark):
        text = f'<span class="mark {value.tone}">{text}</span>'
    return f'<td class="{kind}">{text}</td>'


def _is_number(value: Any) -> bool:
    # Numbers that the caller has written out, with signs, units or intervals, stand to the right like any other.
    if isinstance(value, int | float | np.number) or value is None:
        return not isinstance(value, bool)
    value = value.text if isinstance(value, Mark) else value
    pattern = r"[−+\-≥≤<>≈ ]*[\d.,]+(e[−+\-]?\d+)?( ?[%a-z]{0,2})?( ±\s[\d.,]+)?|–"
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _plain(value: Any) -> Any:
    return value.text if isinstance(value, Mark) else value
