"""Who is compared, and after how many steps."""

import numpy as np
import pytest
from report.sweep.folders import BATCH, columns_of, write_part, write_run

from hpml.report.sweep import study as study_module
from hpml.report.sweep.study import read_study


def ends(study):
    return {(cell.environment, cell.method): (cell.seeds, cell.bound / BATCH) for cell in study.cells.values()}


def test_methods_are_compared_at_the_steps_that_all_have(tmp_path):
    write_run(tmp_path / "a", lambda seed, update: float(update), seeds=(0, 1), updates=40)
    write_run(tmp_path / "b", lambda seed, update: float(update), seeds=(0,), updates=20, algo="ippo")
    study = read_study([str(tmp_path)])
    assert ends(study) == {
        ("matrix/stag_hunt", "MAPPO"): ((0, 1), 20),
        ("matrix/stag_hunt", "IPPO"): ((0,), 20),
    }
    assert study.values("matrix/stag_hunt", "MAPPO", "final").tolist() == [19.5, 19.5]
    assert any("compared after 1,280 steps" in note for note in study.notes)
    own = read_study([str(tmp_path)], own=True)
    assert own.values("matrix/stag_hunt", "MAPPO", "final")[0] == pytest.approx(38.5)
    longer = read_study([str(tmp_path)], steps=30 * BATCH)
    assert ends(longer) == {("matrix/stag_hunt", "MAPPO"): ((0, 1), 30)}
    with pytest.raises(ValueError, match="the furthest has 2,560"):
        read_study([str(tmp_path)], steps=10**6)


def test_those_who_went_on_are_compared_a_second_time(tmp_path):
    def value(seed, update):
        return float(update)

    write_run(tmp_path / "a", value, seeds=(0, 1), updates=100)
    write_run(tmp_path / "b", value, seeds=(0, 1), updates=80, algo="ippo")
    write_run(tmp_path / "c", value, seeds=(0, 1), updates=20, algo="coma")
    study = read_study([str(tmp_path)])
    assert {cell.bound / BATCH for cell in study.cells.values()} == {20}
    assert {(cell.method, cell.bound / BATCH) for cell in study.later.values()} == {("MAPPO", 80), ("IPPO", 80)}
    assert study.later["matrix/stag_hunt", "MAPPO"].values["final"][0] == np.mean(np.arange(73, 81))


def test_seeds_that_have_just_begun_wait(tmp_path):
    write_run(tmp_path / "a", seeds=(0, 1), updates=40)
    write_run(tmp_path / "b", seeds=(2,), updates=40, upto=19)
    write_run(tmp_path / "c", seeds=(3,), updates=40, upto=30)
    study = read_study([str(tmp_path)])
    assert ends(study) == {("matrix/stag_hunt", "MAPPO"): ((0, 1, 3), 30)}
    assert any("seed 2" in note for note in study.notes)
    # A finished run counts, however short it is.
    write_run(tmp_path / "d", seeds=(4,), updates=10)
    assert ends(read_study([str(tmp_path)])) == {("matrix/stag_hunt", "MAPPO"): ((0, 1, 3, 4), 10)}


def test_groups_of_seeds_are_one_cell_and_the_longer_of_two_equal_seeds_counts(tmp_path):
    write_run(tmp_path / "a", lambda seed, update: 1.0, seeds=(0, 1), updates=20)
    write_run(tmp_path / "b", lambda seed, update: 2.0, seeds=(1, 2), updates=30)
    study = read_study([str(tmp_path)])
    assert ends(study) == {("matrix/stag_hunt", "MAPPO"): ((0, 1, 2), 20)}
    assert study.values("matrix/stag_hunt", "MAPPO", "final").tolist() == [1.0, 2.0, 2.0]
    assert any("seed 1 is in two runs" in note and note.index("/b") < note.index("/a") for note in study.notes)


def test_a_run_that_writes_its_parts_again_meanwhile_is_read_all_the_same(tmp_path, monkeypatch):
    folder = write_run(tmp_path / "a", lambda seed, update: float(update), updates=20)
    plain = study_module.choose

    def interrupted(*given):
        monkeypatch.setattr(study_module, "choose", plain)
        last = sorted((folder / "metrics").iterdir())[-1]
        last.unlink()
        write_part(folder, columns_of((0,), 18, lambda seed, update: float(update), first=11))
        return plain(*given)

    monkeypatch.setattr(study_module, "choose", interrupted)
    study = read_study([str(tmp_path)])
    assert study.values("matrix/stag_hunt", "MAPPO", "final").tolist() == [17.5]


def test_without_evaluations_the_training_return_counts(tmp_path):
    # The evaluation before the first update is no result of training.
    write_run(tmp_path / "a", lambda seed, update: float(update), updates=20, every=10**6)
    study = read_study([str(tmp_path)])
    assert study.values("matrix/stag_hunt", "MAPPO", "final").tolist() == [18.5]
    assert not study.tracks.keys() - {("matrix/stag_hunt", "MAPPO", 0)}
