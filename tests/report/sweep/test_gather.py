"""What is read is what was written: once, at the steps asked for, and with what is torn set aside."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.sweep.folders import BATCH, columns_of, contents, write_part, write_run

from hpml.experiment.metrics import columns as as_columns
from hpml.experiment.metrics import read_metrics
from hpml.report.sweep.find import find_runs
from hpml.report.sweep.gather import BUCKETS, curves, evaluations, scores, speeds
from hpml.report.sweep.parquet import open_rows


def opened(folder):
    found = find_runs([str(folder)])
    return open_rows(found.runs, found.places)


def everything(rows, limit=None):
    ends = rows.extents["steps"] if limit is None else np.full(len(rows.extents["steps"]), float(limit))
    return {"run": rows.extents["run"], "seed": rows.extents["seed"], "limit": ends}


def test_a_final_return_is_the_mean_of_the_last_tenth(tmp_path):
    write_run(tmp_path / "run", lambda seed, update: 100.0 * seed + update, (0, 3), updates=40)
    rows = opened(tmp_path)
    found = scores(rows, everything(rows))
    # The last tenth of 40 updates begins after update 36.
    assert np.allclose(found["evaluated"], [np.mean([37, 38, 39, 40]), 300 + np.mean([37, 38, 39, 40])])
    assert np.allclose(found["collective"], 2 * found["evaluated"])
    assert np.allclose(found["residual_energy"], np.arange(1, 41).mean() / 10)
    assert np.allclose(found["switched"], 0.5)
    assert (found["evaluations"] == 4).all()


def test_up_to_fewer_steps_the_later_rows_have_no_part(tmp_path):
    write_run(tmp_path / "run", lambda seed, update: float(update), updates=40)
    rows = opened(tmp_path)
    found = scores(rows, everything(rows, 20 * BATCH))
    assert found["evaluated"][0] == np.mean([19, 20])
    assert found["residual_energy"][0] == pytest.approx(np.arange(1, 21).mean() / 10)


def test_where_the_last_tenth_has_no_evaluation_the_last_one_counts(tmp_path):
    write_run(tmp_path / "run", lambda seed, update: float(update), updates=40, every=16)
    rows = opened(tmp_path)
    found = scores(rows, everything(rows))
    assert found["evaluated"][0] == 32.0
    assert found["evaluations"][0] == 0


def test_means_are_those_of_the_metrics_themselves(tmp_path):
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((5, 301))
    folder = write_run(tmp_path / "run", lambda seed, update: noise[seed, update], (1, 2, 4), updates=300)
    table = as_columns(read_metrics(folder))
    rows = opened(tmp_path)
    found = scores(rows, everything(rows))
    for place, seed in enumerate((1, 2, 4)):
        late = (table["seed"] == seed) & (table["steps"] > 270 * BATCH)
        assert found["evaluated"][place] == pytest.approx(table["evaluation/return"][late].mean(), rel=1e-12)
    drawn = curves(rows, everything(rows))
    bucket = np.ceil(table["steps"] * BUCKETS / (300 * BATCH))
    for line in range(0, len(drawn["run"]), 37):
        some = (table["seed"] == drawn["seed"][line]) & (bucket == drawn["bucket"][line])
        assert drawn["evaluated"][line] == pytest.approx(table["evaluation/return"][some].mean(), rel=1e-12)
        assert drawn["steps"][line] == pytest.approx(table["steps"][some].mean())
    assert drawn["bucket"].max() == BUCKETS


def test_evaluations_keep_their_own_steps_and_values(tmp_path):
    write_run(tmp_path / "run", lambda seed, update: update**2.0, updates=60, every=7)
    rows = opened(tmp_path)
    found = evaluations(rows, everything(rows, 50 * BATCH))
    assert found["steps"].tolist() == [BATCH * update for update in range(0, 50, 7)]
    assert found["evaluated"].tolist() == [float(update**2) for update in range(0, 50, 7)]


def test_rows_written_twice_count_once(tmp_path):
    folder = write_run(tmp_path / "run", lambda seed, update: float(update), (0, 1), updates=20)
    plain = opened(tmp_path)
    before = scores(plain, everything(plain)), plain.extents
    write_part(folder, columns_of((0, 1), 15, lambda seed, update: float(update), first=3), name=15)
    twice = opened(tmp_path)
    after = scores(twice, everything(twice)), twice.extents
    for one, other in zip(before, after, strict=True):
        assert all(np.allclose(one[name], other[name], rtol=1e-12, equal_nan=True) for name in one)
    assert len(twice.notes) == 1
    assert "twice" in twice.notes[0]


def test_a_gap_is_named_and_nothing_is_called_twice(tmp_path):
    folder = write_run(tmp_path / "run", updates=20)
    write_part(folder, columns_of((0,), 30, lambda seed, update: 0.0, first=25))
    assert ["gap" in note for note in opened(tmp_path).notes] == [True]


@settings(max_examples=12, deadline=None)
@given(share=st.floats(0, 1), damage=st.sampled_from(["cut", "zeros", "nothing but the ends"]))
def test_a_torn_part_is_set_aside_and_the_rest_is_read(tmp_path_factory, share, damage):
    folder = tmp_path_factory.mktemp("torn")
    run = write_run(folder / "run", lambda seed, update: float(update), updates=20)
    part = sorted((run / "metrics").iterdir())[-1]
    whole = part.read_bytes()
    cut = int(share * (len(whole) - 1))
    if damage == "cut":
        part.write_bytes(whole[:cut])
    elif damage == "zeros":
        part.write_bytes(whole[:4] + bytes(len(whole) - 8) + whole[-4:])
    else:
        part.write_bytes(b"PAR1" + b"x" * cut + (4).to_bytes(4, "little") + b"PAR1")
    before = contents(folder)
    rows = opened(folder)
    assert rows.extents["steps"].tolist() == [10 * BATCH]
    assert [item.name for item in rows.aside] == [f"{folder}/run/metrics/{part.name}"]
    assert contents(folder) == before


def test_odd_names_other_columns_and_infinite_numbers(tmp_path):
    one = write_run(tmp_path / "it's [one] *", lambda seed, update: 1.0, updates=4)
    part = columns_of((0,), 6, lambda seed, update: 1.0, first=5)
    part["evaluation/return"][-1] = np.inf
    write_part(one, {name: part[name] for name in ("update", "steps", "seed", "evaluation/return")})
    two = write_run(tmp_path / "two", updates=4)
    write_part(two, {"something": np.arange(3.0), "update": np.arange(3)}, name=9)
    rows = opened(tmp_path)
    assert rows.extents["steps"].tolist() == [6 * BATCH, 4 * BATCH]
    assert scores(rows, everything(rows))["evaluated"].tolist() == [1.0, 0.0]


def test_times_are_those_of_one_seed(tmp_path):
    write_run(tmp_path / "run", seeds=(0, 1, 2), updates=30)
    found = speeds(opened(tmp_path))
    assert (found["collect"][0], found["learn"][0], found["updates"][0]) == (0.02, 0.02, 30)


def test_an_address_is_read_like_a_folder(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    folder = write_run(tmp_path / "run", lambda seed, update: float(update), updates=20)
    files = fsspec.filesystem("memory")
    files.put(str(folder), "/bucket/run", recursive=True)
    for address in ("memory://bucket", tmp_path.as_uri()):
        rows = opened(address)
        assert scores(rows, everything(rows))["evaluated"].tolist() == [19.5]
    files.rm("/bucket", recursive=True)
