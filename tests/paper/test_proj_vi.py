"""`lem:proj_vi`: the projection's variational inequality and firm nonexpansiveness, on every domain.

Every bound of the gap section rests on it. The retraction of "dropped" simplex coordinates is the Euclidean projection
of the probability vectors, not of the coordinates, and there the lemma is false.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.certificates.constants import retract
from hpml.diagnostics.gaps import spread
from hpml.geometry.domain import Ball, Box, Simplices, Space

DOMAINS = {
    "box": Box([-1.0, 0.0, 2.0], [0.5, 3.0, 2.1]),
    "ball": Ball(np.array([1.0, -2.0, 0.5]), 0.7),
    "one simplex": Simplices(4, "orthonormal"),
    "simplices": Simplices((2, 3, 5), "orthonormal"),
    "dropped pairs": Simplices((2, 2), "dropped"),  # each is an interval, where the two projections agree
}


def outcome(domain, seed, scale):
    """The left sides minus the right sides of the lemma's three inequalities at random points near and far."""
    rng = np.random.default_rng(seed)
    Y, Y2 = rng.normal(size=(2, 40, domain.dimension)) * scale
    Z = spread(domain, 30, 10, seed)
    P, P2 = retract(domain, Y), retract(domain, Y2)
    obtuse = ((Y - P) * (Z - P)).sum(1)
    firm = ((P - P2) ** 2).sum(1) - ((P - P2) * (Y - Y2)).sum(1)
    short = np.linalg.norm(P - P2, axis=1) - np.linalg.norm(Y - Y2, axis=1)
    return np.array([obtuse.max(), firm.max(), short.max()])


@pytest.mark.parametrize("name", DOMAINS)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.1, 1.0, 30.0]))
def test_it_holds_on_every_domain(name, seed, scale):
    assert (outcome(DOMAINS[name], seed, scale) <= 1e-12 * (1 + scale**2)).all()


@pytest.mark.parametrize("name", DOMAINS)
def test_points_of_the_domain_stay_and_others_come_to_the_closest(name):
    domain = DOMAINS[name]
    Z = spread(domain, 300, 100)
    np.testing.assert_allclose(retract(domain, Z), Z, atol=1e-12)
    Y = np.random.default_rng(0).normal(size=(20, domain.dimension)) * 3
    there = np.linalg.norm(Y - retract(domain, Y), axis=1)
    assert (there[:, None] <= np.linalg.norm(Y[:, None] - Z[None], axis=2) + 1e-12).all()


def test_all_of_space_is_left_alone():
    Y = np.random.default_rng(0).normal(size=(20, 3))
    np.testing.assert_array_equal(retract(Space(3), Y), Y)


def test_in_dropped_coordinates_it_is_false():
    worst = outcome(Simplices((3, 3), "dropped"), 0, 1.0)
    assert worst[0] > 1e-2
    assert worst[1] > 1e-2
