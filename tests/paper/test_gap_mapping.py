"""`lem:gap_mapping`: a short projected step means a small gap of the potential.

The lemma holds as stated. Its proof does not: it passes through Gap_Phi <= D |G_eta| + eta |G_eta|^2, with a lower
bound of <grad Phi, x+ - x> in the place of an upper one, and that is false where the step meets the boundary.
"""

import numpy as np
import pytest
from ascent import random_quadratic, starts_of
from hypothesis import given
from hypothesis import strategies as st

from hpml.certificates.constants import retract
from hpml.diagnostics.gaps import linear_gap
from hpml.geometry.domain import Ball, Box


def sides(domain, x, g, eta):
    """Gap_Phi, |G_eta| and <grad Phi, x+ - x>."""
    move = retract(domain, x + eta * g) - x
    return linear_gap(domain, x, g), np.linalg.norm(move, axis=-1) / eta, (g * move).sum(-1)


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["box", "ball", "simplices"]),
    eta=st.sampled_from([1e-3, 0.1, 1.0, 100.0]),
)
def test_it_holds_with_any_step_and_so_does_the_sharper_bound_of_the_mended_proof(seed, kind, eta):
    rng = np.random.default_rng(seed)
    game, potential = random_quadratic(kind, rng)
    x = starts_of(game, rng, 50)
    g = potential.gradient(x)
    gap, mapping, work = sides(game.domain, x, g, eta)
    D, G = game.domain.diameter, np.linalg.norm(g, axis=1).max()
    rounding = 1e-13 * (1 + G + D / eta) * (1 + D)
    assert (gap <= (D + eta * G) * mapping + rounding).all()
    assert (gap <= D * mapping + work + rounding).all()
    assert (work <= eta * G * mapping + rounding).all()


def test_the_proofs_intermediate_inequality_has_a_counterexample():
    """[0, 1], x = 1/2, eta grad Phi = 10: the gap is 5 / eta, the proof's bound .75 / eta, the lemma's 5.5 / eta."""
    x, g = np.array([[0.5]]), np.array([[10.0]])
    gap, mapping, work = sides(Box([0.0], [1.0]), x, g, 1.0)
    assert gap[0] == pytest.approx(5.0)
    assert 1.0 * mapping[0] + 1.0 * mapping[0] ** 2 == pytest.approx(0.75)
    assert (1.0 + 10.0) * mapping[0] == pytest.approx(5.5)
    assert 1.0 * mapping[0] + work[0] == pytest.approx(5.5)


def test_the_diameter_is_needed():
    """At the rim of the unit disc, with the gradient through its centre, the gap is D |G_eta|."""
    x, g = np.array([[0.0, -1.0]]), np.array([[0.0, 1.0]])
    gap, mapping, _ = sides(Ball(np.zeros(2)), x, g, 1e-3)
    assert gap[0] == pytest.approx(2.0)
    assert mapping[0] == pytest.approx(1.0)
