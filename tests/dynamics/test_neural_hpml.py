"""Neural HPML: the buffer, and a network that learns the pull and not the rotation from off-path points."""

import numpy as np
import pytest

import hpml
from hpml.dynamics.oracle import Oracle
from hpml.dynamics.retraction import retraction
from hpml.dynamics.rules.neural_hpml import NeuralHPML
from hpml.dynamics.run import run
from hpml.games.families.linear import swirl

START = np.array([[0.8, 0.0], [0.0, -0.6]])
GAME = swirl(2.0)
NETWORK = hpml.NeuralProjector(schedule="online", width=8)


def directions(**options):
    """The first step's direction: towards the middle is -START, and the field turns by about 63 degrees from it."""
    return run(GAME, NeuralHPML(NETWORK, **options), START, steps=1).directions[0]


def test_off_path_points_tell_the_pull_from_the_rotation():
    g = directions(samples=200, warm=400)
    cosine = -(g * START).sum(1) / np.linalg.norm(g, axis=1) / np.linalg.norm(START, axis=1)
    assert (cosine > 0.9).all()


def test_iterates_alone_are_followed_as_they_turn():
    """The paper's buffer: what rises along the path explains all of it, so the run does not reach the middle."""
    path = run(GAME, NeuralHPML(NETWORK, samples=0, memory=64, step=0.1), START, steps=80)
    assert np.linalg.norm(path.points[-1], axis=1).min() > 0.3
    with_points = run(GAME, NeuralHPML(NETWORK, samples=200, step=0.1), START, steps=80)
    assert np.linalg.norm(with_points.points[-1], axis=1).max() < 0.25
    np.testing.assert_array_equal(path.evaluations, np.arange(81))
    np.testing.assert_array_equal(with_points.evaluations, 200 + np.arange(81))


def test_the_buffer_keeps_the_measure_and_the_newest_iterates():
    rule = NeuralHPML(NETWORK, samples=5, memory=3, batch=4, warm=0)
    oracle, move = Oracle(GAME), retraction(GAME.domain)
    state = rule.init(oracle, START)
    fixed, path = state.buffer.points[:, :5].copy(), [START]
    for _ in range(5):
        step = rule.update(oracle, move, path[-1], state)
        state = step.state
        path.append(np.asarray(step.points))
    rows = state.buffer.points
    np.testing.assert_array_equal(rows[:, :5], fixed)
    np.testing.assert_array_equal(rows[:, 5:].transpose(1, 0, 2), [path[3], path[4], path[2]])
    np.testing.assert_allclose(state.buffer.field, rows @ GAME.matrix.T, atol=1e-12)


def test_treated_residuals_keep_the_fixed_point():
    still = run(GAME, NeuralHPML(NETWORK, samples=50, warm=20, memory=0, residual="extragradient"), [[0.0, 0.0]], 5)
    np.testing.assert_allclose(still.points, 0.0, atol=1e-7)
    np.testing.assert_array_equal(np.diff(still.evaluations), 2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 0}, "batch"),
        ({"samples": 0, "memory": 0}, "empty"),
        ({"residual": "adjust"}, "needs no network"),
        ({"residual": "keep"}, "residual must be one of"),
    ],
)
def test_bad_settings_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        NeuralHPML(**options)
