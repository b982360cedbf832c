"""`thm:inexact`: directions with errors up to delta; the constants 4 and 4, and the floor that delta leaves."""

import numpy as np
import pytest
from ascent import Ascent, ascend, random_quadratic, trace
from hypothesis import given
from hypothesis import strategies as st

from hpml.certificates.potential import Quadratic
from hpml.dynamics.rule import Rule, Step
from hpml.dynamics.run import run
from hpml.games.families.linear import Linear
from hpml.geometry.domain import Box

BOX = Box([-1.0] * 2, [1.0] * 2)
HILL = Quadratic(-np.eye(2))


class Biased(Rule):
    """Exact ascent with the same error in every direction."""

    step: float
    error: np.ndarray

    def update(self, oracle, move, points, state):
        g = HILL.gradient(points) + self.error
        return Step(move(points, self.step * g), g)


def both_sides(path, potential):
    """The best iterate's gap, and the bound with the run's own constants and errors."""
    t = trace(path, potential)
    T, eta, D = len(t.moves), path.rule.step, path.game.domain.diameter
    G = np.linalg.norm(t.slopes, axis=-1).max()
    delta = np.linalg.norm(path.directions - t.slopes, axis=-1).max()
    height = t.heights.max() - t.heights.min()
    best = np.argmin(t.mapping, axis=0)
    gap = t.gap[best, np.arange(len(best))]
    stationarity = np.sqrt(4 * height / (T * eta) + 4 * delta**2)
    return gap, (D + eta * (G + delta)) * stationarity + D * (t.residual.max() + delta)


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["box", "ball", "simplices"]),
    share=st.sampled_from([1.0, 0.3]),
    error=st.sampled_from([1e-3, 0.1, 1.0, 30.0]),
)
def test_it_holds_and_every_step_loses_at_most_what_the_error_takes(seed, kind, share, error):
    rng = np.random.default_rng(seed)
    game, potential = random_quadratic(kind, rng)
    eta = share / np.linalg.norm(potential.matrix, 2)
    path = ascend(game, potential, eta, rng, error=error)
    gap, bound = both_sides(path, potential)
    assert (gap <= bound * (1 + 1e-12)).all()
    t = trace(path, potential)
    rise, square = np.diff(t.heights, axis=0), (t.moves**2).sum(-1)
    rounding = 1e-13 * (1 + np.abs(t.heights).max() + np.abs(t.slopes).max() + error)
    assert (rise >= square / (4 * eta) - eta * error**2 - rounding).all()  # lem:inexact_lyap_step


def test_one_step_loses_nearly_all_that_the_lemma_allows():
    """From the top of Phi = -x^2 / 2 with eta = 1 and error e the step is e: Phi falls by e^2 / 2 <= 3/4 e^2."""
    path = run(Linear(-np.eye(2), BOX), Biased(1.0, np.array([0.4, 0.0])), np.zeros((1, 2)), 1)
    t = trace(path, HILL)
    fall = t.heights[0, 0] - t.heights[1, 0]
    assert fall == pytest.approx(0.08)
    assert fall <= 1.0 * 0.4**2 - t.moves[0, 0] @ t.moves[0, 0] / 4


def test_a_constant_error_leaves_a_floor_of_its_size():
    """The run rests where grad Phi = -e, whatever T; there the gap is |e| times the way to the far side."""
    path = run(Linear(-np.eye(2), BOX), Biased(0.5, np.array([0.3, 0.0])), np.array([[-0.5, 0.2]]), 2000)
    gap, bound = both_sides(path, HILL)
    assert gap[0] == pytest.approx(0.3 * 1.3, rel=1e-6)
    assert gap[0] <= bound


def test_the_wrong_sign_breaks_it_for_the_directions_that_were_meant():
    path = run(Linear(-np.eye(2), BOX), Ascent(HILL, 1.0, sign=-1.0), np.array([[0.3, 0.2]]), 400)
    t = trace(path, HILL)
    D, G, height = BOX.diameter, np.sqrt(2.0), 1.0  # of the whole box; delta = 0 and no residual
    bound = (D + G) * np.sqrt(4 * height / 400)
    assert t.gap[np.argmin(t.mapping[:, 0]), 0] == pytest.approx(4.0)
    assert bound < 0.5
    # With the directions that it followed, delta = 2 |grad Phi|, the theorem holds, and says nothing.
    gap, honest = both_sides(path, HILL)
    assert gap[0] <= honest
    assert honest > D * G
