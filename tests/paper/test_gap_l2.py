"""`thm:gap_L2`: a random iterate's mean gap is bounded with the residual's energy at the iterates."""

import numpy as np
import pytest
from ascent import Ascent, ascend, random_quadratic, trace
from hypothesis import given
from hypothesis import strategies as st

from hpml.certificates.potential import Quadratic
from hpml.dynamics.run import run
from hpml.games.families.linear import Linear
from hpml.geometry.domain import Box


def both_sides(path, potential):
    """The mean gap of each start and the bound with the run's own constants; E_T is each start's own."""
    t = trace(path, potential)
    T, eta, D = len(t.moves), path.rule.step, path.game.domain.diameter
    G = np.linalg.norm(t.slopes, axis=-1).max()
    rate = np.sqrt(2 * (t.heights.max() - t.heights.min()) / (T * eta))
    return t.gap.mean(0), (D + eta * G) * rate + D * np.sqrt((t.residual**2).mean(0))


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["box", "ball", "simplices"]),
    share=st.sampled_from([1.0, 0.5, 0.01]),
)
def test_it_holds_with_the_runs_own_constants(seed, kind, share):
    rng = np.random.default_rng(seed)
    game, potential = random_quadratic(kind, rng)
    gap, bound = both_sides(ascend(game, potential, share / np.linalg.norm(potential.matrix, 2), rng), potential)
    assert (gap <= bound * (1 + 1e-12) + 1e-12).all()


def test_a_residual_that_the_run_does_not_visit_costs_nothing():
    """The uniform bound of `thm:gap` would pay D epsilon; here R vanishes along the run."""
    spiral = Linear(np.array([[-1.0, -3.0], [3.0, -1.0]]), Box([-1.0] * 2, [1.0] * 2))
    hill = Quadratic(-np.eye(2))
    gap, bound = both_sides(run(spiral, Ascent(hill, 1.0), np.array([[0.5, 0.5]]), 200), hill)
    D, epsilon = np.sqrt(8.0), 3 * np.sqrt(2.0)
    assert gap[0] <= bound[0] < 0.2 * D * epsilon


def test_descent_breaks_it():
    hill = Quadratic(-np.eye(2))
    path = run(
        Linear(-np.eye(2), Box([-1.0] * 2, [1.0] * 2)), Ascent(hill, 1.0, sign=-1.0), np.array([[0.3, 0.2]]), 400
    )
    gap, bound = both_sides(path, hill)
    assert gap[0] == pytest.approx(4.0, rel=0.02)
    assert gap[0] > 2 * bound[0]
