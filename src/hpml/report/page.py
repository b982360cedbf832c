"""One self-contained page: text, table and pictures in a single file that opens offline, on a phone, in the dark."""

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --faint: #d9dee3; --soft: #5b646e; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ed; --paper: #14171b; --faint: #353b42; --soft: #a3acb6; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 70rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .5rem; }
p, li { max-width: 46rem; }
figure { margin: 1rem 0; }
img { display: block; width: 100%; height: auto; }
figcaption, .soft { color: var(--soft); font-size: .92rem; max-width: 46rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .8rem; border-bottom: 1px solid var(--faint); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
code { font-size: .92em; }
@media (max-width: 640px) {
  th, td { padding: .35rem .4rem; font-size: .85rem; }
  td:first-child { white-space: normal; }
}
"""


@dataclass(frozen=True)
class Picture:
    """One figure in four drawings: light and dark, wide and narrow, each as the bytes of a PNG."""

    light: bytes
    dark: bytes
    light_narrow: bytes
    dark_narrow: bytes
    alt: str
    caption: str

    def markup(self) -> str:
        """The browser picks the drawing for the reader's screen."""
        sources = [
            ("(max-width: 640px) and (prefers-color-scheme: dark)", self.dark_narrow),
            ("(max-width: 640px)", self.light_narrow),
            ("(prefers-color-scheme: dark)", self.dark),
        ]
        lines = [f'<source media="{media}" srcset="{_inline(image)}">' for media, image in sources]
        lines.append(f'<img src="{_inline(self.light)}" alt="{html.escape(self.alt, quote=True)}">')
        return (
            f"<figure><picture>{''.join(lines)}</picture><figcaption>{html.escape(self.caption)}</figcaption></figure>"
        )


def table_markup(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls sideways on its own where the screen is narrow."""
    head = "".join(f"<th scope=col>{html.escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def page(title: str, body: str) -> str:
    """The whole document."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    )


def _inline(image: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(image).decode()
