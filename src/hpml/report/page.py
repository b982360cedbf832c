"""One self-contained page: text, tables and interactive figures in a single file that opens offline.

The page follows the reader's screen (wide, phone, light, dark) and prints in light colours. Nothing is fetched:
plotly.js, the style sheet and all numbers stand in the file.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from plotly.offline import get_plotlyjs

from hpml.report.encode import as_json
from hpml.report.markup import part_markup, prose, slug
from hpml.report.parts import FigurePart, Part, TablePart
from hpml.report.theme import DARK, LIGHT


@dataclass(frozen=True)
class Section:
    """A heading, the paragraphs under it, and then figures, tables, lists and commands."""

    title: str
    paragraphs: Sequence[str] = ()
    parts: Sequence[Part] = ()


@dataclass(frozen=True)
class Fact:
    """A number that deserves large type, and the words under it."""

    value: str
    label: str


@dataclass(frozen=True)
class Page:
    """A title, what the reader should know first, a few numbers in large type, and the sections."""

    title: str
    lead: str
    sections: Sequence[Section]
    facts: Sequence[Fact] = ()


def write_page(page: Page, path: Path) -> Path:
    """Write the page as one HTML file and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(page), encoding="utf-8")
    return path


def render(page: Page) -> str:
    """The whole document as text."""
    names = _anchors([section.title for section in page.sections])
    counts = {FigurePart: 0, TablePart: 0}
    sections = "".join(_section(section, name, counts) for section, name in zip(page.sections, names, strict=True))
    contents = "".join(
        f'<li><a href="#{name}">{prose(section.title)}</a></li>'
        for section, name in zip(page.sections, names, strict=True)
    )
    facts = "".join(f"<div><dd>{prose(fact.value)}</dd><dt>{prose(fact.label)}</dt></div>" for fact in page.facts)
    drawn = counts[FigurePart] > 0
    scripts = f"<script>{_script(get_plotlyjs())}</script>" if drawn else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(page.title)}</title>
<link rel="icon" href="data:,">
<style>{_style()}</style>
</head>
<body>
<a class="skip" href="#content">To the content</a>
<header><h1>{prose(page.title)}</h1><p class="lead">{prose(page.lead)}</p>
{f'<dl class="facts">{facts}</dl>' if facts else ""}
<noscript><p class="warning">The figures need JavaScript, which is switched off here. The text, the tables and the
links to the data work without it.</p></noscript></header>
<div class="columns">
<nav aria-label="Contents"><p>Contents</p><ol>{contents}</ol></nav>
<main id="content">{sections}</main>
</div>
<script type="application/json" id="themes">{as_json({theme.name: theme.roles() for theme in (LIGHT, DARK)})}</script>
{scripts}
<script>{_script(_asset("page.js"))}</script>
</body>
</html>
"""


def _section(section: Section, name: str, counts: dict[type, int]) -> str:
    body = []
    for part in section.parts:
        counts[type(part)] = counts.get(type(part), 0) + 1
        body.append(part_markup(part, counts[type(part)]))
    text = "".join(f"<p>{prose(paragraph)}</p>" for paragraph in section.paragraphs)
    return (
        f'<section id="{name}" aria-labelledby="{name}-heading"><h2 id="{name}-heading">{prose(section.title)}</h2>'
        f"{text}{''.join(body)}</section>"
    )


def _anchors(titles: Sequence[str]) -> list[str]:
    names: list[str] = []
    for title in titles:
        name = slug(title)
        while name in names or name == "content":
            name += "-again"
        names.append(name)
    return names


def _style() -> str:
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {DARK.variables()} }} }}"
    paper = f"@media print {{ :root {{ {LIGHT.variables()} color-scheme: light; }} }}"
    return f":root {{ {LIGHT.variables()} }}\n{dark}\n{paper}\n{_asset('page.css')}"


def _asset(name: str) -> str:
    return files("hpml.report").joinpath("assets", name).read_text(encoding="utf-8")


def _script(text: str) -> str:
    # A closing tag inside a string would end the script element.
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")
