"""Anchored extragradient keeps the rate of Yoon & Ryu 2021 on monotone fields, where plain ascent does not converge."""

import numpy as np
import pytest

from hpml.dynamics.rules.anchored import Anchored
from hpml.dynamics.run import run
from hpml.games.families.linear import Linear
from hpml.geometry.domain import Space

T = 200


def monotone(seed, size=4, pull=0.0):
    """<F(x) - F(y), x - y> <= 0: a skew matrix less a positive semidefinite one."""
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(size, size))
    J = B - B.T - pull * B @ B.T
    return Linear(J, Space(size)), np.linalg.norm(J, 2)


def squares(game, rule, x):
    points = run(game, rule, x, steps=T).points[:, 0]
    return ((points @ game.matrix.T) ** 2).sum(1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("pull", [0.0, 0.05])
def test_the_squared_field_falls_as_one_over_t_squared(seed, pull):
    game, L = monotone(seed, pull=pull)
    x = np.random.default_rng(seed + 9).normal(size=(1, 4))
    t = np.arange(T + 1)
    constant = squares(game, Anchored(1 / (8 * L)), x)
    assert (constant <= 260 * L**2 * (x**2).sum() / (t + 1) ** 2).all()
    varying = squares(game, Anchored(0.618 / L, lipschitz=L), x)
    assert (varying <= 27 * L**2 * (x**2).sum() / ((t + 1) * (t + 2))).all()


def test_the_first_steps_are_the_formula():
    game, L = monotone(1)
    J, x0, eta = game.matrix, np.random.default_rng(0).normal(size=4), 0.1 / L
    x, expected, step = x0, [x0], eta
    for t in range(4):
        y = x + (x0 - x) / (t + 2) + step * J @ x
        x = x + (x0 - x) / (t + 2) + step * J @ y
        expected.append(x)
        a = (step * L) ** 2
        step = step / (1 - a) * (1 - (t + 2) ** 2 / ((t + 1) * (t + 3)) * a)
    path = run(game, Anchored(eta, lipschitz=L), x0[None], steps=4).points[:, 0]
    np.testing.assert_allclose(path, expected, atol=1e-12)


def test_the_lipschitz_constant_must_be_positive():
    with pytest.raises(ValueError, match="lipschitz"):
        Anchored(lipschitz=0.0)
