"""A config says what is wrong before anything is made, and comes back from its file as it was."""

import json
import re

import pytest

from hpml import cli
from hpml.experiment.config import complete, from_json, to_json, train_config


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
