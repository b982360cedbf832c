"""Nothing is lost: a run that is killed at any moment and goes on has the table and the state of one that was not."""

import contextlib
import errno
import os
import signal
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

from hpml import cli
from hpml.experiment import run
from hpml.experiment.checkpoint import checkpoints, load_checkpoint
from hpml.experiment.config import train_config
from hpml.experiment.course import Course, Leg
from hpml.experiment.evaluation import Episodes
from hpml.experiment.metrics import read_metrics
from hpml.experiment.run import train
from hpml.marl.env import Spec

AGENTS = 2


class Walk(Course):
    """A course that takes no time: every number follows from the state before, as in training."""

    longest = 2

    def __init__(self, config):
        self.spec = Spec("walk", AGENTS, 3, conventions=3)
        self.x = np.array([np.random.default_rng(seed).standard_normal(AGENTS) for seed in config.all_seeds])
        self.count = 0
        self.bad = config.settings.actor_rate > 1.0

    def tree(self):
        return {"x": self.x, "key": jax.random.key(self.count), "count": self.count}

    def parameters(self):
        return {"actors": AGENTS, "critic": 0}

    def restore(self, tree):
        self.x, self.count = tree["x"], tree["count"]

    def advance(self, updates):
        rows = []
        for _ in range(updates):
            self.x = np.sin(1.7 * self.x + 1.0) + 0.01 * self.count
            self.count += 1
            rows.append([{"return": float(x.mean()), "seconds/train": 0.0} for x in self.x])
        finite = np.ones((updates, len(self.x)), bool)
        finite[-1, 0] = not (self.bad and self.count >= 6)
        return Leg(rows, finite)

    def evaluate(self, update, episodes):
        conventions = (np.abs(1000 * self.x).astype(int) + update) % 3
        shape = (4, episodes, AGENTS)
        played = [np.broadcast_to(shown, shape).astype(np.int32) for shown in conventions]
        return [
            Episodes(np.tile(x, (episodes, 1)), np.full(episodes, 4), shown)
            for x, shown in zip(self.x, played, strict=True)
        ]


def walk(config, kind=Walk):
    return lambda: kind(config)


def quiet():
    return Console(file=open(os.devnull, "w"))


def small(out, **options):
    given = {"steps": 12 * 8, "environments": 4, "rollout": 2, "seeds": 2, "seed": 5, "evaluate_every": 4}
    return train_config("matrix/stag_hunt", out=Path(out), **{**given, "checkpoint_every": 4, **options})


def kept(folder):
    """The table without times, and the last state."""
    table = read_metrics(folder)
    timeless = [name for name in table.column_names if not name.startswith("seconds")]
    course = Walk(small("x"))
    template = {"course": course.tree(), "frequent": np.full((2, AGENTS), -1, np.int32)}
    found = load_checkpoint(folder / "checkpoints", template)
    leaves = [np.asarray(leaf).tobytes() for leaf in (found.tree["course"]["x"], found.tree["frequent"])]
    return table.select(timeless), leaves, found.tree["course"]["count"], found.update


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody stopped."""
    result = train(small(tmp_path_factory.mktemp("whole") / "run"), quiet(), walk)
    assert (result.update, result.stopped) == (12, None)
    return kept(result.folder)


class Killed(BaseException):
    """In place of a process that is gone: nothing in the program catches it."""


def kill_at(monkeypatch, moment, after):
    """Die at the given number of a call that changes the disk for good, before it or after it."""
    left = [moment]
    for name in ("fsync", "replace"):
        real = getattr(os, name)

        def call(*arguments, real=real):
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Killed
            real(*arguments)
            if left[0] == 0:
                raise Killed

        monkeypatch.setattr(os, name, call)
    return left


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_every_moment_that_touches_the_disk(tmp_path, whole, after):
    """One run is killed at its first such moment, the next at its second, and so on; each then goes on to its end."""
    for moment in range(1, 100):
        folder = tmp_path / str(moment)
        with pytest.MonkeyPatch.context() as patch:
            left = kill_at(patch, moment, after)
            with contextlib.suppress(Killed):
                train(small(folder), quiet(), walk)
        if left[0] > 0:
            break  # it ran to its end
        # Other checkpoints from here on: parts of the table that nobody knows must not stay behind.
        train(small(folder, resume=(folder / "config.json").exists(), checkpoint_every=6), quiet(), walk)
        assert_same(kept(folder), whole)
    assert 30 < moment < 99


def assert_same(found, expected):
    assert found[0].equals(expected[0])
    assert found[1:] == expected[1:]


def test_killed_again_and_again(tmp_path, whole):
    """The same run dies soon after every start, and still comes to its end."""
    folder = tmp_path / "run"
    for start in range(20):
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, 22, False)
            try:
                train(small(folder, resume=start > 0), quiet(), walk)
                break
            except Killed:
                continue
    assert 2 <= start < 19
    assert_same(kept(folder), whole)


def fill_at(monkeypatch, moment):
    """The disk is full from the given number of a call that reaches it."""
    left, real = [moment], os.fsync

    def full(handle):
        left[0] -= 1
        if left[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)


@pytest.mark.parametrize("moment", [2, 3, 10, 14, 19, 24])
def test_a_full_disk_is_one_sentence_and_the_run_goes_on_when_there_is_room(tmp_path, whole, moment):
    with pytest.MonkeyPatch.context() as patch:
        fill_at(patch, moment)
        with pytest.raises(ValueError, match=r"(?i)(disk is full|no space left).*make room and go on with --resume"):
            train(small(tmp_path / "run"), quiet(), walk)
    train(small(tmp_path / "run", resume=True), quiet(), walk)
    assert_same(kept(tmp_path / "run"), whole)


def test_a_disk_that_is_full_before_there_is_a_run_is_one_sentence_and_the_command_works_later(tmp_path, whole):
    with pytest.MonkeyPatch.context() as patch:
        fill_at(patch, 1)
        with pytest.raises(ValueError, match=r"^The disk is full: make room and give the same command again\.$"):
            train(small(tmp_path / "run"), quiet(), walk)
    train(small(tmp_path / "run"), quiet(), walk)
    assert_same(kept(tmp_path / "run"), whole)


@pytest.mark.parametrize("moment", [1, 2, 4])
def test_a_full_disk_is_one_sentence_where_a_run_goes_on(tmp_path, whole, moment):
    train(small(tmp_path / "run", steps=8 * 8), quiet(), walk)
    with pytest.MonkeyPatch.context() as patch:
        fill_at(patch, moment)
        words = r"^The disk is full; the checkpoint of update 8 is whole: make room and go on with --resume\.$"
        with pytest.raises(ValueError, match=words):
            train(small(tmp_path / "run", resume=True), quiet(), walk)
    train(small(tmp_path / "run", resume=True), quiet(), walk)
    assert_same(kept(tmp_path / "run"), whole)


class StoppedAtOnce(Walk):
    """A signal comes while the course is made, and restored nobody needs it."""

    def __init__(self, config):
        os.kill(os.getpid(), signal.SIGINT)
        super().__init__(config)

    def restore(self, tree):
        pytest.fail("it was restored")


def test_a_signal_while_the_course_is_made_stops_the_run_before_its_first_update(tmp_path, whole):
    result = train(small(tmp_path / "run"), quiet(), partial(walk, kind=StoppedAtOnce))
    assert (result.update, result.total, result.stopped) == (-1, 12, signal.SIGINT)
    train(small(tmp_path / "run", resume=True, steps=4 * 8), quiet(), walk)
    again = train(small(tmp_path / "run", resume=True), quiet(), partial(walk, kind=StoppedAtOnce))
    assert (again.update, again.total, again.stopped) == (4, 12, signal.SIGINT)
    train(small(tmp_path / "run", resume=True), quiet(), walk)
    assert_same(kept(tmp_path / "run"), whole)


def test_a_signal_while_a_run_is_restored_leaves_it_as_it_was(tmp_path, whole):
    class Restoring(Walk):
        def restore(self, tree):
            os.kill(os.getpid(), signal.SIGINT)
            super().restore(tree)

    train(small(tmp_path / "run", steps=4 * 8), quiet(), walk)
    result = train(small(tmp_path / "run", resume=True), quiet(), partial(walk, kind=Restoring))
    assert (result.update, result.stopped) == (4, signal.SIGINT)
    train(small(tmp_path / "run", resume=True), quiet(), walk)
    assert_same(kept(tmp_path / "run"), whole)


@pytest.mark.parametrize("after", [0, 1])
@pytest.mark.parametrize("ending", ["mp4", "gif"])
def test_a_signal_while_the_film_is_made_leaves_none_and_it_is_made_later(tmp_path, whole, ending, after):
    class Filmed(Walk):
        stopping = True

        def film(self, update, add):
            for number in range(4):
                if self.stopping and number == after:
                    os.kill(os.getpid(), signal.SIGINT)
                add(np.full((8, 8, 3), 60 * number))

    class Later(Filmed):
        stopping = False

    result = train(small(tmp_path / "run", video=ending), quiet(), partial(walk, kind=Filmed))
    assert (result.update, result.stopped) == (12, signal.SIGINT)
    assert list((tmp_path / "run" / "videos").iterdir()) == []
    assert train(small(tmp_path / "run", video=ending, resume=True), quiet(), partial(walk, kind=Later)).stopped is None
    assert [path.name for path in (tmp_path / "run" / "videos").iterdir()] == [f"0000000012.{ending}"]
    assert_same(kept(tmp_path / "run"), whole)


@pytest.mark.parametrize(
    ("update", "where"), [(-1, "before the first update"), (0, "before the first update"), (4, "after update 4 of 12")]
)
def test_the_command_says_where_it_was_stopped_and_how_to_go_on(monkeypatch, capsys, tmp_path, update, where):
    place = tmp_path / "run"
    monkeypatch.setattr(run, "train", lambda *_: run.Result(place, update, 12, signal.SIGTERM))
    with pytest.raises(SystemExit) as stop:
        cli.main(["train", "--out", str(place)])
    assert stop.value.code == 128 + signal.SIGTERM
    assert capsys.readouterr().out == f"Stopped {where}. Go on with: hpml train --resume --out {place}\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_run_after_the_leg_and_it_goes_on(tmp_path, whole, number):
    class Interrupted(Walk):
        def advance(self, updates):
            if self.count == 6:
                os.kill(os.getpid(), number)
            return super().advance(updates)

    result = train(small(tmp_path / "run"), quiet(), partial(walk, kind=Interrupted))
    assert (result.update, result.stopped) == (8, number)
    assert checkpoints(tmp_path / "run" / "checkpoints")[-1] == 8
    assert train(small(tmp_path / "run", resume=True), quiet(), walk).stopped is None
    assert_same(kept(tmp_path / "run"), whole)


def test_a_second_signal_stops_at_once(tmp_path):
    class Impatient(Walk):
        def advance(self, updates):
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            return super().advance(updates)

    with pytest.raises(KeyboardInterrupt):
        train(small(tmp_path / "run"), quiet(), partial(walk, kind=Impatient))


def test_a_damaged_checkpoint_is_passed_over_and_said(tmp_path, whole, capsys):
    train(small(tmp_path / "run"), quiet(), walk)
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-3])
    train(small(tmp_path / "run", resume=True), Console(), walk)
    said = capsys.readouterr().out
    assert "The checkpoint of update 12 is damaged" in said
    assert "Going on from update 8 of 12." in said
    assert_same(kept(tmp_path / "run"), whole)


def test_what_is_not_a_number_stops_the_run_and_the_last_good_state_is_whole(tmp_path):
    with pytest.raises(ValueError, match=r"Update 6 of seed 5 .* not a number.* checkpoint of update 4 is whole"):
        train(small(tmp_path / "run", actor_rate=2.0), quiet(), walk)
    assert kept(tmp_path / "run")[3] == 4
    assert read_metrics(tmp_path / "run")["update"].to_pylist()[-1] == 6  # the reader sees where it went wrong


def test_a_device_out_of_memory_is_one_sentence(tmp_path):
    class Greedy(Walk):
        def advance(self, updates):
            return jnp.zeros(1 << 46) if self.count == 6 else super().advance(updates)

    with pytest.raises(
        ValueError, match=r"^The device ran out of memory; the checkpoint of update 4 is whole\. Use fewer"
    ):
        train(small(tmp_path / "run"), quiet(), partial(walk, kind=Greedy))
    assert kept(tmp_path / "run")[3] == 4


def test_a_run_can_be_made_longer(tmp_path, whole):
    train(small(tmp_path / "run", steps=4 * 8), quiet(), walk)
    train(small(tmp_path / "run", resume=True), quiet(), walk)
    assert_same(kept(tmp_path / "run"), whole)


def test_a_finished_run_has_nothing_left_to_do(tmp_path, whole):
    train(small(tmp_path / "run"), quiet(), walk)
    assert train(small(tmp_path / "run", resume=True), quiet(), walk).update == 12
    assert_same(kept(tmp_path / "run"), whole)


def test_another_config_is_refused(tmp_path):
    train(small(tmp_path / "run"), quiet(), walk)
    with pytest.raises(ValueError, match=r"has --clip 0.2, and 0.1 was asked for"):
        train(small(tmp_path / "run", resume=True, clip=0.1), quiet(), walk)
    with pytest.raises(ValueError, match="holds a run already"):
        train(small(tmp_path / "run"), quiet(), walk)
