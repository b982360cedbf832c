"""`lem:gap_residual`: the residual adds at most D |R| to the gap, and may add all of it."""

import numpy as np
import pytest
from ascent import Affine, ascend, random_normal_form, random_quadratic, trace
from hypothesis import given
from hypothesis import strategies as st

from hpml.diagnostics.gaps import stampacchia_gap
from hpml.games.families.linear import Linear
from hpml.geometry.domain import Ball


@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["box", "ball", "simplices", "normal form"]))
def test_it_holds_at_every_point(seed, kind):
    rng = np.random.default_rng(seed)
    game, potential = random_normal_form(rng) if kind == "normal form" else random_quadratic(kind, rng)
    t = trace(ascend(game, potential, 0.1, rng, steps=10), potential)
    D = game.domain.diameter
    assert (t.gap <= t.potential_gap + D * t.residual + 1e-12 * (1 + t.gap)).all()
    # R is as good as -R: the bound holds from the other side too.
    assert (t.potential_gap <= t.gap + D * t.residual + 1e-12 * (1 + t.gap)).all()


def test_the_diameter_cannot_be_spared():
    """No potential and a constant residual: at the far end of the ball the gap is D |R|."""
    game = Affine(Linear(np.zeros((2, 2)), Ball(np.zeros(2), 3.0)), np.array([0.0, 2.0]))
    assert stampacchia_gap(game, np.array([[0.0, -3.0]]))[0] == pytest.approx(6.0 * 2.0)
