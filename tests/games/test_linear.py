"""Linear fields: their split is known in closed form."""

import jax
import numpy as np
import pytest

from hpml.games.families.linear import Linear, rotation, saddle, skew3d, swirl
from hpml.games.game import evaluate
from hpml.geometry.domain import Ball

POINTS = np.random.default_rng(0).normal(size=(4, 3))


@pytest.mark.parametrize("rho", [0.0, 0.5, 3.0])
def test_the_share_of_circulation_is_the_mean_over_the_ball(rho):
    """F = -z + rho S z is orthogonal pointwise, so the share is a ratio of mean squares."""
    for game, share in [(swirl(rho), rho**2 / (1 + rho**2)), (skew3d(rho), 2 * rho**2 / (3 + 2 * rho**2))]:
        assert game.exact_nonpotentiality == pytest.approx(share)
        Z = np.asarray(game.domain.sample(jax.random.key(0), 20_000), np.float64)
        F = evaluate(game, Z)
        assert ((F + Z) ** 2).sum() / (F**2).sum() == pytest.approx(share, abs=0.01)


def test_the_skew_turns_around_its_axis():
    game = skew3d(rho=2.0, axis=(0.0, 0.0, 5.0))
    np.testing.assert_allclose(evaluate(game, POINTS) + POINTS, 2 * np.cross([0.0, 0.0, 1.0], POINTS), atol=1e-12)


def test_saddle_and_rotation():
    u, v = np.array([1.0, 2.0]), np.array([3.0, -1.0])
    np.testing.assert_allclose(evaluate(saddle(2), np.append(u, v)[None])[0], np.append(-v, u))
    np.testing.assert_allclose(evaluate(rotation(), [[1.0, 2.0]])[0], [2.0, -1.0])
    assert saddle(3).exact_nonpotentiality == rotation().exact_nonpotentiality == 1.0


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Linear(np.zeros((2, 3))), "square matrix"),
        (lambda: Linear(np.eye(2), Ball(np.zeros(3))), "must agree"),
        (lambda: Linear(np.eye(3), blocks=(1, 1)), "must agree"),
        (lambda: Linear([[np.nan]]), "not finite"),
    ],
)
def test_bad_input(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
