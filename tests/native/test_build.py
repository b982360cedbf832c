"""What is written in C: made once, in the user's cache, and not missed where it cannot be made."""

import os
import shutil
import stat

import pytest

from hpml.native import build as module
from hpml.native import pictures, play, products, sketch
from hpml.native.build import built
from hpml.native.play import SOURCE, library, load


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """`built` as a new process has it, with an empty cache; give it what its surroundings are."""

    def found(source=SOURCE, **surroundings):
        for name, value in surroundings.items():
            monkeypatch.setenv(name, value)
        return built.__wrapped__(source)

    monkeypatch.delenv("HPML_NATIVE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return found


@pytest.mark.skipif(library() is None, reason="this machine has no C compiler")
def test_it_is_made_once(fresh, tmp_path, monkeypatch):
    first = fresh()
    assert first.startswith(str(tmp_path))
    load(first)
    monkeypatch.setattr(module.subprocess, "run", None)  # a second call must not compile
    assert fresh() == first
    assert [path.name for path in (tmp_path / "cache/hpml").iterdir()] == [os.path.basename(first)]


@pytest.mark.skipif(library() is None, reason="this machine has no C compiler")
def test_another_source_is_another_file(fresh, tmp_path):
    other = tmp_path / SOURCE.name
    other.write_text(SOURCE.read_text() + "\n/* changed */\n")
    assert fresh() != fresh(other)


def test_without_a_compiler_there_is_none(fresh):
    assert fresh(CC="/nowhere/cc") is None


def test_a_compiler_that_fails_leaves_nothing(fresh, tmp_path):
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    assert fresh(CC=str(broken)) is None
    assert list((tmp_path / "cache/hpml").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_not_needed(fresh, tmp_path):
    (tmp_path / "file").touch()
    assert fresh(XDG_CACHE_HOME=str(tmp_path / "file")) is None


@pytest.mark.skipif(library() is None, reason="this machine has no C compiler")
def test_a_damaged_file_is_made_again(fresh, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    made = module._place(["cc"], SOURCE)
    made.parent.mkdir(parents=True)
    made.touch()  # as a power cut may leave it
    assert fresh() == str(made)
    assert made.stat().st_size > 0


def test_words_that_no_shell_understands_and_no_home_are_no_compiler(fresh, monkeypatch):
    assert fresh(CC="'cc") is None
    monkeypatch.setattr(module.Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert fresh(CC="cc", XDG_CACHE_HOME="") is None


def test_it_can_be_switched_off(fresh):
    assert fresh(HPML_NATIVE="0") is None


@pytest.mark.skipif(
    shutil.which(os.environ.get("CC", "cc").split()[0]) is None, reason="this machine has no C compiler"
)
@pytest.mark.skipif(os.environ.get("HPML_NATIVE") == "0", reason="C is switched off")
@pytest.mark.parametrize("part", [pictures, play, products, sketch], ids=lambda part: part.__name__.rpartition(".")[2])
def test_every_part_compiles_where_there_is_a_compiler(part):
    """Nobody misses C where it cannot be made, tests included: they would skip what a slip of the pen has broken."""
    assert part.available() if hasattr(part, "available") else part.library() is not None
