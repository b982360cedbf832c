"""The command line explains itself, does its job, and names a mistake in one sentence."""

import json
import re
from dataclasses import asdict
from html.parser import HTMLParser

import numpy as np
import pytest

from hpml import cli
from hpml.catalogue import list_games, list_projectors, list_rules
from hpml.experiment.config import TrainConfig
from hpml.experiment.sweep.suite import suite_names
from hpml.marl.settings import Settings
from hpml.mechanism import comparison, harm, loops
from hpml.mechanism.config import OURS, PAPER, MechanismConfig
from hpml.mechanism.suite import EXPERIMENTS, run_mechanism

RULES = ("simultaneous", "HPML, dropped", "HPML, adjusted")


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


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("mechanism", (*MechanismConfig.__dataclass_fields__, "out")),
        ("diagnose", ("field", "out", "conventions", "limit")),
        (
            "sweep",
            ("out", "budget", "seeds", "only", "jobs", "workers", "device", "tune", "ray", "list"),
        ),
        ("train", sorted({*TrainConfig.__dataclass_fields__, *Settings.__dataclass_fields__} - {"settings"})),
    ],
)
def test_every_option_is_explained(capsys, command, options):
    _, out, _ = run(capsys, command, "--help")
    lines = [line.strip(" │|") for line in out.splitlines()]
    for option in options:
        name = rf"\W --{option.replace('_', '-')}(,| |$)"  # beside the frame, where an option begins
        (place,) = [k for k, line in enumerate(out.splitlines()) if re.match(name, line)]
        # The sentence stands beside the option, or below where the option is long.
        text = " ".join(lines[place : place + 2]).split(maxsplit=1)[1]
        assert len(re.findall(r"[a-z]{2,}", text)) >= 4, option


@pytest.mark.parametrize("wrong", ["mechanisms", "trains", "foo"])
def test_a_wrong_command_gets_one_sentence(capsys, wrong):
    status, out, err = run(capsys, wrong)
    assert status == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert wrong in err
    assert "mechanism" in err


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--rho", "nan", "--rho must be finite, got nan."),
        ("--rho", "inf", "--rho must be finite, got inf."),
        ("--seed", "-1", "--seed must not be negative, got -1."),
        ("--processes", "0", "--processes must be at least 1, got 0."),
    ],
)
def test_a_bad_value_gets_one_sentence(capsys, tmp_path, option, value, words):
    status, out, err = run(capsys, "mechanism", option, value, "--out", str(tmp_path / "new"))
    assert (status, out) == (2, "")
    assert err.strip() == words
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_made_stops_the_run_before_it_starts(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "run_mechanism", lambda *_: pytest.fail("it ran"))
    (tmp_path / "file").write_text("")
    status, _, err = run(capsys, "mechanism", "--out", str(tmp_path / "file"))
    assert status == 2
    assert len(err.strip().splitlines()) == 1
    assert "file" in err


def test_list_shows_what_there_is(capsys):
    status, out, _ = run(capsys, "list")
    assert status == 0
    for title in ("projectors", "update rules", "games", "metrics", "domains"):
        assert title in out
    for name in (
        *list_projectors(),
        *list_rules(),
        *list_games(),
        *suite_names(),
        "Shahshahani",
        "LowRank",
        "Ball",
        "Simplices",
    ):
        assert name in out


class Small(MechanismConfig):
    """Every experiment at the size where its truth can just be seen; few shapes, so that little is compiled."""

    samples, steps, starts, rhos, counts = 200, 300, 3, (0.0, 2.0, 4.0), (200,)

    @property
    def projectors(self):
        return {name: projector for name, projector in super().projectors.items() if name != "neural"}


@pytest.fixture(scope="module")
def found():
    """One result of the whole suite, which every test here reads."""
    compare = comparison.compare
    with pytest.MonkeyPatch.context() as patch:
        for module, names in (
            (comparison, ("rock-paper-scissors",)),
            (harm, ("rock-paper-scissors", "stag hunt")),
            (loops, ("one population, rock-paper-scissors",)),
        ):
            patch.setattr(module, "GAMES", {name: module.GAMES[name] for name in names})
        patch.setattr(
            comparison,
            "compare",
            lambda game, rules, *rest, **more: compare(game, {name: rules[name] for name in RULES}, *rest, **more),
        )
        patch.setattr(comparison, "SAMPLES", Small.samples)
        return run_mechanism(Small(quick=True, processes=1))  # in this process, where the small sizes are


def named(traces):
    return {trace.name: trace for trace in traces}


def test_rock_paper_scissors_goes_round_raw_stops_when_dropped_and_arrives_when_treated(found):
    cycle = named(found.cycle.traces)
    raw, dropped, treated = cycle["raw"], cycle[f"dropped, {OURS}"], cycle["treated, adjust"]
    assert raw.diameter > 1.0
    assert all(trace.diameter < raw.diameter / 10 for name, trace in cycle.items() if name.startswith("dropped"))
    assert dropped.diameter < 1e-6
    assert dropped.exploitable > 0.5
    assert treated.exploitable < 1e-3


def test_with_a_pull_the_projected_run_ends_at_the_optimum(found):
    distance = dict(zip([trace.name for trace in found.optimum.traces], found.optimum.distances, strict=True))
    assert distance[f"dropped, {OURS}"] < 0.02
    assert all(value > 0.1 for name, value in distance.items() if name != f"dropped, {OURS}")


def test_the_loop_is_named_in_the_order_of_play(found):
    (game,) = found.loops
    turned = ["rock", "paper", "scissors", "rock", "paper"]
    assert any(turned[start : start + 3] == list(game.loops[0].names) for start in range(3))


def test_the_share_of_circulation_rises_with_the_rotation_as_it_should(found):
    for sweep in found.sweeps:
        for shares in sweep.shares.values():
            assert np.all(np.diff(shares) > 0)
        np.testing.assert_allclose(sweep.shares[OURS], sweep.exact, atol=0.02)
        assert np.all(sweep.shares[PAPER][1:] < sweep.exact[1:] - 0.1)
        raw, dropped = ([trace.diameter for trace in sweep.traces[name]] for name in ("raw", OURS))
        assert np.all(np.diff(raw) > 0)
        assert np.ptp(dropped) < 0.01
        assert dropped[-1] < raw[-1] / 10


def test_ours_points_to_the_exact_direction(found):
    cosine = {name: values[-1].mean() for name, values in found.accuracy.cosines.items()}
    assert cosine[OURS] > 0.95
    assert cosine[OURS] > cosine["graph"] > cosine[PAPER]
    assert cosine["graph"] > 2 * found.accuracy.raw


def test_dropping_leaves_what_treating_takes_away(found):
    left = {game.name: {trace.name: trace.exploitable for trace in game.traces} for game in found.harm}
    cyclic, hill = left["rock-paper-scissors"], left["stag hunt"]
    assert cyclic["drop"] > 0.5
    assert cyclic["adjust"] < 1e-3
    assert max(hill.values()) < 1e-9
    (game,) = found.comparison
    ends = {curve.name: float(curve.last.median[-1]) for curve in game.curves}
    assert ends["HPML, dropped"] > 0.5
    assert ends["HPML, adjusted"] < 1e-3


def test_only_exact_joint_gradients_of_one_reward_do_not_circulate(found):
    for name, share in found.bridge.relay.items():
        shares = np.append(found.bridge.random[name], share)
        assert shares.max() < 1e-20 if name == "exact" else shares.min() > 1e-3


def test_potential_games_have_no_circulation_and_harmonic_ones_the_most(found):
    np.testing.assert_allclose(found.truth.exact.mean(1), found.truth.shares, atol=1e-9)
    for shares in found.truth.found.values():
        assert shares[0].max() < 1e-9
        assert np.all(np.diff(shares.mean(1)) > 0)


def test_certificates_fail_only_where_they_are_meant_to(found):
    assert {run.meant_to_fail for run in found.certified} == {True, False}
    for run_ in found.certified:
        verdicts = {certificate.verdict for certificate in run_.certificates}
        assert "holds" in verdicts
        if run_.meant_to_fail:
            assert verdicts & {"fails", "assumption violated"}
        else:
            assert "fails" not in verdicts
    exact = [run_ for run_ in found.certified if "along its exact potential" in run_.name]
    assert len(exact) == 2
    assert all(certificate.verdict == "holds" for run_ in exact for certificate in run_.certificates)


class Links(HTMLParser):
    """Every address that a page would load."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        self.found += [value for name, value in attributes if name in ("src", "srcset", "href")]


@pytest.fixture(scope="module")
def folder(found, tmp_path_factory):
    """What the command writes, with what it prints in printed.txt."""
    out, told = tmp_path_factory.mktemp("mechanism") / "new", []

    def made(config, tell):
        told.append(config)
        for done, (title, _) in enumerate(EXPERIMENTS.values()):
            tell(title, done)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "run_mechanism", made)
        patch.setenv("COLUMNS", "200")
        with pytest.MonkeyPatch.context() as output, (tmp_path_factory.mktemp("printed") / "out").open("w+") as file:
            output.setattr("sys.stdout", file)
            cli.main(["mechanism", "--quick", "--rho", "1.5", "--seed", "3", "--out", str(out)])
            file.seek(0)
            printed = file.read()
    assert told == [MechanismConfig(quick=True, rho=1.5, seed=3)]
    return out, printed


def test_the_page_needs_nothing_else(folder):
    text = (folder[0] / "report.html").read_text(encoding="utf-8")
    links = Links()
    links.feed(text)
    assert len(links.found) > 20  # the contents, an icon, and the data of the figures and tables
    assert all(link.startswith(("data:", "#")) for link in links.found)


def test_pictures_and_numbers_lie_beside_the_page(folder, found):
    out, printed = folder
    pictures = {f"{name}.{kind}" for name in ("panels", "panels_paper", "split") for kind in ("png", "pdf")}
    assert {path.name for path in out.iterdir()} == pictures | {"report.html", "result.json"}
    for name in pictures:
        assert (out / name).read_bytes().startswith(b"\x89PNG" if name.endswith("png") else b"%PDF")
    numbers = json.loads((out / "result.json").read_text())
    assert numbers["config"] == asdict(found.config)
    assert set(numbers["seconds"]) == set(EXPERIMENTS)
    assert len(numbers["results"]) == 6
    # The table in the terminal says the same as the file.
    for row in numbers["results"]:
        assert row["measure"] in printed
        (line,) = [line for line in printed.splitlines() if row["measure"] in line]
        assert all(value in line for value in row.values())
    plane = next(row for row in numbers["results"] if row["measure"].startswith("2-D field"))
    assert float(plane["kernel"]) == pytest.approx(float(plane["exact"]), abs=0.01)


def test_the_command_says_where_the_page_is(folder):
    out, printed = folder
    assert printed.splitlines()[-1] == f"report: {out / 'report.html'}"
