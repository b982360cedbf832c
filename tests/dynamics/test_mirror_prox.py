"""Mirror-Prox on simplices: its guarantee on zero-sum games, and multiplicative weights underneath."""

import jax
import numpy as np
import pytest

from hpml.dynamics.retraction import retraction
from hpml.dynamics.rules.extragradient import Extragradient
from hpml.dynamics.rules.mirror_prox import MirrorProx
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import run
from hpml.games.families.normal_form import bimatrix
from hpml.games.game import evaluate, exploitability

RPS = np.array([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])


@pytest.mark.parametrize("seed", range(3))
def test_the_average_keeps_the_bound(seed):
    """From the uniform start the gap of the mean of the looked-ahead points is at most sum(log K) / (eta T)."""
    A = np.random.default_rng(seed).uniform(-1, 1, size=(3, 4))  # |A| <= 1: Lipschitz with constant 1 in the 1-norm
    game, T = bimatrix(A), 200
    path = run(game, MirrorProx(1.0), np.zeros((1, 5)), steps=T).points[:-1, 0]
    ahead = retraction(game.domain, "softmax")(path, evaluate(game, path))
    means = np.cumsum(ahead, 0) / np.arange(1, T + 1)[:, None]
    bound = (np.log(3) + np.log(4)) / np.arange(1, T + 1)
    assert (exploitability(game, means) <= bound).all()


def test_the_last_iterate_converges_where_multiplicative_weights_spiral_out():
    game = bimatrix(RPS)
    x = np.asarray(game.domain.sample(jax.random.key(0), 4), np.float64) / 2
    gaps = exploitability(game, run(game, MirrorProx(1.0), x, steps=300).points[-1])
    weights = exploitability(game, run(game, Simultaneous(1.0), x, steps=300, retraction="softmax").points[-1])
    assert gaps.max() < 1e-3
    assert weights.min() > 0.5


def test_it_is_extragradient_with_the_softmax_retraction():
    game = bimatrix(RPS)
    x = np.asarray(game.domain.sample(jax.random.key(1), 3), np.float64)
    ours = run(game, MirrorProx(0.3), x, steps=20).points  # whatever the run's own retraction
    same = run(game, Extragradient(0.3), x, steps=20, retraction="softmax").points
    np.testing.assert_array_equal(ours, same)
    assert not np.allclose(ours, run(game, Extragradient(0.3), x, steps=20).points)
