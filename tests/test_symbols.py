"""docs/symbols.md is true: every name is where it says, with the shape it says, and every cited label is listed."""

import importlib
import inspect
import re
import typing
from pathlib import Path

import pytest

import hpml

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "hpml"
PAGE = (ROOT / "docs" / "symbols.md").read_text()
LABEL = r"`((?:alg|app|ass|cor|def|eq|ex|lem|prop|rem|sec|subsec|thm):[A-Za-z0-9_\-]+)`"


def table(heading):
    """The cells of the table under a heading, without its two head lines."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


SYMBOLS = table("Symbols")
LABELS = table("Labels")


def resolve(name, file):
    """The object, or a field's annotation."""
    thing = importlib.import_module("hpml." + file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        fields = getattr(thing, "__dataclass_fields__", {})
        thing = fields[part].type if part in fields else getattr(thing, part)
    return thing


def shape_of(thing):
    """The shape that the types give to a field, a property or a function's answer, if they give one."""
    if isinstance(thing, property):
        thing = inspect.signature(inspect.unwrap(thing.fget)).return_annotation
    elif callable(thing) and not hasattr(thing, "dim_str") and inspect.isroutine(thing):
        thing = inspect.signature(inspect.unwrap(thing)).return_annotation
    for choice in (thing, *typing.get_args(thing)):
        if hasattr(choice, "dim_str"):
            sizes = choice.dim_str.split()
            return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    return None


@pytest.mark.parametrize("row", SYMBOLS, ids=lambda row: row[1].strip("`"))
def test_every_symbol_is_where_the_table_says(row):
    _, name, shape, _, file = row
    thing = resolve(name.strip("`"), file.strip("`"))
    said = shape_of(thing)
    assert said is None or "*" in said or said == shape, f"the types say {said}, the table says {shape}"


def cited():
    """Every label in backticks under src/, with the files that cite it."""
    found: dict[str, set[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for label in re.findall(LABEL, path.read_text()):
            found.setdefault(label, set()).add(path.relative_to(SOURCE).as_posix())
    return found


def test_every_label_in_the_code_is_listed_with_its_files():
    listed = {row[0].strip("`"): set(re.findall(r"`([^`]+)`", row[1])) for row in LABELS}
    assert listed == cited(), "run `python docs/labels.py`"


def test_every_label_of_a_symbol_is_cited_in_the_code():
    in_symbols = {label for row in SYMBOLS for label in re.findall(LABEL, row[3])}
    assert in_symbols <= set(cited())


@pytest.mark.parametrize("name", hpml.__all__)
def test_every_public_name_exists_and_explains_itself(name):
    assert inspect.getdoc(getattr(hpml, name))
