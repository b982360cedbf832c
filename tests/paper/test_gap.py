"""`thm:gap`: the best iterate's gap falls like T^-1/2 down to what the residual adds."""

import numpy as np
import pytest
from ascent import Affine, Ascent, ascend, random_quadratic, trace
from hypothesis import given
from hypothesis import strategies as st

from hpml.certificates.potential import Quadratic
from hpml.dynamics.run import run
from hpml.games.families.linear import Linear
from hpml.geometry.domain import Box


def both_sides(path, potential):
    """The gap of each start's best iterate, and the bound with the constants that the proof needs, the run's own."""
    t = trace(path, potential)
    T, eta, D = len(t.moves), path.rule.step, path.game.domain.diameter
    G = np.linalg.norm(t.slopes, axis=-1).max()
    height = t.heights.max() - t.heights.min()
    best = np.argmin(t.mapping, axis=0)
    gap = t.gap[best, np.arange(len(best))]
    return gap, (D + eta * G) * np.sqrt(2 * height / (T * eta)) + D * t.residual.max()


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


def test_descent_breaks_it():
    """Downhill the run rests in a corner, where steps are short and the gap is as large as can be."""
    hill = Quadratic(-np.eye(2))
    path = run(
        Linear(-np.eye(2), Box([-1.0] * 2, [1.0] * 2)), Ascent(hill, 1.0, sign=-1.0), np.array([[0.3, 0.2]]), 400
    )
    gap, bound = both_sides(path, hill)
    assert gap[0] == pytest.approx(4.0)
    assert gap[0] > 2 * bound


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.5])
def test_what_the_residual_adds_is_really_there(rho):
    """With a residual the projected run's gap does not vanish: away from the origin the rotation stays in the field."""
    push, turn = np.array([1.0, 0.0]), rho * np.array([[0.0, -1.0], [1.0, 0.0]])
    potential = Quadratic(-np.eye(2), push)
    game = Affine(Linear(turn - np.eye(2), Box([-2.0] * 2, [2.0] * 2)), push)
    gap, bound = both_sides(run(game, Ascent(potential, 1.0), np.array([[-1.0, 1.0]]), 50), potential)
    assert gap[0] == pytest.approx(rho * 2.0, abs=1e-9)  # at (1, 0) the field is (0, rho) and the top is 2 away
    assert gap[0] <= bound
