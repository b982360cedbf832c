"""The file stands alone, keeps what it is given apart from its own markup, and links to all of its parts."""

import csv
import io
import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.gallery import gallery

from hpml.report.encode import as_csv, as_json, as_link
from hpml.report.figures.curves import Curve, curves
from hpml.report.markup import cell_text, prose
from hpml.report.page import Page, Section, render, write_page
from hpml.report.parts import FigurePart, Mark, TablePart


class Outline(HTMLParser):
    """Identifiers, links and what would be loaded."""

    def __init__(self):
        super().__init__()
        self.ids, self.links, self.loaded, self.texts = [], [], [], []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if "id" in given:
            self.ids.append(given["id"])
        if tag == "a":
            self.links.append(given["href"])
        self.loaded += [given[name] for name in ("src", "srcset", "data", "poster") if name in given]
        if tag == "link":
            self.loaded.append(given["href"])

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def outline():
    found = Outline()
    found.feed(render(gallery()))
    return found


def test_nothing_is_loaded_from_elsewhere(outline):
    assert all(address.startswith("data:") for address in outline.loaded)
    assert all(address.startswith(("#", "data:text/csv")) for address in outline.links)


def test_every_link_and_identifier_is_sound(outline):
    assert len(outline.ids) == len(set(outline.ids))
    inner = [address[1:] for address in outline.links if address.startswith("#")]
    assert len(inner) == 6
    assert set(inner) <= set(outline.ids)


def test_every_figure_and_table_can_be_downloaded(outline):
    files = [address for address in outline.links if address.startswith("data:")]
    assert len(files) == 10
    for address in files:
        rows = list(csv.reader(io.StringIO(unquote(address.split(",", 1)[1]))))
        assert len(rows) > 1
        assert len({len(row) for row in rows}) == 1


def test_plotly_stands_in_the_file_once_and_only_where_it_is_needed(tmp_path):
    text = render(gallery())
    assert len(re.findall(r"plotly\.js v\d", text)) == 1
    bare = render(Page("Words", "No figures.", [Section("One", ["Text."])]))
    assert len(bare) < 40_000
    path = write_page(Page("Words", "No figures.", []), tmp_path / "deep" / "page.html")
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_names_that_look_like_markup_stay_text():
    nasty = '</script><script>alert("x")</script> & <b>'
    x = np.array([0.0, 1.0])
    part = curves([Curve(nasty, x, x)], nasty, nasty, "x", "y")
    table = TablePart([nasty], [[nasty]], nasty)
    found = Outline()
    found.feed(render(Page(nasty, nasty, [Section(nasty, [nasty], [part, table])])))
    text = render(Page("t", "l", [Section("s", [], [part])]))
    assert text.count("</script>") == 4 + 0  # the figure, the themes, plotly and the page's own
    assert nasty in "".join(found.texts)


@given(st.lists(st.floats(-1e300, 1e300) | st.sampled_from([np.nan, np.inf, -np.inf]), max_size=8))
def test_numbers_survive_the_way_into_a_page(values):
    data = np.array(values, float)
    back = json.loads(as_json({"x": data}))["x"]
    finite = np.isfinite(data)
    assert [value is None for value in back] == [not seen for seen in finite]
    assert np.allclose([value for value in back if value is not None], data[finite], rtol=1e-5, atol=0)
    text = unquote(as_link(as_csv({"x": data})).split(",", 1)[1])
    column = [float(cell) for cell in text.splitlines()[1:]]
    assert np.allclose(column, data, rtol=1e-9, atol=0, equal_nan=True)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\0")), min_size=1, max_size=4))
def test_words_survive_the_way_into_a_file(words):
    text = unquote(as_link(as_csv({"name": words, "n": list(range(len(words)))})).split(",", 1)[1])
    rows = list(csv.reader(io.StringIO(text)))
    assert [row[0] for row in rows[1:]] == words


def test_cells_are_short_and_marked():
    cells = (0.123456, -1e-7, 12, True, None, Mark("fails", "bad"), "as given")
    assert [cell_text(cell) for cell in cells] == ["0.1235", "−1e−7", "12", "yes", "–", "fails", "as given"]
    text = render(Page("t", "l", [Section("s", [], [TablePart(["a", "b"], [[Mark("fails", "bad"), 1.0]])])]))
    assert '<td class="text"><span class="mark bad">fails</span></td><td class="number">1</td>' in text


def test_prose_knows_code_and_strong_words():
    assert prose("a `b<c` **d** & e") == "a <code>b&lt;c</code> <strong>d</strong> &amp; e"


def test_uneven_columns_and_rows_are_refused():
    with pytest.raises(ValueError, match="equally long"):
        FigurePart((), "caption", {"x": [1, 2], "y": [1]})
    with pytest.raises(ValueError, match="1 cells for 2 columns"):
        TablePart(["a", "b"], [["only one"]])
