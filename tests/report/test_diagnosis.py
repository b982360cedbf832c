"""`hpml diagnose`: the verdict first, the page and the tables hold the diagnosis, and bad files get a sentence."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from hpml import cli
from hpml.diagnosis import diagnose
from hpml.report.diagnosis import diagnosis_page, numbers, write_diagnosis
from hpml.report.page import render
from hpml.report.parts import FigurePart

ACTIONS = ("rock", "paper", "scissors")
WINS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def rock_paper_scissors(count=90):
    """Points of the simplex, the field that beats what is played there, and what is mostly played."""
    points = np.random.default_rng(0).dirichlet(np.full(3, 0.8), count)
    field = points @ WINS.T - 0.2 * (points - 1 / 3)
    return points, field, [ACTIONS[place] for place in points.argmax(1)]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    points, field, labels = rock_paper_scissors()
    path = tmp_path_factory.mktemp("samples") / "samples.npz"
    np.savez(path, points=points, field=field, labels=np.array(labels), names=np.array(ACTIONS))
    return path


@pytest.fixture(scope="module")
def found(file):
    return diagnose(str(file))


def figures(page):
    return [part for section in page.sections for part in section.parts if isinstance(part, FigurePart)]


def test_the_verdict_comes_first_and_the_loop_is_named(found):
    page = diagnosis_page(found)
    assert page.lead == found.headline
    assert re.search(r"\d+ % .*\d+ % to \d+ %", page.lead)
    text = render(page)
    body = text.index("<h1>")
    assert body < text.index(found.headline) < text.index("<h2")
    (graph,) = [part for part in figures(page) if "Conventions" in part.title]
    # What is played drifts to what beats it.
    turned = ["rock", "paper", "scissors", "rock", "paper"]
    names = list(found.loops[0].names)
    assert any(turned[start : start + 3] == names for start in range(3))
    assert graph.legend[0].name == found.loops[0].text


def test_the_bar_is_the_split_of_the_energy(found):
    bar = figures(diagnosis_page(found))[0]
    shares = dict(zip(bar.data["part"], bar.data["share"], strict=True))
    total = found.energy.potential + found.energy.circulation + found.energy.noise
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["circulation"] == pytest.approx(found.energy.circulation / total)


def test_every_sentence_of_the_diagnosis_is_on_the_page(found):
    text = re.sub(r"</?(code|strong)>", "", render(diagnosis_page(found)))
    for sentence in (*found.limits, *found.advice, *found.notes):
        assert sentence.replace("&", "&amp;") in text


def test_files_hold_the_numbers(found, tmp_path):
    page = write_diagnosis(found, tmp_path / "new", "hpml diagnose samples.npz")
    assert "hpml diagnose samples.npz" in page.read_text(encoding="utf-8")
    assert json.loads((page.parent / "result.json").read_text()) == json.loads(json.dumps(numbers(found)))
    rows = list(csv.DictReader((page.parent / "samples.csv").open(encoding="utf-8")))
    assert len(rows) == found.count
    energy = np.array([float(row["residual energy"]) for row in rows])
    assert np.allclose(energy, found.residual_share, rtol=1e-6)
    loops = list(csv.DictReader((page.parent / "loops.csv").open(encoding="utf-8")))
    assert loops[0]["loop"] == " → ".join(found.loops[0].names)


def run(capsys, *arguments):
    status = 0
    try:
        cli.main(arguments)
    except SystemExit as stop:
        status = stop.code or 0
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command_prints_the_verdict_and_where_the_page_is(capsys, file, tmp_path, found):
    status, out, err = run(capsys, "diagnose", str(file), "--out", str(tmp_path))
    assert status == 0, err
    assert out.splitlines()[0] == found.headline
    assert found.loops[0].text in out
    assert str(tmp_path / "report.html") in out
    assert (tmp_path / "report.html").exists()


def save(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"points": np.full((9, 2), np.nan), "field": np.ones((9, 2))}, "not finite"),
        ({"points": np.ones((9, 2))}, "no field"),
        ({"points": np.ones((9, 2)), "field": np.ones((8, 2))}, "a row for each point"),
        ({"points": np.ones((1, 2)), "field": np.ones((1, 2))}, "at least"),
    ],
)
def test_a_bad_file_gets_one_sentence(capsys, tmp_path, arrays, words):
    status, out, err = run(capsys, "diagnose", str(save(tmp_path / "bad.npz", **arrays)), "--out", str(tmp_path / "o"))
    assert (status, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(("name", "words"), [("missing.npz", "no file"), ("notes.txt", "np.savez")])
def test_a_wrong_path_gets_one_sentence(capsys, tmp_path, name, words):
    (tmp_path / "notes.txt").write_text("words")
    status, out, err = run(capsys, "diagnose", str(tmp_path / name))
    assert (status, out) == (2, "")
    assert words in err
    assert len(err.strip().splitlines()) == 1


def test_a_bad_option_gets_one_sentence(capsys, file):
    status, _, err = run(capsys, "diagnose", str(file), "--conventions", "0")
    assert status == 2
    assert "--conventions must be at least 1" in err


def test_rounding_is_not_drawn_as_circulation(found):
    still = replace(found, residual_share=np.full(found.count, 1e-15))
    section = next(section for section in diagnosis_page(still).sections if section.title.startswith("Where"))
    assert not [part for part in section.parts if isinstance(part, FigurePart)]


def test_samples_that_cannot_tell_get_no_number(found):
    share = replace(found.nonpotentiality, warning="They lie along a path.")
    page = diagnosis_page(replace(found, nonpotentiality=share))
    assert page.facts[0].value == "not known"
    assert "cannot tell" in figures(page)[0].caption
