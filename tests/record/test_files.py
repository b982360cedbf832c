"""Every format gives the same samples, and every broken file one sentence."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from hpml.record.files import read_samples
from hpml.record.samples import make_samples

FORMATS = ["npz", "folder", "pair", "safetensors", "parquet", "columns"]


def write(folder, kind, X, F, labels, weights, blocks):
    path = folder / f"samples.{kind}"
    if kind == "npz":
        np.savez(path, points=X, field=F, labels=labels, weights=weights, blocks=blocks)
    elif kind == "folder":
        path.mkdir(exist_ok=True)
        for name, array in zip(
            ("points", "field", "labels", "weights", "blocks"), (X, F, labels, weights, blocks), strict=True
        ):
            np.save(path / f"{name}.npy", array)
    elif kind == "pair":
        path = folder / "points.npy"
        np.save(path, X)
        np.save(folder / "field.npy", F)
    elif kind == "safetensors":
        save_file(
            {"points": X, "field": F, "weights": weights, "blocks": np.asarray(blocks)},
            path,
            metadata={"labels": json.dumps(list(labels))},
        )
    else:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        columns = {"labels": list(labels), "weights": weights}
        if kind == "parquet":
            columns |= {"points": list(X), "field": list(F)}
        else:
            columns |= {f"points_{c}": X[:, c] for c in range(X.shape[1])}
            columns |= {f"field_{c}": F[:, c] for c in range(X.shape[1])}
        path = path.with_suffix(".parquet")
        table = pa.table(columns).replace_schema_metadata({"blocks": json.dumps([int(b) for b in blocks])})
        pq.write_table(table, path)
    return path


@pytest.mark.parametrize("kind", FORMATS)
@given(seed=st.integers(0, 1000), n=st.integers(2, 12), d=st.integers(2, 12))
def test_what_was_written_is_read(tmp_path_factory, kind, seed, n, d):
    rng = np.random.default_rng(seed)
    X, F, weights = rng.normal(size=(n, d)), rng.normal(size=(n, d)), rng.uniform(0.1, 1, n)
    labels = rng.choice(["rock", "paper"], n)
    path = write(tmp_path_factory.mktemp("f"), kind, X, F, labels, weights, [1, d - 1])
    read = read_samples(path)
    np.testing.assert_array_equal(read.points, X)
    np.testing.assert_array_equal(read.field, F)
    assert read.rows.tolist() == list(range(n))
    if kind != "pair":
        assert read.labels == tuple(labels)
        np.testing.assert_array_equal(read.weights, weights)
        assert read.blocks == {"agent 1": 1, "agent 2": d - 1}


def test_two_estimates_names_and_named_blocks(tmp_path):
    X, F = np.random.default_rng(0).normal(size=(5, 3)), np.ones((2, 5, 3))
    np.savez(tmp_path / "a.npz", points=X, field=F, names=["x", "y", "z"], blocks=[1, 2], block_names=["row", "column"])
    read = read_samples(tmp_path / "a.npz")
    assert read.field.shape == (2, 5, 3)
    assert read.names == ("x", "y", "z")
    assert read.blocks == {"row": 1, "column": 2}
    named = make_samples(X, F, blocks={"row": 1, "column": 2})
    assert named.names == ("row", "column x1", "column x2")
    np.save(tmp_path / "here.npy", X)
    np.save(tmp_path / "there.npy", F)
    assert read_samples(tmp_path / "here.npy", tmp_path / "there.npy").field.shape == (2, 5, 3)
    save_file({"points": X, "field": X, "labels": np.array([1, 0, 0, 1, 1])}, tmp_path / "b.safetensors")
    assert read_samples(tmp_path / "b.safetensors").labels == ("1", "0", "0", "1", "1")


def test_two_million_samples_are_thinned_uniformly_and_it_says_so(tmp_path):
    X = np.arange(2_000_000, dtype=np.float32)[:, None].repeat(2, 1)
    np.save(tmp_path / "points.npy", X)
    np.save(tmp_path / "field.npy", -X)
    read = read_samples(tmp_path)
    assert len(read.points) == 20_000
    assert read.given == 2_000_000
    assert "20,000 of 2,000,000 samples are used, chosen uniformly at random." in read.notes
    np.testing.assert_array_equal(read.points[:, 0], read.rows)
    np.testing.assert_array_equal(read.field, -read.points)
    assert read.points.mean() == pytest.approx(1e6, rel=0.02)


def test_a_broken_sample_among_many_is_found_though_it_is_not_used(tmp_path):
    X = np.ones((500, 2))
    X[321, 1] = np.inf
    np.savez(tmp_path / "a.npz", points=X, field=np.ones((500, 2)))
    with pytest.raises(ValueError, match=r"index \(321, 1\)"):
        read_samples(tmp_path / "a.npz", limit=5)


X, F = np.ones((4, 2)), np.ones((4, 2))
BROKEN = {
    "missing": ({"points": X}, "has no field; it has points"),
    "other names": ({"x": X, "f": F}, "has no points and no field; it has f, x"),
    "lengths": ({"points": X, "field": F[:3]}, r"points has shape \(4, 2\) and field \(3, 2\)"),
    "nan": ({"points": X, "field": np.where(np.arange(8).reshape(4, 2) == 5, np.nan, 1.0)}, r"index \(2, 1\)"),
    "one point": ({"points": X[:1], "field": F[:1]}, "one sample only"),
    "no points": ({"points": X[:0], "field": F[:0]}, "row for each sample"),
    "flat": ({"points": X[0], "field": F[0]}, "a row for each sample"),
    "three estimates": ({"points": X, "field": np.ones((3, 4, 2))}, "two independent estimates"),
    "text": ({"points": X.astype(str), "field": F}, "numbers"),
    "complex": ({"points": X + 1j, "field": F}, "real"),
    "labels": ({"points": X, "field": F, "labels": ["a"]}, "one entry for each of the 4"),
    "object labels": ({"points": X, "field": F, "labels": np.array(["a", None, 1, 2], object)}, "dtype str"),
    "weights": ({"points": X, "field": F, "weights": [1, -1, 1, 1]}, "negative"),
    "no weights": ({"points": X, "field": F, "weights": np.zeros(4)}, "at least two samples must count"),
    "blocks": ({"points": X, "field": F, "blocks": [1, 3]}, "which sum to 4"),
    "block names": ({"points": X, "field": F, "blocks": [1, 1], "block_names": ["a"]}, "each block one name"),
    "names": ({"points": X, "field": F, "names": ["a"]}, "name the 2 coordinates"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_contents_get_one_sentence(tmp_path, case):
    arrays, sentence = BROKEN[case]
    path = tmp_path / "bad.npz"
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=sentence) as error:
        read_samples(path)
    assert "bad.npz" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("suffix", ["npz", "npy", "safetensors", "parquet", "csv"])
def test_what_is_no_such_file_gets_one_sentence(tmp_path, suffix):
    path = tmp_path / f"points.{suffix}"
    with pytest.raises(ValueError, match="There is no file"):
        read_samples(path)
    for content in (b"", b"nothing of the kind", bytes(range(256)) * 10):
        path.write_bytes(content)
        (tmp_path / "field.npy").write_bytes(content)
        with pytest.raises(ValueError, match=r"could not be read|is no") as error:
            read_samples(path)
        assert "\n" not in str(error.value)


def test_an_empty_folder_half_a_pair_and_an_unfinished_recording(tmp_path):
    with pytest.raises(ValueError, match=r"without points.npy"):
        read_samples(tmp_path)
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(ValueError, match="half of a pair"):
        read_samples(tmp_path / "x.npy")
    with pytest.raises(ValueError, match="There is no file"):
        read_samples(tmp_path / "x.npy", tmp_path / "f.npy")
    import hpml

    hpml.Recorder(tmp_path / "run.safetensors").log([1.0], [0.0])
    with pytest.raises(ValueError, match="log at least two"):
        read_samples(tmp_path / "run.safetensors")
    with pytest.raises(ValueError, match="limit"):
        make_samples(X, F, limit=1)
