"""A run folder belongs to one run, with one config, and to one process at a time."""

import json
import os
import re
import subprocess
import sys

import pytest

from hpml.experiment.store import create_run, note_versions, open_run, read_config

CONFIG = {"env": "matrix/stag_hunt", "steps": 100, "workers": 2, "settings": {"rollout": 8, "clip": 0.2}}


def test_a_run_goes_on_with_its_config_and_may_change_what_does_not_matter(tmp_path):
    create_run(tmp_path / "run", CONFIG, [3, 4]).close()
    assert json.loads((tmp_path / "run" / "seeds.json").read_text()) == {"seeds": [3, 4]}
    open_run(tmp_path / "run", CONFIG | {"workers": 5}, [3, 4], frozenset({"workers"})).close()
    assert read_config(tmp_path / "run") == CONFIG | {"workers": 5}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env": "matrix/chicken"}, "has --env matrix/stag_hunt, and matrix/chicken was asked for"),
        ({"settings": {"rollout": 8, "clip": 0.3}}, "has --clip 0.2, and 0.3 was asked for"),
        ({"more": 1}, "has --more nothing, and 1 was asked for"),
    ],
)
def test_another_config_is_refused_and_the_field_named(tmp_path, change, words):
    create_run(tmp_path / "run", CONFIG, [0]).close()
    with pytest.raises(ValueError, match=words):
        open_run(tmp_path / "run", CONFIG | change, [0], frozenset({"workers"}))
    assert read_config(tmp_path / "run") == CONFIG


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match=r"holds other things \(thesis.tex\)"):
        create_run(tmp_path, CONFIG, [0])
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_second_run_does_not_overwrite_the_first(tmp_path):
    create_run(tmp_path / "run", CONFIG, [0]).close()
    with pytest.raises(ValueError, match="holds a run already: go on with it by --resume"):
        create_run(tmp_path / "run", CONFIG, [0])


def test_no_run_names_the_nearest(tmp_path):
    create_run(tmp_path / "stag-mappo", CONFIG, [0]).close()
    with pytest.raises(ValueError, match=r"no run in .*stag-mapo to go on with\. Did you mean .*stag-mappo\?"):
        open_run(tmp_path / "stag-mapo", CONFIG, [0], frozenset())


def test_a_damaged_config_is_one_sentence(tmp_path):
    create_run(tmp_path / "run", CONFIG, [0]).close()
    (tmp_path / "run" / "config.json").write_text("{")
    with pytest.raises(ValueError, match="cannot be read"):
        open_run(tmp_path / "run", CONFIG, [0], frozenset())


HOLD = """
import sys
from pathlib import Path
from hpml.experiment.store import open_run, read_config
path = Path(sys.argv[1])
folder = open_run(path, read_config(path), [0], frozenset())
print("held", flush=True)
sys.stdin.read()
"""


def test_two_processes_do_not_share_a_folder_and_a_dead_one_does_not_hold_it(tmp_path):
    create_run(tmp_path / "run", CONFIG, [0]).close()
    arguments = [sys.executable, "-c", HOLD, str(tmp_path / "run")]
    holder = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ)
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match="Another process is working on the run"):
            open_run(tmp_path / "run", CONFIG, [0], frozenset())
    finally:
        holder.kill()
        holder.communicate()
    open_run(tmp_path / "run", CONFIG, [0], frozenset()).close()


def test_versions_are_kept_for_every_start_and_a_change_is_said(tmp_path):
    folder = create_run(tmp_path / "run", CONFIG, [0])
    assert note_versions(folder, "cpu", 0) is None
    assert note_versions(folder, "cpu", 7) is None
    assert "device cpu -> H200" in note_versions(folder, "H200", 9)
    assert note_versions(folder, "cpu", 9, {"policies": "C"}) is None  # the first start noted nothing of the kind
    folder.close()
    starts = json.loads((tmp_path / "run" / "versions.json").read_text())["starts"]
    assert [start["update"] for start in starts] == [0, 7, 9, 9]
    assert starts[0]["versions"]["jax"]
    assert re.fullmatch("[0-9a-f]{12}", starts[0]["versions"]["source"])
