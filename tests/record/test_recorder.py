"""A recorder keeps what was logged, within its bounds, whatever happens to its process."""

import shutil
import signal
import subprocess
import sys
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from hpml import Recorder
from hpml.record.files import read_samples
from hpml.record.sketch import make_sketch


@given(st.integers(2, 12), st.integers(2, 30), st.integers(1, 5), st.booleans(), st.sampled_from([1, -1]))
def test_what_was_logged_is_read(tmp_path_factory, capacity, steps, d, second, sign):
    path = tmp_path_factory.mktemp("r") / "run.safetensors"
    rng = np.random.default_rng(steps)
    X, F = rng.normal(size=(steps, d)), rng.normal(size=(2, steps, d))
    with Recorder(path, capacity=capacity, dtype="float64", sign=sign) as recorder:
        for t in range(steps):
            recorder.log(X[t], F[0, t], F[1, t] if second else None, label=f"step {t}", weight=1.0 + t)
    read = read_samples(path)
    kept = np.arange(max(0, steps - capacity), steps)
    np.testing.assert_array_equal(read.points, X[kept])
    np.testing.assert_array_equal(read.field, sign * (F if second else F[0])[..., kept, :])
    np.testing.assert_allclose(read.weights, 1.0 + kept)
    assert read.labels == tuple(f"step {t}" for t in kept)
    assert path.stat().st_size < 1024 + capacity * (24 * d + 100)


def test_trees_of_any_arrays_become_one_vector_with_agents(tmp_path):
    params = {"row": [np.ones((2, 2), np.float32), jnp.arange(3)], "column": jnp.full(2, 5.0, jnp.bfloat16)}
    with Recorder(tmp_path / "run.safetensors") as recorder:
        recorder.log(params, params)
        recorder.log(params, params)
    read = read_samples(tmp_path / "run.safetensors")
    assert read.blocks == {"column": 2, "row": 7}
    np.testing.assert_array_equal(read.points[0], [5, 5, 1, 1, 1, 1, 0, 1, 2])


def test_torch_parameters_are_taken_as_they_are(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    model(torch.ones(2)).sum().backward()
    with Recorder(tmp_path / "run.safetensors", sign=-1) as recorder:
        recorder.log(model, [p.grad for p in model.parameters()])
        recorder.log(model.parameters(), (p.grad for p in model.parameters()))
        recorder.log([p.bfloat16() for p in model.parameters()], [p.grad for p in model.parameters()])
    read = read_samples(tmp_path / "run.safetensors")
    np.testing.assert_allclose(read.points[0], [*model.weight.detach().numpy()[0], *model.bias.detach().numpy()])
    np.testing.assert_allclose(read.field, -np.ones((3, 3)))


KILLED = """
import os, signal, sys, numpy as np
from hpml.record import recorder as module

def half(leaves, out):
    whole(leaves, out)
    if leaves[0][0] == -70:
        out[len(out) // 2 :] = 0
        os.kill(os.getpid(), signal.SIGKILL)

whole, module.write_flat = module.write_flat, half
recorder = module.Recorder(sys.argv[1], capacity=50)
for step in range(1, 100):
    recorder.log(np.full(20_000, step), np.full(20_000, -step))
"""


def test_a_process_killed_in_the_middle_of_a_row_leaves_all_others(tmp_path):
    path = tmp_path / "run.safetensors"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    read = read_samples(path)
    np.testing.assert_array_equal(read.points, np.arange(21.0, 70.0)[:, None].repeat(20_000, 1))
    np.testing.assert_array_equal(read.field, -read.points)
    with Recorder(path, capacity=50) as recorder:  # the next run goes on in the same file
        recorder.log(np.zeros(20_000), np.zeros(20_000))
    assert recorder.count == 70
    assert read_samples(path).points[:, 0].tolist() == [*range(21, 70), 0]


def test_a_row_that_is_being_written_is_left_out(tmp_path):
    path = tmp_path / "run.safetensors"
    recorder = Recorder(path, capacity=4)
    for t in range(4):
        recorder.log(np.full(3, t), np.zeros(3))
    recorder._ring.stamps[1] = 0  # what the file holds between the first and the last step of writing a row
    recorder._ring.points[1] = [9.0, 1.0, 1.0]
    assert read_samples(path).points[:, 0].tolist() == [0, 2, 3]  # also while the recorder is open


def test_any_reader_of_safetensors_reads_the_file(tmp_path):
    with Recorder(tmp_path / "run.safetensors", capacity=3) as recorder:
        recorder.log(np.ones(2), np.zeros(2))
    tensors = load_file(tmp_path / "run.safetensors")
    assert tensors["stamps"].tolist() == [1, 0, 0]
    assert tensors["points"][0].tolist() == [1, 1]


def test_a_reservoir_is_uniform_over_time_and_thinned_ages_grow(tmp_path):
    kept = {}
    for keep in ("reservoir", "thinned"):
        steps = []
        for seed in range(8):
            path = tmp_path / f"{keep}{seed}.safetensors"
            recorder = Recorder(path, capacity=25, keep=keep, seed=seed)
            for t in range(400):
                recorder.log([float(t)], [0.0])
            steps.append(read_samples(path).points[:, 0])
        kept[keep] = np.concatenate(steps)
    assert len(kept["reservoir"]) == 200
    assert kept["reservoir"].mean() == pytest.approx(199.5, abs=3 * 115 / np.sqrt(200))
    ages = 400 - kept["thinned"][:25][::-1]
    assert ages[0] == 1
    assert ages[-1] == 400
    assert np.log(ages).std() > 1.2  # spread over the scales, where the last 25 have 0.8 and even steps 0.9


def test_every_other_call_costs_nothing_and_is_not_looked_at(tmp_path):
    recorder = Recorder(tmp_path / "run.safetensors", every=3)
    for t in range(7):
        recorder.log([float(t)] if t % 3 == 0 else "not an array", [0.0])
    assert recorder.count == 3


def test_samples_that_are_not_finite_are_left_out_with_one_warning(tmp_path):
    recorder = Recorder(tmp_path / "run.safetensors")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for value in (1.0, np.nan, np.inf, 1e30, 2.0):
            recorder.log([value], [0.0])
    assert [str(warning.message) for warning in caught] == [
        "A sample that is not finite was left out of the recording."
    ]
    assert recorder.skipped == 2
    assert read_samples(tmp_path / "run.safetensors").points[:, 0].tolist() == pytest.approx([1, 1e30, 2])


FILL_A_DISK = """
import shutil, sys, warnings
import numpy as np
from hpml import Recorder
from hpml.record.files import read_samples

path, keep, elsewhere = sys.argv[1] + "/run.safetensors", *sys.argv[2:]
with warnings.catch_warnings(record=True) as caught, Recorder(path, keep=keep) as recorder:
    warnings.simplefilter("always")
    for t in range(2000):
        recorder.log(np.full(200, float(t)), np.ones(200))
assert recorder.count == 2000 and recorder.skipped > 0
(only,) = (str(warning.message) for warning in caught)
assert only.startswith("The disk is full"), only
kept = read_samples(shutil.copy(path, elsewhere)).points  # memory makes room for holes that are read
assert len(kept) > 50 and (kept == kept[:, :1]).all() and len(set(kept[:, 0])) == len(kept)
assert keep != "recent" or max(kept[:, 0]) >= 1024  # a row that has room is written anew
"""


@pytest.mark.parametrize("keep", ["recent", "reservoir", "thinned"])
def test_a_full_disk_leaves_samples_out_and_ends_nothing(keep, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = [
        "unshare",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o size=300k none "$0" && "$@"',
        disk,
    ]
    if not shutil.which("unshare") or subprocess.run([*mounted, "true"]).returncode:
        pytest.skip("a small disk cannot be mounted here")
    fill = [sys.executable, "-c", FILL_A_DISK, disk, keep, tmp_path]
    done = subprocess.run([*mounted, *fill], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_place_where_no_recording_can_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"run\.safetensors cannot be made .*: choose another place"):
        Recorder(tmp_path / "file" / "run.safetensors").log([1.0], [0.0])


@pytest.mark.parametrize("wrong", [{"every": 0}, {"sign": 2}, {"dtype": "int8"}, {"keep": "all"}, {"capacity": 1}])
def test_each_wrong_setting_is_named(wrong, tmp_path):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Recorder(tmp_path / "run.safetensors", **wrong)


@given(st.integers(0, 100), st.integers(20, 60))
def test_a_sketch_keeps_inner_products_on_average_and_small_blocks_exactly(seed, size):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(2, 300))
    products = []
    for trial in range(200):
        sketch = make_sketch([5, 295], size, seed=trial)
        assert sketch.blocks == (5, size - 5)
        u, v = sketch(x), sketch(y)
        np.testing.assert_array_equal(u[:5], x[:5])
        products.append(u @ v)
    spread = np.linalg.norm(x) * np.linalg.norm(y) * np.sqrt(2 / (size - 5))
    assert np.std(products) < spread
    assert np.mean(products) == pytest.approx(x @ y, abs=4 * spread / np.sqrt(200))


def test_a_sketched_recording_keeps_agents_and_says_what_is_lost(tmp_path):
    path = tmp_path / "run.safetensors"
    params = {"a": np.arange(1000.0), "b": np.ones(4)}
    with Recorder(path, sketch=64) as recorder:
        for _ in range(3):
            recorder.log(params, params)
    read = read_samples(path)
    assert read.points.shape == (3, 64)
    assert read.blocks == {"a": 60, "b": 4}
    np.testing.assert_array_equal(read.points[0, 60:], 1.0)
    assert "random sketch of 1,004 numbers in 64" in read.notes[0]


def test_probes_are_added_in_ascent_sign(tmp_path):
    recorder = Recorder(tmp_path / "run.safetensors", sign=-1, every=5)
    recorder.log([0.0, 0.0], [1.0, 1.0])
    recorder.add(np.ones((3, 2)), np.full((3, 2), 7.0), labels=["a", "b", "c"])
    read = read_samples(tmp_path / "run.safetensors")
    assert read.field[:, 0].tolist() == [-1, 7, 7, 7]
    assert read.labels == ("unlabelled", "a", "b", "c")


def test_mistakes_are_said_at_once(tmp_path):
    path = tmp_path / "run.safetensors"
    for options, sentence in [
        ({"capacity": 1}, "at least 2"),
        ({"keep": "all"}, "recent"),
        ({"sign": 2}, "sign"),
        ({"sketch": 0}, "sketch"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            Recorder(path, **options)
    with pytest.raises(ValueError, match="folder"):
        Recorder(tmp_path)
    with pytest.raises(ValueError, match=r"blocks sum to 3, but the parameters have 2"):
        Recorder(path, blocks=[1, 2]).log([1.0, 2.0], [0.0, 0.0])
    with pytest.raises(ValueError, match="sketch=4096"):
        Recorder(path, capacity=1 << 20).log(np.zeros(10_000), np.zeros(10_000))
    with pytest.raises(ValueError, match="empty"):
        Recorder(path).log([], [])
    recorder = Recorder(path)
    recorder.log([1.0, 2.0], [0.0, 0.0])
    with pytest.raises(ValueError, match="zeros where a gradient is missing"):
        recorder.log([1.0, 2.0], [0.0, None])
    with pytest.raises(ValueError, match="second estimate"):
        recorder.log([1.0, 2.0], [0.0, 0.0], [0.0, 0.0])
    with pytest.raises(ValueError, match="another recorder"):
        Recorder(path).log([1.0, 2.0], [0.0, 0.0])
    recorder.close()
    with pytest.raises(ValueError, match="overwrite=True"):
        Recorder(path, capacity=5).log([1.0, 2.0], [0.0, 0.0])
    Recorder(path, capacity=5, overwrite=True).log([1.0, 2.0], [0.0, 0.0])
    (tmp_path / "other.safetensors").write_bytes(b"something else, and long enough to be read as a header")
    with pytest.raises(ValueError, match="not a recording"):
        Recorder(tmp_path / "other.safetensors").log([1.0], [0.0])
    with pytest.raises(ValueError, match=r"name it run\.safetensors"):
        Recorder(tmp_path / "run.npz")


def test_a_recording_goes_on_with_a_word_and_never_with_the_other_sign(tmp_path):
    path = tmp_path / "run.safetensors"
    with Recorder(path, sign=-1) as recorder:
        recorder.log([1.0, 2.0], [0.5, 0.0])
    with pytest.warns(RuntimeWarning, match="goes on"), Recorder(path, sign=-1) as recorder:
        recorder.log([2.0, 2.0], [0.0, 0.5])
    assert len(read_samples(path).points) == 2
    with pytest.raises(ValueError, match="overwrite=True"):
        Recorder(path, sign=1).log([1.0, 2.0], [0.5, 0.0])
