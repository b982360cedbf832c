"""A config says what is wrong before anything is made, and comes back from its file as it was."""

import json
import re
import sys
from pathlib import Path

import pytest

from hpml import cli
from hpml.experiment.config import MAY_CHANGE, TrainConfig, complete, from_json, to_json, train_config
from hpml.experiment.run import train
from hpml.experiment.store import create_run, difference, open_run, read_config
from hpml.marl.projection import ProjectionSettings, make_projection


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--env", "matrix/stag_hnt"), "no matrix game 'stag_hnt': did you mean stag_hunt"),
        (("--env", "rok_paper_scissors"), "did you mean .*matrix/rock_paper_scissors"),
        (("--env", "pots/clean_up"), "no family of environments 'pots'"),
        (("--env", "matrix/rps:colour=3"), "no matrix game 'rps'"),
        (("--algo", "mapo"), "no algorithm 'mapo': did you mean mappo"),
        (("--seeds", "0"), "--seeds must be at least 1, got 0"),
        (("--residual", "adjust"), "--residual adjust treats what a projection finds"),
        (("--projection", "kernel", "--projection-preset", "paper"), "The paper has no kernel projection"),
        (
            ("--projection", "neural", "--projection-preset", "paper", "--projection-refresh", "3"),
            "--projection-preset paper has --projection-refresh 1 for neural, and 3 was asked for: leave one",
        ),
        (
            ("--projection", "graph", "--projection-preset", "paper", "--projection-safeguard", "0.9"),
            "--projection-preset paper has --projection-safeguard 0.01 for graph, and 0.9 was asked for: leave one",
        ),
        (("--seed", "5000000000"), "--seed 5000000000 with --seeds 1 ends at 5000000000: seeds are below 4294967296"),
        (("--seed", str(2**32 - 2), "--seeds", "3"), "ends at 4294967296: seeds are below 4294967296"),
        (("--video", "gif"), "has no picture to film"),
        (("--environments", "3"), "environments must be 1 or even"),
        (("--resume",), "There is no run in .*new to go on with"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_no_folder(capsys, tmp_path, options, words):
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "--out", str(tmp_path / "new"), *options])
    said = capsys.readouterr().err.strip()
    assert stop.value.code == 2
    assert re.search(words, said), said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "new").exists()


def test_a_config_comes_back_from_its_file(tmp_path):
    config = complete(train_config("stag_hunt:horizon=9", projection="graph", rollout=32, clip=0.1, out=tmp_path))
    assert config.env == "matrix/stag_hunt:horizon=9"
    assert (config.settings.rollout, config.settings.clip) == (32, 0.1)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def test_what_is_left_open_is_filled_in():
    matrix, pot = complete(train_config("rps")), complete(train_config("meltingpot/clean_up"))
    assert (matrix.steps, pot.steps) == (200_000, 10_000_000)
    assert pot.updates == -(-10_000_000 // 256)  # the paper's batch: 128 steps of 2 environments
    assert pot.updates // pot.evaluate_every == 20
    assert str(pot.folder) == "out/train/meltingpot-clean_up-mappo-none"


def test_a_file_of_another_version_is_one_sentence():
    stored = to_json(train_config("rps"))
    with pytest.raises(ValueError, match=r"config\.json is of another version"):
        from_json(stored | {"colour": 3})


@pytest.mark.parametrize(
    ("kind", "preset", "used"),
    [
        ("neural", "paper", (1, 0.01)),
        ("graph", "paper", (8, 0.01)),
        ("neural", "default", (8, 0.3)),
        ("none", "paper", (8, 0.3)),  # nothing is used, and nothing is refused
    ],
)
def test_the_file_has_the_values_that_the_projection_uses(monkeypatch, kind, preset, used):
    config = complete(train_config("rps", projection=kind, projection_preset=preset))
    stored = to_json(config)
    assert (stored["projection_refresh"], stored["projection_safeguard"]) == used
    assert complete(config) == config == from_json(stored)
    made = []
    monkeypatch.setattr(
        "hpml.marl.projection.hodge_projection",
        lambda *arguments, **options: made.append((arguments[2], options["safeguard"])),
    )
    make_projection(config.project, config.settings, 2)
    assert made == [used] * (kind != "none")


def test_a_value_that_is_the_presets_own_may_be_said():
    options = {"projection": "neural", "projection_preset": "paper", "projection_refresh": 1}
    assert complete(train_config("rps", **options)).projection_safeguard == 0.01
    given = complete(train_config("rps", projection="neural", projection_refresh=3, projection_safeguard=0.9))
    assert (given.project.refresh, given.project.safeguard) == (3, 0.9)


def test_the_help_says_when_each_projection_is_fitted(capsys):
    with pytest.raises(SystemExit):
        cli.main(["train", "--help"])
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "graph with k=4, ridge 1e-4, a fit every 8 updates; neural with 2 inner steps at rate 1e-3, every" in said
    assert f"Unless given: {ProjectionSettings.refresh}, or the paper's" in said
    assert f"Unless given: {ProjectionSettings.safeguard}, or the paper's" in said


def test_a_run_of_a_version_that_wrote_other_values_goes_on(tmp_path, capsys):
    """Earlier versions wrote what was asked for, or 8 and 0.3, and used the preset's own all the same."""
    config = complete(train_config("rps", projection="neural", projection_preset="paper", out=tmp_path / "run"))
    old = to_json(config) | {"projection_refresh": 3, "projection_safeguard": 0.3}
    create_run(tmp_path / "run", old, [0]).close()
    assert not difference("run", old, to_json(config), MAY_CHANGE)  # which a sweep asks
    assert from_json(old) == config
    open_run(tmp_path / "run", to_json(config), [0], MAY_CHANGE).close()
    assert read_config(tmp_path / "run") == to_json(config)
    # What is asked for beside --resume is held against the run, not against the preset.
    for options, words in (
        (("--projection-refresh", "3"), "has --projection-refresh 1, and 3 was asked for"),
        (("--projection-preset", "default"), "has --projection-preset paper, and default was asked for"),
        (("--projection", "graph"), "has --projection neural, and graph was asked for"),
    ):
        with pytest.raises(SystemExit):
            cli.main(["train", "--resume", "--out", str(tmp_path / "run"), *options])
        assert words in capsys.readouterr().err


def test_the_last_seed_is_a_seed():
    assert TrainConfig(seed=2**32 - 3, seeds=3).all_seeds[-1] == 2**32 - 1


@pytest.mark.parametrize(
    ("package", "options", "words"),
    [
        ("wandb", ("--wandb", "foo"), "pip install wandb, or leave it out"),
        ("tensorboard.compat.proto.event_pb2", (), r"TensorBoard: pip install \"hpml\[train\]\""),
        ("pyarrow", (), r"pyarrow: pip install \"hpml\[train\]\""),
    ],
)
def test_a_missing_package_leaves_no_folder(monkeypatch, capsys, tmp_path, package, options, words):
    """A folder that was begun would be in the way of the command without the option."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit):
        cli.main(["train", "--out", str(tmp_path / "new"), *options])
    assert re.search(words, capsys.readouterr().err)
    assert not (tmp_path / "new").exists()


def test_a_missing_package_for_films_leaves_no_folder(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(ValueError, match="Films need imageio"):
        train(
            train_config("rps", video="gif", out=tmp_path / "new"), plan=lambda config: lambda: pytest.fail("it began")
        )
    assert list(Path(tmp_path).iterdir()) == []
