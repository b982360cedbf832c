"""`prop:residual_bellman_obstruction`: no residual, one hill; a loop with circulation, no hill at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.diagnostics.circulation import Polygon, circulation, local_circulation
from hpml.diagnostics.jacobian import antisymmetric_energy
from hpml.games.families.normal_form import NormalForm, bimatrix
from hpml.games.game import evaluate
from hpml.geometry.metric import Dense
from hpml.projection.affine import affine_projection


def loop_of(rng, dimension):
    return Polygon(0.1 * rng.normal(size=(5, dimension)))


def test_one_shared_payoff_is_a_hill_that_all_agents_climb():
    """(i) The exact joint gradient of a shared payoff has no residual; small steps raise that payoff."""
    rng = np.random.default_rng(0)
    payoff = rng.normal(size=(2, 3, 2))
    game = NormalForm(np.stack([payoff] * 3))
    X = np.asarray(game.domain.retract(0.2 * rng.normal(size=(10, 4))), np.float64)
    assert antisymmetric_energy(game.field, X).max() < 1e-24
    for _ in range(5):
        assert abs(circulation(lambda x: evaluate(game, x), loop_of(rng, 4)).value) < 1e-9

    def worth(x):
        return np.array([np.einsum("abc,a,b,c", payoff, *map(np.asarray, game.simplices.complete(p))) for p in x])

    rise = worth(X + 1e-3 * evaluate(game, X)) - worth(X)
    assert (rise > 0).all()


@given(seed=st.integers(0, 2**32 - 1))
def test_a_loop_with_circulation_rules_out_every_potential(seed):
    """(ii) Any metric gradient circulates by 0, so that the distance from F to all of them is bounded from below."""
    rng = np.random.default_rng(seed)
    J, root, H = rng.normal(size=(3, 3, 3))
    M = root @ root.T + 0.2 * np.eye(3)
    loop, metric = loop_of(rng, 3), Dense(M)
    p = affine_projection(J, metric=metric)
    F = circulation(lambda x: x @ J.T, loop, metric)
    R = circulation(lambda x: p.residual(x) + p.offset, loop, metric)
    assert F.value == pytest.approx(R.value, abs=1e-9 * F.bound)
    any_gradient = np.linalg.inv(M) @ (H + H.T)
    assert circulation(lambda x: x @ any_gradient.T, loop, metric).value == pytest.approx(0.0, abs=1e-9 * F.bound)
    # |Circ_F| <= |F - G| |gamma'| for every gradient G: with circulation none of them is F.
    assert abs(F.value) <= circulation(lambda x: x @ (J - any_gradient).T, loop, metric).bound * (1 + 1e-9)


def test_private_payoffs_break_the_reciprocity_of_two_agents():
    """The loop comes from d_2 g_1 != (d_1 g_2)^T: equal for a shared payoff, opposite in a zero-sum game."""
    A = np.random.default_rng(1).normal(size=(2, 2))
    centre, u, v = np.zeros((1, 2)), np.array([0.0, 1.0]), np.array([1.0, 0.0])
    cross = float(np.array([1, -1]) @ A @ np.array([1, -1]) / 2)  # d_2 g_1 in orthonormal coordinates
    shared, opposed = bimatrix(A, A), bimatrix(A)
    assert local_circulation(shared.field, centre, u, v)[0] == pytest.approx(0.0, abs=1e-12)
    assert local_circulation(opposed.field, centre, u, v)[0] == pytest.approx(2 * cross, rel=1e-12)
