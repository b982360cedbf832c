"""What a page is made of: figures with their numbers, tables, lists and commands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Columns = Mapping[str, np.ndarray | Sequence[Any]]
"""Named columns of equal length: the numbers of a figure as its CSV file has them."""


@dataclass(frozen=True)
class Panel:
    """One drawing: plotly's `data` and `layout` as plain dictionaries, with colours named by role (see `theme`).

    It is `aspect` times as wide as high where `aspect` is given, and otherwise `height` pixels high. On a phone
    `narrow_aspect` takes its place, and `narrow` is laid over the specification: its `layout`, and in its `data`
    changes to single traces by their number.
    """

    spec: Mapping[str, Any]
    title: str = ""
    aspect: float | None = None
    height: int = 340
    narrow_aspect: float | None = None
    narrow: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Key:
    """A line of the legend: the traces whose `legendgroup` is `name`, which the reader can switch on and off."""

    name: str
    colour: str
    shape: str = "line"
    """line, dash, dot or area."""


@dataclass(frozen=True)
class Scale:
    """The colour scale that all panels share, drawn under them; `map` is magnitudes or signed."""

    label: str
    low: float
    high: float
    map: str = "magnitudes"


@dataclass(frozen=True)
class FigurePart:
    """A figure of one or more panels, the line that says what to see, and its numbers.

    - `columns` panels stand side by side on a wide screen, `narrow` of them on a phone.
    - `alt` says in words what is drawn, for readers who do not see it; the caption serves where it is empty.
    """

    figure: tuple[Panel, ...]
    caption: str
    data: Columns
    title: str = ""
    alt: str = ""
    legend: tuple[Key, ...] = ()
    scale: Scale | None = None
    columns: int = 1
    narrow: int = 1

    def __post_init__(self) -> None:
        lengths = {name: len(column) for name, column in self.data.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"The columns of a figure's data must be equally long, got {lengths}.")


@dataclass(frozen=True)
class Mark:
    """A cell of a table that stands out: tone is good, bad or soft."""

    text: str
    tone: str = "good"


@dataclass(frozen=True)
class TablePart:
    """A table; numbers are set to the right and shortened to four digits, and `note` explains the columns.

    `tight` is for many columns: cells may break, and the first column stays in sight when the rest is scrolled.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    title: str = ""
    tight: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"A row of the table has {len(row)} cells for {len(self.columns)} columns: {row}.")


@dataclass(frozen=True)
class ListPart:
    """A list of sentences."""

    items: Sequence[str]
    ordered: bool = False


@dataclass(frozen=True)
class CodePart:
    """A command or a few lines of code, as they are typed."""

    text: str


Part = FigurePart | TablePart | ListPart | CodePart | str
"""A string is a paragraph between two parts."""
