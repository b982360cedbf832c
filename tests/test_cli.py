"""The command line explains itself, does its job, and names a mistake in one sentence."""

import json
import re
from html.parser import HTMLParser

import pytest

import hpml
from hpml import cli
from hpml.catalogue import list_projectors
from hpml.mechanism import PROJECTORS, MechanismConfig


def run(capsys, *arguments):
    """Exit status, standard output and standard error of one command."""
    status = 0
    try:
        cli.main(arguments)
    except SystemExit as stop:
        status = stop.code or 0
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_names_every_command(capsys, arguments):
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    for command in cli.COMMANDS:
        assert command in out


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_explains_itself(capsys, command):
    status, out, _ = run(capsys, command, "--help")
    assert status == 0
    words = cli.COMMANDS[command].__doc__.split(".")[0].split()[:4]
    assert " ".join(words) in out


def test_every_option_of_the_demo_is_explained(capsys):
    _, out, _ = run(capsys, "mechanism", "--help")
    for field in MechanismConfig.__dataclass_fields__:
        assert f"--{field}" in out


@pytest.mark.parametrize("wrong", ["mechanisms", "train", "foo"])
def test_a_wrong_command_gets_one_sentence(capsys, wrong):
    status, out, err = run(capsys, wrong)
    assert status == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert wrong in err
    assert "mechanism" in err


def test_a_bad_value_gets_words(capsys, tmp_path):
    status, _, err = run(capsys, "mechanism", "--samples", "1", "--out", str(tmp_path))
    assert status == 2
    assert "--samples must be at least 10" in err
    assert "Traceback" not in err


def test_list_shows_every_projector(capsys):
    status, out, _ = run(capsys, "list")
    assert status == 0
    for name in (*list_projectors(), "Shahshahani", "LowRank", "Ball"):
        assert name in out


class Links(HTMLParser):
    """Every address that a page would load."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("src", "srcset", "href")]


def test_the_demo_writes_a_page_that_needs_nothing_else(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(PROJECTORS, "neural", hpml.NeuralProjector(width=8, steps=100, members=2))
    status, out, err = run(capsys, "mechanism", "--samples", "60", "--queries", "50", "--out", str(tmp_path))
    assert status == 0, err
    for name in PROJECTORS:
        assert name in out
    page = tmp_path / "report.html"
    assert str(page) in re.sub(r"\n", "", out)
    text = page.read_text()
    links = Links()
    links.feed(text)
    assert len(links.found) >= 6  # the contents, an icon, and the data of two figures and a table
    assert all(link.startswith(("data:", "#")) for link in links.found)
    assert (tmp_path / "split.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "split.pdf").read_bytes().startswith(b"%PDF")
    rows = json.loads((tmp_path / "result.json").read_text())["rows"]
    assert [row["name"] for row in rows] == list(PROJECTORS)
    kernel = next(row for row in rows if row["name"].startswith("kernel"))
    assert kernel["error"] < 0.3
    assert abs(kernel["nonpotentiality"] - kernel["exact_nonpotentiality"]) < 0.1
