"""`ex:bilinear_app`: min_u max_v u^T v is antisymmetric through and through."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpml.diagnostics.gaps import minty_gap, stampacchia_gap
from hpml.diagnostics.jacobian import split_jacobian
from hpml.diagnostics.orbits import average_iterate, distance_to
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import run
from hpml.games.families.linear import saddle
from hpml.games.game import evaluate
from hpml.projection.affine import affine_projection


@pytest.mark.parametrize("size", [1, 3])
def test_the_field_and_its_jacobian_are_the_papers(size):
    """The paper's F is the operator, minus the ascent field of min_u max_v <u, v>."""
    game = saddle(size)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 2 * size))
    u, v = X[:, :size], X[:, size:]
    np.testing.assert_allclose(-evaluate(game, X), np.concatenate([v, -u], 1), atol=1e-12)

    def objective(x):
        return x[:size] @ x[size:]

    slopes = np.asarray(jax.vmap(jax.grad(objective))(jnp.asarray(X)))
    ascent = np.concatenate([-slopes[:, :size], slopes[:, size:]], 1)
    np.testing.assert_allclose(evaluate(game, X), ascent, atol=1e-6)
    split = split_jacobian(lambda x: -game.field(x), X)
    I, O = np.eye(size), np.zeros((size, size))
    np.testing.assert_allclose(split.symmetric, 0.0, atol=1e-12)
    np.testing.assert_allclose(split.antisymmetric, np.broadcast_to(np.block([[O, I], [-I, O]]), (5, *[2 * size] * 2)))
    np.testing.assert_allclose(split.energy, 2 * size)


def test_nothing_of_it_is_potential():
    p = affine_projection(saddle(2).matrix)
    assert p.nonpotentiality == pytest.approx(1.0)
    np.testing.assert_allclose(p.jacobian, 0.0, atol=1e-12)


def test_simultaneous_updates_circle_while_their_average_comes_in():
    path = run(saddle(1), Simultaneous(0.05), np.array([[0.5, 0.0]]), 2000)
    assert distance_to(path.points, np.zeros(2)).min() > 0.49
    assert distance_to(average_iterate(path.points), np.zeros(2))[-1, 0] < 0.05


def test_its_two_gaps_are_one():
    """<U(u) - U(x), u - x> = 0, so that Stampacchia and Minty maximise the same function."""
    X = np.random.default_rng(1).normal(size=(5, 4)) / 4
    np.testing.assert_allclose(minty_gap(saddle(2), X).value, stampacchia_gap(saddle(2), X), atol=1e-12)
