"""HPML on fields whose projection is known: dropped residuals vanish, treated ones keep the field's fixed points."""

import jax
import numpy as np
import pytest

import hpml
from hpml.dynamics.rules.extragradient import Extragradient
from hpml.dynamics.rules.hpml import HPML
from hpml.dynamics.rules.optimistic import Optimistic
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import run
from hpml.games.families.linear import QUARTER_TURN, Linear, swirl
from hpml.games.families.normal_form import bimatrix
from hpml.games.game import evaluate, exploitability

ETA = 0.1
START = np.array([[0.8, 0.0], [0.0, -0.6]])
GAME = swirl(2.0)
# Mean error along the trajectory that a projector may leave at 200 samples; the paper's graph keeps some rotation.
PROJECTORS = {
    "kernel": (hpml.KernelProjector(measure_points=1024), 0.01),
    "graph": (hpml.GraphProjector(), 0.12),
    "paper": (hpml.GraphProjector.paper(), 0.4),
}


def exact(points):
    return -points


def orbit(points):
    """The diameter of the box around the last tenth of a run, for each start."""
    tail = points[-len(points) // 10 :]
    return np.linalg.norm(tail.max(0) - tail.min(0), axis=-1)


def test_the_exact_projection_follows_its_closed_form():
    path = run(GAME, HPML(direction=exact, step=ETA), START, steps=50)
    t = np.arange(51)[:, None, None]
    np.testing.assert_allclose(path.points, (1 - ETA) ** t * START, atol=1e-14)
    assert path.evaluations[-1] == 0


@pytest.mark.parametrize("name", PROJECTORS)
def test_dropping_the_residual_follows_the_pull_alone(name):
    """-z + 2 J z is followed as -z, straight to the middle, within the projector's accuracy."""
    projector, error = PROJECTORS[name]
    path = run(GAME, HPML(projector, step=ETA, samples=200), START, steps=60)
    ideal = (1 - ETA) ** np.arange(61)[:, None, None] * START
    assert np.linalg.norm(path.points - ideal, axis=2).mean() < error
    assert path.evaluations[0] == path.evaluations[-1] == 200


@pytest.mark.parametrize("how", ["extragradient", "optimistic"])
def test_treated_residuals_follow_their_linear_map(how):
    """P = -1 and R = 2 J are known, so every step is too; look-ahead and memory are on R alone."""
    I, R = np.eye(2), 2.0 * QUARTER_TURN
    path = run(GAME, HPML(direction=exact, residual=how, step=ETA), START, steps=30).points
    expected = [START]
    for t in range(30):
        z, before = expected[-1], expected[max(t - 1, 0)]
        ahead = z + ETA * z @ (R - I).T if how == "extragradient" else 2 * z - before
        expected.append(z + ETA * (ahead @ R.T - z))
    np.testing.assert_allclose(path, expected, atol=1e-12)


@pytest.mark.parametrize(("how", "rule"), [("extragradient", Extragradient), ("optimistic", Optimistic)])
def test_without_a_potential_part_the_treatment_is_the_plain_method(how, rule):
    turn = Linear(QUARTER_TURN)
    ours = run(turn, HPML(direction=np.zeros_like, residual=how, step=ETA), START, steps=40).points
    np.testing.assert_allclose(ours, run(turn, rule(ETA), START, steps=40).points, atol=1e-13)


def test_without_a_residual_every_treatment_is_plain_ascent():
    hill = Linear(-np.diag([1.0, 0.3]))
    plain = run(hill, Simultaneous(ETA), START, steps=20).points
    for how in ("drop", "optimistic", "adjust"):
        ours = run(hill, HPML(direction=lambda x: x @ hill.matrix.T, residual=how, step=ETA), START, steps=20).points
        np.testing.assert_allclose(ours, plain, atol=1e-13)


def test_a_wrong_projection_is_harmless_where_the_residual_is_treated():
    """With P pulling to a wrong place, dropping ends there; what is treated still ends at the field's own rest."""

    def wrong(points):
        return np.array([0.5, 0.0]) - points

    ends = {
        how: run(GAME, HPML(direction=wrong, residual=how, step=ETA), START, steps=400).points[-1]
        for how in ("drop", "extragradient", "optimistic")
    }
    np.testing.assert_allclose(ends["drop"], [[0.5, 0.0]] * 2, atol=1e-12)
    np.testing.assert_allclose(ends["extragradient"], 0.0, atol=1e-9)
    np.testing.assert_allclose(ends["optimistic"], 0.0, atol=1e-9)


def test_a_given_projection_carries_its_cost():
    path = run(GAME, HPML(direction=exact, spent=30, residual="optimistic"), START, steps=5)
    np.testing.assert_array_equal(path.evaluations, 30 + np.arange(6))


def test_refreshing_samples_anew():
    rule = HPML(hpml.GraphProjector(), samples=40, refresh=4)
    path = run(GAME, rule, START, steps=9)
    np.testing.assert_array_equal(path.evaluations, [40] * 5 + [80] * 4 + [120])
    once = run(GAME, HPML(hpml.GraphProjector(), samples=40), START, steps=9)
    np.testing.assert_array_equal(path.points[:5], once.points[:5])
    assert not np.allclose(path.points[5], once.points[5])


def test_a_measure_that_trails_the_iterate_drops_nothing():
    """Around the iterate the projection is the field itself to first order: the run turns as the raw one does."""
    around = HPML(hpml.GraphProjector(), samples=60, reach=0.05, refresh=1)
    directions = run(GAME, around, START, steps=2).directions[0]
    F = START @ GAME.matrix.T
    cosine = (directions * F).sum(1) / np.linalg.norm(directions, axis=1) / np.linalg.norm(F, axis=1)
    assert (cosine > 0.98).all()


def test_a_metric_and_a_sampler_are_passed_on():
    metric, projector = hpml.Diagonal([4.0, 1.0]), hpml.GraphProjector()
    points = np.random.default_rng(0).normal(size=(60, 2)) * 0.4
    expected = hpml.project(points, evaluate(GAME, points), projector, metric).at(START)
    rule = HPML(projector, metric=metric, measure=lambda key, count: points[:count], samples=60)
    np.testing.assert_allclose(run(GAME, rule, START, steps=1).directions[0], expected, atol=1e-12)
    plain = HPML(projector, measure=lambda key, count: points[:count], samples=60)
    assert not np.allclose(run(GAME, plain, START, steps=1).directions[0], expected, atol=1e-3)


RPS = bimatrix([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


def test_rock_paper_scissors_under_the_uniform_measure():
    """Raw ascent keeps its orbit; dropping the residual rests, but not at equilibrium; treating it solves the game."""
    X = np.asarray(RPS.domain.sample(jax.random.key(5), 4), np.float64)
    points = np.asarray(RPS.domain.sample(jax.random.key(0), 200), np.float64)
    projection = hpml.project(
        points, evaluate(RPS, points), hpml.KernelProjector(measure_points=2048), measure=RPS.domain
    )
    raw = run(RPS, Simultaneous(ETA), X, steps=600).points
    dropped = run(RPS, HPML(direction=projection.at, spent=200, step=ETA), X, steps=600).points
    treated = run(RPS, HPML(direction=projection.at, spent=200, residual="extragradient", step=ETA), X, steps=600)
    assert orbit(raw).min() > 0.5
    assert (orbit(dropped) <= 0.05 * orbit(raw)).all()
    assert exploitability(RPS, treated.points[-1]).max() < 1e-3
    assert exploitability(RPS, dropped[-1]).min() > 0.1
