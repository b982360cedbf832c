"""`thm:lyapunov` and the sum of steps below it: exact projected ascent with eta <= 1/L climbs, and so cannot cycle."""

import numpy as np
import pytest
from ascent import Ascent, ascend, random_quadratic, trace
from hypothesis import given
from hypothesis import strategies as st

from hpml.certificates.potential import Quadratic
from hpml.dynamics.run import run
from hpml.games.families.linear import Linear
from hpml.geometry.domain import Box

INTERVAL = Linear([[-1.0]], Box([-1.0], [1.0]))
HILL = Quadratic([[-1.0]])  # L = 1


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["box", "ball", "simplices"]),
    share=st.sampled_from([1.0, 0.7, 0.1]),
)
def test_every_step_climbs_and_the_steps_sum_up_to_the_height(seed, kind, share):
    rng = np.random.default_rng(seed)
    game, potential = random_quadratic(kind, rng)
    L = np.linalg.norm(potential.matrix, 2)
    eta = share / L
    t = trace(ascend(game, potential, eta, rng), potential)
    rise, square = np.diff(t.heights, axis=0), (t.moves**2).sum(-1)
    rounding = 1e-13 * (1 + np.abs(t.heights).max() + np.abs(t.slopes).max())
    assert (rise >= (1 / eta - L / 2) * square - rounding).all()
    assert (rise >= square / (2 * eta) - rounding).all()
    assert (np.sum(t.mapping**2, 0) <= 2 / eta * (t.heights[-1] - t.heights[0]) + 80 * rounding / eta).all()


def test_the_first_inequality_is_attained():
    """Phi = -x^2 / 2 with eta = 1 steps onto the optimum: the rise is x^2 / 2, and so is the bound."""
    t = trace(run(INTERVAL, Ascent(HILL, 1.0), np.array([[0.8]]), 2), HILL)
    assert t.heights[1, 0] - t.heights[0, 0] == pytest.approx((1 - 0.5) * t.moves[0, 0, 0] ** 2)


def test_at_twice_the_limit_a_cycle_lasts_and_above_it_the_potential_falls():
    cycle = trace(run(INTERVAL, Ascent(HILL, 2.0), np.array([[0.8]]), 100), HILL)
    np.testing.assert_allclose(np.abs(cycle.moves), 1.6)
    assert np.sum(cycle.mapping**2) > 2 / 2.0 * 0.5  # the sum of steps has no bound
    fall = trace(run(INTERVAL, Ascent(HILL, 2.5), np.array([[0.4]]), 1), HILL)
    assert fall.heights[1, 0] < fall.heights[0, 0]


def test_the_mapping_is_zero_just_at_stationary_points():
    """On [-1, 1] with Phi = x^2 / 2 these are -1, 0 and 1."""
    valley = Quadratic([[1.0]])
    path = run(Linear([[1.0]], Box([-1.0], [1.0])), Ascent(valley, 0.5), np.array([[-1.0], [0.0], [1.0], [0.3]]), 1)
    t = trace(path, valley)
    np.testing.assert_allclose(t.mapping[0, :3], 0.0)
    np.testing.assert_allclose(t.potential_gap[0, :3], 0.0)
    assert t.mapping[0, 3] > 0.1
