"""`lem:gap_zero_vi`: where the gap is zero the variational inequality is solved, monotone or not."""

import numpy as np
import pytest
from ascent import Affine, domain_of
from hypothesis import given
from hypothesis import strategies as st

from hpml.certificates.constants import retract
from hpml.diagnostics.gaps import spread, stampacchia_gap
from hpml.games.families.linear import Linear
from hpml.games.families.normal_form import prisoners_dilemma, stag_hunt
from hpml.games.game import evaluate


def worst_direction(game, x, points):
    """The smallest <F(x), u - x> with F = -U, over many u of the domain."""
    return float(np.min(-(points - x) @ evaluate(game, x[None])[0]))


@given(seed=st.integers(0, 2**32 - 1), kind=st.sampled_from(["box", "ball", "simplices"]))
def test_the_gap_is_zero_just_where_no_direction_helps(seed, kind):
    rng = np.random.default_rng(seed)
    domain = domain_of(kind, rng)
    J, points = rng.normal(size=(domain.dimension,) * 2), spread(domain, 200, 50, seed)
    rest = points[0]
    inside = Affine(Linear(J, domain), -J @ rest)  # U vanishes at `rest`: not monotone, and still a solution
    assert abs(stampacchia_gap(inside, rest[None])[0]) < 1e-12
    assert worst_direction(inside, rest, points) > -1e-12
    pushed = rng.normal(size=domain.dimension)
    corner = retract(domain, 1e9 * pushed)  # far along a covector the projection tends to its maximiser
    outside = Affine(Linear(0 * J, domain), pushed)  # a constant push is answered at the boundary
    assert abs(stampacchia_gap(outside, corner[None])[0]) < 1e-6
    assert worst_direction(outside, corner, points) > -1e-6
    # Anywhere else the gap is the best improvement, and positive.
    gap = stampacchia_gap(outside, rest[None])[0]
    assert gap > 0
    assert worst_direction(outside, rest, np.concatenate([points, corner[None]])) == pytest.approx(-gap, rel=1e-6)


def test_it_is_never_negative():
    for game in (prisoners_dilemma(), stag_hunt(coordinates="dropped")):
        assert (stampacchia_gap(game, spread(game.domain, 400, 100)) >= 0).all()


def test_the_equilibria_of_the_stag_hunt_have_no_gap():
    """Two pure ones and the mixed one at 2/3 stag; next to them there is one."""
    game = stag_hunt(coordinates="dropped")
    rest = np.array([[1.0, 1.0], [0.0, 0.0], [2 / 3, 2 / 3]])
    np.testing.assert_allclose(stampacchia_gap(game, rest), 0.0, atol=1e-12)
    assert (stampacchia_gap(game, np.abs(rest - 0.1)) > 1e-2).all()
