"""`lem:gap_mapping_inexact`: the same with any direction g, at the price of D |g - grad Phi|."""

import numpy as np
import pytest
from ascent import random_quadratic, starts_of
from hypothesis import given
from hypothesis import strategies as st

from hpml.certificates.constants import retract
from hpml.diagnostics.gaps import linear_gap
from hpml.geometry.domain import Ball


def both_sides(domain, x, g, slope, eta):
    D = domain.diameter
    mapping = np.linalg.norm(retract(domain, x + eta * g) - x, axis=-1) / eta
    bound = (D + eta * np.linalg.norm(g, axis=-1)) * mapping + D * np.linalg.norm(g - slope, axis=-1)
    return linear_gap(domain, x, slope), bound


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["box", "ball", "simplices"]),
    eta=st.sampled_from([1e-3, 0.1, 1.0, 100.0]),
    error=st.sampled_from([0.0, 0.1, 10.0]),
)
def test_it_holds_with_any_direction_and_step(seed, kind, eta, error):
    rng = np.random.default_rng(seed)
    game, potential = random_quadratic(kind, rng)
    x = starts_of(game, rng, 50)
    slope = potential.gradient(x)
    gap, bound = both_sides(game.domain, x, slope + error * rng.normal(size=x.shape), slope, eta)
    D = game.domain.diameter
    assert (gap <= bound + 1e-13 * (1 + np.abs(slope).max() + D / eta) * (1 + D)).all()


def test_the_error_term_is_attained():
    """A direction that stands still: the step is zero and the whole gap, D |grad Phi|, is the direction's error."""
    x, slope = np.array([[0.0, -1.0]]), np.array([[0.0, 3.0]])
    gap, bound = both_sides(Ball(np.zeros(2)), x, 0 * slope, slope, 0.1)
    assert gap[0] == pytest.approx(6.0)
    assert bound[0] == pytest.approx(6.0)
