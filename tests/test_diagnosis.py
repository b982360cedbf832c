"""A diagnosis says what is true of fields whose answer is known, and says so when the samples cannot tell."""

import sys
from dataclasses import replace

import numpy as np
import pytest

import hpml
from hpml.diagnosis import diagnose
from hpml.diagnosis.words import advise, headline, limits_of

GRAPH = hpml.GraphProjector()
RPS = np.array([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]])
ACTIONS = ["rock", "paper", "scissors"]


def disc(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * np.sqrt(rng.random((n, 1)))


@pytest.fixture(scope="module")
def swirl():
    """-z + J z on the disc: half of the energy circulates. Two noisy estimates, two agents."""
    X = disc()
    F = -X + X @ [[0.0, 1], [-1, 0]]
    noise = 0.2 * np.random.default_rng(1).normal(size=(2, *X.shape))
    return X, F, diagnose(X, F + noise, blocks={"row": 1, "column": 1}, names=["p", "q"])


def test_the_share_of_a_known_field_lies_in_the_interval(swirl):
    _, F, found = swirl
    share = found.nonpotentiality
    assert share.low <= 0.5 <= share.high
    assert share.estimate == pytest.approx(0.5, abs=0.05)
    assert found.headline.startswith(f"{100 * share.estimate:.0f} % of the field's energy circulates (95 % interval ")
    noise = 2 * 0.2**2 / 2
    assert found.energy.noise == pytest.approx(noise, rel=0.2)
    total = found.energy.potential + found.energy.circulation + found.energy.noise
    observed = (F**2).sum(1).mean() + noise
    assert total == pytest.approx(observed, rel=0.1)
    assert found.energy.circulation / (total - found.energy.noise) == pytest.approx(share.estimate)


def test_samples_close_together_give_no_all_clear():
    """Far from the centre a small disc sees an almost constant field, which is a gradient; what changes, turns."""
    X = 3.0 + 0.05 * disc()
    found = diagnose(X, X @ [[0.0, 1], [-1, 0]])
    assert found.nonpotentiality.high < 0.05
    assert "close together" in found.headline
    assert any("Probe farther out" in sentence for sentence in found.advice)
    assert not any("Nothing to do" in sentence for sentence in found.advice)


def test_a_zero_field_is_no_verdict():
    assert "zero at every sample" in diagnose(disc(), np.zeros((200, 2))).headline


def test_the_residual_is_where_it_is(swirl):
    X, _, found = swirl
    R = X @ [[0.0, 1], [-1, 0]]
    # Larger outside: the share grows with the squared radius.
    assert np.corrcoef(found.residual_share, (X**2).sum(1))[0, 1] > 0.6
    assert sum(block.residual for block in found.blocks) == pytest.approx(1.0)
    assert sum(block.field for block in found.blocks) == pytest.approx(1.0)
    assert [block.name for block in found.blocks] == ["row", "column"]
    assert found.blocks[0].nonpotentiality == pytest.approx(0.5, abs=0.1)
    assert {c.name for c in found.coordinates} == {"p", "q"}
    np.testing.assert_array_equal(found.plane.points, X)
    np.testing.assert_allclose(found.plane.direction + found.plane.residual, found.plane.field, atol=1e-12)
    assert np.linalg.norm(found.plane.direction + X) / np.linalg.norm(X) < 0.15
    assert np.linalg.norm(found.plane.residual - R) / np.linalg.norm(R) < 0.4
    assert found.plane.names == ("p", "q")


def test_loops_and_planes_turn_with_the_field(swirl):
    _, _, found = swirl
    assert found.loops[0].certain
    centres = found.graph.centres[list(found.loops[0].nodes)]
    x, y = centres.T
    area = 0.5 * (x * np.roll(y, -1) - np.roll(x, -1) * y).sum()
    assert area > 0  # F adds (-y, x), which turns counterclockwise
    assert sum(loop.share for loop in found.loops) <= 1 + 1e-9
    assert found.disc.shares[0] == pytest.approx(1.0)
    assert found.disc_points.shape == (200, 1, 2)
    assert any("regions" in sentence for sentence in found.limits)
    assert any("adjust" in sentence for sentence in found.advice)
    assert not any("two independent estimates" in sentence for sentence in found.advice)


def test_labels_name_the_loop():
    X = np.random.default_rng(0).dirichlet(np.ones(3), size=300)
    F = X @ RPS.T
    labels = np.array(ACTIONS)[X.argmax(1)]
    order = np.argsort(labels == "rock")[::-1]  # rock comes first
    found = diagnose(X[order], F[order], labels=labels[order], projector=GRAPH)
    assert found.conventions.origin == "labels"
    assert found.loops[0].names[0] == "rock"
    assert found.loops[0].names.index("scissors") - found.loops[0].names.index("paper") == 1
    assert found.labels[0] == "rock"


def test_a_gradient_has_nothing_to_treat_and_no_loops():
    X = np.random.default_rng(0).normal(size=(200, 2))
    found = diagnose(X, -X + np.sin(X))
    assert found.nonpotentiality.high < 0.01
    assert found.loops == ()
    assert found.headline == "Less than 1 % of the field's energy circulates: it climbs one potential."
    assert found.advice[0].startswith("Nothing to do")


def test_a_path_says_nothing_and_the_diagnosis_says_that():
    t = np.linspace(0, 1, 200)[:, None]
    X = np.hstack([np.cos(t), np.sin(t), t])
    found = diagnose(X, np.hstack([-X[:, 1:2], X[:, :1], 0 * t]), projector=GRAPH)
    assert found.nonpotentiality.warning
    assert found.headline == "These samples cannot show whether the field circulates."
    assert "hpml.probe" in found.advice[0]
    assert len(found.advice) == 1


def test_few_samples_in_many_dimensions_do_not_settle_it():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3000))
    found = diagnose(X, -X + np.roll(X, 1, 1), blocks=[1000, 2000])
    assert found.headline.startswith("The samples are too few to settle")
    assert found.nonpotentiality.warning == found.headline
    assert "path-plane" in found.advice[0]
    assert found.plane.points.shape == (40, 2)
    assert found.conventions.names[0] == "A"
    assert found.dimension == 3000
    assert found.spread_dimension < 41


def test_probes_of_the_plane_settle_what_a_ball_cannot():
    d = 300
    x = np.zeros(d)
    x[0] = 1.0

    def field(x):
        return -0.1 * x + np.concatenate([-x[1:2], x[:1], 0 * x[2:]])

    points, values = hpml.probe(field, x, count=60, radius=0.5, directions="path-plane")
    found = diagnose(points, values, projector=GRAPH)
    assert found.spread_dimension < 2.01
    assert not found.nonpotentiality.warning
    assert found.nonpotentiality.low > 0.05  # about a ninth: around (1, 0) most of the rotation is one constant


def test_a_file_and_its_arrays_have_one_diagnosis(tmp_path):
    X = disc(80)
    F = X @ [[0.0, 1], [-1, 0]]
    path = tmp_path / "run.safetensors"
    with hpml.Recorder(path, dtype="float64", blocks={"row": 1, "column": 1}) as recorder:
        recorder.add(X, F)
    read, plain = diagnose(path, projector=GRAPH), diagnose(X, F, projector=GRAPH)
    assert read.source == str(path)
    assert [block.name for block in read.blocks] == ["row", "column"]
    assert read.nonpotentiality.estimate == plain.nonpotentiality.estimate
    relabelled = diagnose(path, projector=GRAPH, labels=[str(i % 3) for i in range(80)])
    assert relabelled.conventions.names == ("0", "1", "2")


def test_many_samples_are_fitted_in_part_and_tested_on_the_rest(monkeypatch):
    monkeypatch.setattr("hpml.diagnosis.split.FOLDED", 200)
    monkeypatch.setattr("hpml.diagnosis.split.FITTED", 400)
    monkeypatch.setattr("hpml.diagnosis.split.TESTED", 300)
    monkeypatch.setattr(sys.modules["hpml.diagnosis.diagnose"], "TESTED", 300)
    X = disc(1000)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, 1000)
    weights[:100] = 0.0
    found = diagnose(X, -X + X @ [[0.0, 1], [-1, 0]], weights=weights)
    assert found.count == 500
    assert found.rows.min() >= 100
    assert found.notes == (
        "Of 900 samples 500 are enough, chosen at random.",
        "The potential is fitted to 200 samples and tested on the 300 others.",
    )
    assert found.nonpotentiality.estimate == pytest.approx(0.5, abs=0.04)
    np.testing.assert_array_equal(found.plane.points, X[found.rows])


def test_words_follow_the_numbers(swirl):
    _, _, found = swirl
    share = found.nonpotentiality
    unsure = replace(found, nonpotentiality=replace(share, low=0.0, high=0.4))
    assert "not settled" in advise(unsure, True)[0]
    assert any("wide" in sentence for sentence in advise(unsure, True))
    assert any("second" in sentence for sentence in advise(found, False))
    assert any("one estimate" in sentence for sentence in limits_of(found, False))
    assert not any("one estimate" in sentence for sentence in limits_of(found, True))
    inside = replace(found, loops=())
    assert any("inside the conventions" in sentence for sentence in limits_of(inside, True))
    assert "more than 99 %" in headline(replace(found, nonpotentiality=replace(share, estimate=0.999, high=1.0)))


def test_bad_input_is_said(tmp_path):
    with pytest.raises(ValueError, match="field is missing"):
        diagnose(np.ones((4, 2)))
    with pytest.raises(ValueError, match="There is no file"):
        diagnose(tmp_path / "none.npz")
    with pytest.raises(ValueError, match="one sample only"):
        diagnose(np.ones((1, 2)), np.ones((1, 2)))
    with pytest.raises(ValueError, match="equal"):
        diagnose(np.ones((5, 2)), np.ones((5, 2)))
    with pytest.raises(ValueError, match="not finite"):
        diagnose(np.full((5, 2), np.nan), np.ones((5, 2)))


@pytest.mark.parametrize(("n", "d"), [(2, 1), (3, 2), (4, 1), (5, 7)])
def test_tiny_inputs_are_diagnosed_too(n, d):
    rng = np.random.default_rng(0)
    found = diagnose(rng.normal(size=(n, d)), rng.normal(size=(n, d)), projector=GRAPH)
    assert found.count == n
    assert 0 <= found.nonpotentiality.estimate <= 1
    assert found.limits
    assert np.isfinite(found.plane.points).all()
