"""The dual form's solver: the answer of the dense system, on which the points' own directions cost nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpml.projection.smooth.dual import FINE, ROUGH, _hyper, _solve
from hpml.projection.smooth.pair import add_blocks, pair_blocks, pair_matrices


def points_of(kind, n, d, rng):
    if kind == "cloud":
        return rng.normal(size=(n, d))
    if kind == "walk":
        return np.cumsum(rng.normal(size=(n, d)), 0)
    if kind == "line":
        return np.linspace(0, 1, n)[:, None] * rng.normal(size=(1, d)) + 1e-4 * rng.normal(size=(n, d))
    return rng.normal(size=(n, 3)) @ rng.normal(size=(3, d))  # dependent points


@pytest.mark.parametrize("kind", ["cloud", "walk", "line", "plane"])
@pytest.mark.parametrize("noise", [1e-2, 0.5])
@pytest.mark.parametrize("tolerance", [FINE, ROUGH])
def test_conjugate_gradients_give_the_dense_answer(kind, noise, tolerance):
    n, d, rng = 12, 20, np.random.default_rng(0)
    with jax.enable_x64(True):
        x = points_of(kind, n, d, rng)
        x = jnp.asarray((x - x.mean(0)) / np.sqrt(((x - x.mean(0)) ** 2).sum() / n))
        target, mask = jnp.asarray(rng.normal(size=(n, d))), jnp.asarray(rng.uniform(0.5, 1.5, n)) * (np.arange(n) != 3)
        hyper = _hyper(2.0)
        block = add_blocks(*pair_blocks(x, x, hyper, d))
        found = np.asarray(_solve(block, x, target, noise, mask, 300, tolerance))
        rows = np.repeat(np.asarray(mask), d)
        system = rows[:, None] * np.asarray(sum(pair_matrices(x, x, hyper, d))) * rows + noise * np.eye(n * d)
        exact = (rows * np.linalg.solve(system, rows * np.asarray(target).ravel())).reshape(n, d)
    np.testing.assert_allclose(found[3], 0.0)
    assert np.linalg.norm(found - exact) < 5.0 * tolerance * np.linalg.norm(exact)


def test_a_target_of_zeros_has_the_answer_zero():
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 8)))
    block = add_blocks(*pair_blocks(x, x, _hyper(2.0), 8))
    found = _solve(block, x, jnp.zeros((5, 8)), 0.1, jnp.ones(5), 50)
    np.testing.assert_array_equal(found, 0.0)
