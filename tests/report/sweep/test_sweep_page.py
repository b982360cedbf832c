"""The page of a sweep in a real browser, the files beside it, and the command itself on a real run."""

import csv
import io
import json

import numpy as np
import pytest
from experiment.test_run import quiet, small, walk
from report.sweep.folders import BATCH, contents, write_run
from report.test_browser import Visit, browser  # noqa: F401 (a fixture)

from hpml.cli import main
from hpml.experiment.run import train
from hpml.report.sweep.page import write_report
from hpml.report.sweep.study import read_study

SCENARIOS = ("bos_repeated", "clean_up", "matrix/stag_hunt", "matrix/climbing")
METHODS = {"mappo": {}, "ippo": {"algo": "ippo"}, "graph": {"projection": "graph", "projection_preset": "paper"}}
PANELS = len(SCENARIOS)


def level(scenario, method):
    return 10.0 + 3 * SCENARIOS.index(scenario) + 7 * list(METHODS).index(method)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """Four scenarios, three methods, three seeds; one run has only begun, one cannot be read."""
    folder = tmp_path_factory.mktemp("swept")
    for scenario in SCENARIOS:
        for method, options in METHODS.items():

            def value(seed, update, scenario=scenario, method=method):
                return level(scenario, method) + seed + np.cos(update)

            path = folder / "runs" / scenario.replace("/", "_") / method / "seeds-0-2"
            write_run(path, value, (0, 1, 2), updates=30, env=scenario, **options)
    write_run(folder / "begun", seeds=(3, 4), updates=30, upto=1, env="clean_up")
    write_run(folder / "torn", env="clean_up", algo="coma", updates=30)
    for part in (folder / "torn/metrics").iterdir():
        part.write_bytes(part.read_bytes()[:50])
    return folder


@pytest.fixture(scope="module")
def written(swept):
    before = contents(swept)
    path, analysis = write_report(read_study([str(swept)]), swept.parent / "report", "hpml report here")
    assert contents(swept) == before
    return path, analysis


@pytest.fixture(scope="module")
def opened(browser, written):  # noqa: F811
    visit = Visit(browser, written[0], color_scheme="light")
    visit.draw_all()
    yield visit
    visit.check()
    visit.context.close()


def cells(page, title):
    """A table of the page: {first cell: the rest}."""
    return page.evaluate(
        """title => {
            const tables = [...document.querySelectorAll('.table')];
            const table = tables.find(t => t.querySelector('h3')?.innerText === title);
            return Object.fromEntries([...table.querySelectorAll('tbody tr')].map(row => {
                const texts = [...row.children].map(cell => cell.innerText);
                return [texts[0], texts.slice(1)];
            }));
        }""",
        title,
    )


def test_the_tables_hold_the_numbers_of_the_runs(opened):
    last = np.mean([np.cos(update) for update in (28, 29, 30)])
    raw = cells(opened.page, "Final return of an agent, in the scenario's own units: mean ± standard error")
    # Seeds 0, 1 and 2 lie one apart, so their mean is one above the first and their standard error 1 / sqrt(3).
    for name, method in (("MAPPO", "mappo"), ("IPPO", "ippo"), ("HPML-MAPPO (graph, paper)", "graph")):
        means = [level(scenario, method) + 1 + last for scenario in SCENARIOS[:2]]
        assert raw[name][:2] == [f"{mean:.1f} ±\u00a00.6" for mean in means]
    scaled = cells(opened.page, "Summary, as the paper lays it out")
    assert scaled["MAPPO"][:3] == ["0.0", "0.0", "0.0"]
    assert scaled["IPPO"][:3] == ["50.0", "50.0", "50.0"]
    assert scaled["HPML-MAPPO (graph, paper)"][:4] == ["100.0", "100.0", "100.0", f"{np.arange(1, 31).mean() / 10:.2f}"]


def test_curves_have_a_panel_a_scenario_and_a_line_a_method(opened):
    figure = opened.page.locator("figure", has=opened.page.get_by_role("heading", name="Return in evaluations"))
    assert figure.locator(".plot").count() == PANELS
    # A band, the mean as it is and the smoothed one for each method.
    counts = figure.evaluate("f => [...f.querySelectorAll('.plot')].map(p => p.querySelectorAll('.trace').length)")
    assert counts == [3 * len(METHODS)] * PANELS
    figure.locator(".legend button").first.click()
    opened.page.wait_for_function(
        "f => f.querySelector('.plot').querySelectorAll('.trace').length === 6", arg=figure.element_handle()
    )
    figure.locator(".legend button").first.click()


def test_curves_are_the_evaluations_of_the_seeds(written):
    line = written[1].study.lines["clean_up", "IPPO"]["evaluated"]
    updates = np.arange(31)  # fewer than there are buckets, so each has its own
    assert np.allclose(line.steps, updates * BATCH)
    assert np.allclose(line.values, level("clean_up", "ippo") + np.arange(3) + np.cos(updates)[:, None])


def test_what_is_missing_and_what_was_set_aside_is_on_the_page(opened, swept):
    text = opened.page.locator("#what-is-missing").inner_text()
    assert f"{swept}/torn/metrics/0000000030.parquet" in text
    assert cells(opened.page, "Not finished")["Clean Up"] == [
        "1\u00a0×\u00a01,920, 5\u00a0×\u00a01,920",
        "3 of 5, 3\u00a0%",
        "nothing yet",
    ]
    assert "MAPPO (seeds 3, 4) are not compared yet" in text


def test_the_page_says_where_it_helps(opened):
    text = opened.page.locator("#where-it-helps-where-it-does-nothing-where-it-hurts").inner_text()
    assert "HPML-MAPPO (graph, paper) against MAPPO: helps in BoS-R (likely), Clean Up (likely)" in text
    assert "hurts in none" in text
    assert "the smallest p" in opened.page.locator("#how-far-this-can-be-believed").inner_text()
    assert "86.3" in opened.page.locator("#beside-the-paper").inner_text()


def test_the_page_fits_a_phone_in_the_dark(browser, written):  # noqa: F811
    screen = {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "has_touch": True, "is_mobile": True}
    visit = Visit(browser, written[0], **screen)
    visit.draw_all()
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 390
    visit.check()
    visit.context.close()


def test_the_files_hold_the_same_numbers(written):
    path, analysis = written
    rows = list(csv.DictReader(io.StringIO((path.parent / "cells.csv").read_text())))
    found = {(row["scenario"], row["method"]): row for row in rows}
    for (environment, method), cell in analysis.study.cells.items():
        row = found[environment, method]
        assert float(row["raw_mean"]) == pytest.approx(cell.values["final"].mean())
        assert float(row["steps"]) == 30 * BATCH
    evaluated = json.loads((path.parent / "marl_eval.json").read_text())
    track = evaluated["meltingpot"]["clean_up"]["MAPPO"]["seed_0"]
    assert track["step_0"] == {"step_count": 0, "return": [14.0], "collective_return": [28.0]}
    for name in ("summary", "full"):
        assert f"tab:meltingpot_{name}" in (path.parent / f"{name}.tex").read_text()


def test_a_file_of_somebody_else_is_not_written_over(tmp_path):
    write_run(tmp_path / "run", seeds=(0, 1), updates=4)
    study = read_study([str(tmp_path / "run")])
    for name in ("report.html", "cells.csv"):
        out = tmp_path / name.partition(".")[0]
        write_report(study, out)
        write_report(study, out)  # one's own is
        (out / name).write_text("my own notes")
        with pytest.raises(ValueError, match="would be written over"):
            write_report(study, out)
        assert (out / name).read_text() == "my own notes"


def test_the_command_reads_what_training_wrote(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(small("run"), quiet(), walk)  # all of training but the learner
    main(["report", "run", "--out", "page"])
    said = capsys.readouterr().out
    assert "MAPPO" in said
    assert "report.html" in said
    text = (tmp_path / "page/report.html").read_text()
    assert "Nothing: every run has all that it was asked for." in text
    with pytest.raises(SystemExit):
        main(["report", "nowhere"])
    assert not (tmp_path / "out").exists()
    assert "nowhere does not exist" in capsys.readouterr().err
