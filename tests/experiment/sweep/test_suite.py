"""A suite file means what it says, and what is wrong with one is named in a sentence before anything runs."""

import dataclasses
import tomllib
from pathlib import Path

import pytest

from hpml.experiment.sweep.jobs import cells
from hpml.experiment.sweep.suite import SUITES, folder_name, parse_options, parse_suite, read_suite, suite_names
from hpml.marl.engine import package

SUITE = """
name = "small"
steps = 1000
seeds = 3
first_seed = 2
environments = ["rps", "matrix/stag_hunt", "climbing:horizon=4"]
[train]
environments = 4
hidden = 8
[methods.mappo]
[methods.treated]
label = "HPML-MAPPO (adjusted)"
algo = "mappo"
projection = "kernel"
residual = "adjust"
hidden = 16
[scenario."matrix/stag_hunt"]
steps = 100
seeds = 1
methods = ["treated"]
hidden = 32
[tune]
seeds = [1000]
[tune.grid]
actor_rate = [1e-3, 1]
[tune.methods.treated]
strength = [1.0, 4.0]
"""


def test_every_environment_meets_every_method_with_its_own_options():
    suite = parse_suite(SUITE)
    found = {(cell.environment, cell.method.key): cell.config for cell in cells(suite)}
    assert list(found) == [
        ("rps", "mappo"),
        ("rps", "treated"),
        ("matrix/stag_hunt", "treated"),
        ("climbing:horizon=4", "mappo"),
        ("climbing:horizon=4", "treated"),
    ]
    assert found["rps", "mappo"].settings.hidden == 8
    assert found["rps", "treated"].settings.hidden == 16
    stag = found["matrix/stag_hunt", "treated"]
    assert (stag.settings.hidden, stag.settings.environments, stag.residual) == (32, 4, "adjust")
    assert (stag.steps, stag.all_seeds) == (100, (2,))
    assert found["climbing:horizon=4", "mappo"].env == "matrix/climbing:horizon=4"
    assert found["rps", "mappo"].all_seeds == (2, 3, 4)
    assert suite.tune.grid["mappo"] == ({"actor_rate": 0.001}, {"actor_rate": 1.0})
    assert suite.tune.steps == 1000


def test_a_budget_scales_every_run_and_only_takes_parts():
    suite = parse_suite(SUITE)
    steps = {cell.environment: cell.config.steps for cell in cells(suite, budget=5e4, seeds=7)}
    assert steps == {"rps": 50_000, "matrix/stag_hunt": 5_000, "climbing:horizon=4": 50_000}
    # An environment goes by any of its names.
    found = cells(suite, only=("env=rock_paper_scissors,stag_hunt", "method=treated"), seeds=7)
    assert [(cell.environment, cell.method.key, cell.config.seeds) for cell in found] == [
        ("rps", "treated", 7),
        ("matrix/stag_hunt", "treated", 7),
    ]
    chosen = {("rps", "treated"): {"strength": 4.0}}
    assert [cell.config.strength for cell in cells(suite, ("env=rps",), chosen=chosen)] == [1.0, 4.0]


def test_options_of_the_command_win_over_the_suites_own():
    suite = dataclasses.replace(parse_suite(SUITE), fixed=parse_options(("hidden=48", "actor_rate=2", "residual=drop")))
    for cell in cells(suite, ("method=treated",)):
        assert (cell.config.settings.hidden, cell.config.settings.actor_rate, cell.config.residual) == (48, 2.0, "drop")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("hidden",), "--set takes NAME=VALUE"),
        (("hiden=3",), "--set has no option 'hiden': did you mean hidden"),
        (("hidden=many",), "--set hidden must be a whole number, got 'many'"),
        (("steps=3",), "--set cannot have steps"),
    ],
)
def test_a_wrong_option_of_the_command_is_named(words, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse_options(words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seeds = 3", "seeds = 0", "seeds as a whole number of at least 1, got 0"),
        ("seeds = 3", "seeds = 2.5", "seeds as a whole number"),
        ("steps = 1000", "", "needs steps"),
        ("steps = 1000", "step = 1000", "no 'step': did you mean steps"),
        ('"rps"', '"rsp"', "did you mean matrix/rock_paper_scissors"),
        ('"rps"', '"stag_hunt", "matrix_stag_hunt"', "would share the folder"),
        ('"rps"', '"climbing:horizon=4"', "twice"),
        ("[methods.mappo]", "[methods.mapo]", "[methods.mapo] has no algo, and 'mapo' is none: did you mean mappo"),
        ("[methods.mappo]", "[methods.'a/b']", "letters, digits"),
        ('algo = "mappo"', 'algo = "mapo"', "no algorithm 'mapo': did you mean mappo"),
        ('projection = "kernel"', 'projection = "kernal"', "cannot be 'kernal': did you mean kernel"),
        ('projection = "kernel"', "", "choose a --projection"),
        ("hidden = 16", "hiden = 16", "no option 'hiden': did you mean hidden"),
        ("hidden = 16", "hidden = 16.5", "hidden must be a whole number, got 16.5"),
        ("hidden = 16", "hidden = true", "hidden must be a whole number, got True"),
        ("hidden = 16", "seed = 3", "cannot have seed: first_seed stands at the top"),
        ("hidden = 16", "rollout = 0", "rollout must be at least 1"),
        ('methods = ["treated"]', 'methods = ["treatd"]', "did you mean treated"),
        ('[scenario."matrix/stag_hunt"]', "[scenario.stag_hunts]", "did you mean matrix/stag_hunt"),
        ("strength = [1.0, 4.0]", "strength = [1.0]", "same size, or the comparison is unfair: mappo 2, treated 1"),
        ("strength = [1.0, 4.0]", "strength = [1.0, 1]", "a value twice"),
        ("[tune.methods.treated]", "[tune.methods.treatd]", "did you mean treated"),
        ("seeds = [1000]", "seeds = []", "list of seeds"),
        ('name = "small"', 'name = "../small"', "letters, digits"),
        ('name = "small"', "name = small", "line 2"),  # no TOML at all
    ],
)
def test_a_mistake_is_named(tmp_path, old, new, words):
    assert SUITE.count(old) >= 1
    file = tmp_path / "wrong.toml"
    file.write_text(SUITE.replace(old, new, 1))
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the words are below)
        cells(read_suite(str(file)))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"only": ("env=rsp",)}, "did you mean rps"),
        ({"only": ("method=mapo",)}, "did you mean mappo"),
        ({"only": ("methods=mappo",)}, "--only takes env=NAME and method=NAME"),
        ({"only": ("env=stag_hunt", "method=mappo")}, "Nothing of the suite small is left"),
        ({"seeds": 0}, "--seeds must be at least 1"),
        ({"budget": 0.0}, "--budget must be at least 1"),
        ({"budget": float("nan")}, "--budget must be at least 1"),
    ],
)
def test_a_wrong_option_is_named(options, words):
    with pytest.raises(ValueError, match=words):
        cells(parse_suite(SUITE), **options)


def test_the_suites_that_come_with_the_package():
    assert {"paper", "ours", "quick"} <= set(suite_names())
    root = Path(__file__).parents[3] / "suites"
    assert {path.name for path in root.glob("*.toml")} == {f"{name}.toml" for name in suite_names()}
    for name in suite_names():
        assert read_suite(name).name == name
    with pytest.raises(ValueError, match="did you mean paper"):
        read_suite("papers")


def test_the_papers_suite_is_the_papers():
    suite = read_suite("paper")
    assert (len(suite.environments), len(suite.methods), suite.seeds, suite.steps) == (10, 8, 5, 10_000_000)
    raw = tomllib.loads((SUITES / "paper.toml").read_text())
    assert not raw.get("train")
    assert not raw.get("scenario")
    assert len({len(grid) for grid in suite.tune.grid.values()}) == 1
    if not package.missing():
        found = cells(suite, ("method=mappo",)) + cells(suite, ("env=bos_repeated",))
        assert len(found) == 10 + 8
        assert {cell.config.settings.rollout for cell in found} == {128}
        assert {cell.config.steps for cell in found} == {10_000_000}


def test_the_suite_that_the_page_shows_is_one():
    page = (Path(__file__).parents[3] / "docs" / "sweep.md").read_text()
    suite = parse_suite(page.partition("```toml\n")[2].partition("```")[0])
    assert len(cells(suite)) == 5
    assert {len(grid) for grid in suite.tune.grid.values()} == {4}


def test_folders_have_plain_names():
    assert folder_name("matrix/stag_hunt:horizon=9") == "matrix_stag_hunt_horizon=9"
