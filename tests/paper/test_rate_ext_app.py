"""`rem:rate_ext_app`: under a PL potential the gap falls geometrically; without, perhaps no faster than `thm:gap`."""

import numpy as np
import pytest
from ascent import Ascent, trace

from hpml.certificates.potential import Given, Quadratic
from hpml.dynamics.run import run
from hpml.games.families.linear import Linear
from hpml.geometry.domain import Box


def gaps_of(potential, start, eta, steps, high=2.0):
    """The potential's gap after each step on [-high, high]^d; the game's own field plays no part."""
    d = len(start)
    game = Linear(np.zeros((d, d)), Box([-high] * d, [high] * d))
    return trace(run(game, Ascent(potential, eta), start[None], steps), potential)


def local_rate(values, at):
    """-d log(gap) / d log(t), between at / 2 and at."""
    return float(np.log(values[at // 2] / values[at]) / np.log(2.0))


def test_a_pl_potential_that_is_not_strongly_concave_falls_geometrically():
    """Phi = -|A x - b|^2 / 2 with a wide A is PL with mu the smallest nonzero curvature: the factor is 1 - eta mu."""
    A = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, -1.0]])
    H = -A.T @ A  # curvatures 3, 1 and 0
    potential = Quadratic(H, A.T @ np.array([0.3, -0.2]))
    t = gaps_of(potential, np.array([0.5, -0.8, 0.9]), 1 / 3, 80)
    gap = t.potential_gap[:, 0]
    np.testing.assert_allclose(gap[30:60] / gap[29:59], 1 - 1 / 3, rtol=1e-3)
    top = np.linalg.pinv(-H) @ potential.slope
    height = potential.value(top[None])[0]
    short = height - t.heights[:, 0]
    slopes = (t.slopes[:, 0] ** 2).sum(-1)
    assert (slopes[:40] >= 2 * 1.0 * short[:40] - 1e-12).all()  # the PL inequality itself, mu = 1


def test_without_pl_the_same_ascent_is_algebraic():
    """Phi = -x^4 / 4: x falls like t^-1/2 and the gap like t^-3/2, and no geometric rate fits."""
    quartic = Given(lambda x: -(x**4).sum(1) / 4, lambda x: -(x**3), 3.0)
    gap = gaps_of(quartic, np.array([1.0]), 0.3, 4000, high=1.0).potential_gap[:, 0]
    assert local_rate(gap, 4000 - 1) == pytest.approx(1.5, abs=0.05)
    factors = gap[1:] / gap[:-1]
    assert factors[-1] > 0.999
    assert (np.diff(factors) > 0).all()


def test_over_all_smooth_potentials_the_rate_of_the_theorem_is_attained():
    """A ramp of height 1 that takes T steps to climb: its smallest step is (T eta)^-1/2, and the bound says 2^1/2 times
    that. With PL in the place of this family the exponent 1/2 would not show."""
    eta, shortest = 0.5, {}
    for T in (50, 200, 800):
        slope = 1 / np.sqrt(T * eta)
        ramp = Quadratic(np.zeros((1, 1)), [slope])
        game = Linear(np.zeros((1, 1)), Box([0.0], [slope * eta * T]))
        t = trace(run(game, Ascent(ramp, eta), np.zeros((1, 1)), T), ramp)
        shortest[T] = t.mapping.min()
        assert t.heights[-1, 0] - t.heights[0, 0] == pytest.approx(1.0)
        bound = np.sqrt(2 / (T * eta))
        assert bound / np.sqrt(2) * (1 - 1e-9) <= shortest[T] <= bound
    assert shortest[50] / shortest[200] == pytest.approx(2.0)
    assert shortest[200] / shortest[800] == pytest.approx(2.0)
