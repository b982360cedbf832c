"""Numbers on their way into a page: JSON for the drawings, CSV for the reader."""

import csv
import io
import json
from typing import Any
from urllib.parse import quote

import numpy as np

from hpml.report.parts import Columns

DRAWN_DIGITS = 6
"""Enough for any screen; the CSV holds more."""
WRITTEN_DIGITS = 10


def as_json(value: Any) -> str:
    """JSON that may stand inside a script element: arrays as lists, what is not finite as null."""
    text = json.dumps(_plain(value), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def as_csv(data: Columns) -> str:
    """Columns as CSV text with a header line."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(data)
    writer.writerows(zip(*([_cell(entry) for entry in column] for column in data.values()), strict=True))
    return buffer.getvalue()


def as_link(text: str) -> str:
    """An address that holds the text itself, so that a link downloads it without a network and without scripts."""
    return "data:text/csv;charset=utf-8," + quote(text, safe=",:;/()+-*=!~'@$")


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(entry) for entry in value.tolist()]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.{DRAWN_DIGITS}g}") if np.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value


def _cell(entry: Any) -> str:
    if entry is None:
        return ""
    if isinstance(entry, float | np.floating):
        return f"{entry:.{WRITTEN_DIGITS}g}"
    return str(entry)
