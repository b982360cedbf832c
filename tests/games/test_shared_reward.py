"""With one reward the exact joint gradient has no residual; blockwise and approximate updates of the same game do."""

import jax
import numpy as np
import pytest

from hpml.games.families.markov import MarkovGame, nosde, random_markov
from hpml.games.families.shared_reward import UPDATES, SharedReward, relay
from hpml.games.game import evaluate
from hpml.geometry.arrays import in_double


@in_double
def jacobian(game, points):
    return jax.vmap(jax.jacfwd(game.field))(points)


def asymmetry(game, points):
    """|A| / |J| of the Jacobian, A its antisymmetric part, at the worst point."""
    J = jacobian(game, points)
    A = (J - J.transpose(0, 2, 1)) / 2
    return float((np.linalg.norm(A, axis=(1, 2)) / np.linalg.norm(J, axis=(1, 2))).max())


def test_only_the_exact_update_is_a_gradient():
    game = relay()
    points = 0.2 * np.random.default_rng(0).normal(size=(3, game.domain.dimension))
    found = {update: asymmetry(SharedReward(game, update), points) for update in UPDATES}
    assert found["exact"] < 1e-8
    assert min(found["blockwise"], found["approximate"]) > 0.3, found
    assert found["sequential"] > 0.02, found


def test_the_same_holds_in_a_random_game_on_logits():
    game = random_markov(2, (2, 3), 0.8, shared=True, coordinates="logits")
    points = 0.2 * np.random.default_rng(0).normal(size=(3, game.domain.dimension))
    assert asymmetry(SharedReward(game), points) < 1e-8
    assert asymmetry(SharedReward(game, "blockwise"), points) > 0.01


def test_every_block_improves_its_agent_all_the_same():
    """Each block has a positive product with the agent's exact gradient: each is right, the whole is not."""
    exact = SharedReward(relay())
    points = 0.3 * np.random.default_rng(1).normal(size=(8, 4))
    for update in ("blockwise", "sequential", "approximate"):
        products = evaluate(exact, points) * evaluate(SharedReward(relay(), update), points)
        assert (products.reshape(8, 2, 2).sum(-1) > 0).all()


def test_the_exact_update_is_the_gradient_of_one_return():
    game = SharedReward(relay())
    x = 0.2 * np.random.default_rng(2).normal(size=4)
    gradient = in_double(lambda game, x: jax.grad(lambda y: game.returns(y)[0])(x))(game, x)
    np.testing.assert_allclose(evaluate(game, x[None])[0], gradient, atol=1e-10)
    assert SharedReward(relay(), "blockwise").returns(x) is None


def test_without_states_local_blocks_are_a_gradient_too():
    u = np.random.default_rng(0).normal(size=(3, 3))
    game = MarkovGame(np.ones((1, 3, 3, 1)), np.stack([u[None], u[None]]), 0.9)
    points = 0.1 * np.random.default_rng(1).normal(size=(2, 4))
    assert asymmetry(SharedReward(game, "blockwise"), points) < 1e-12
    np.testing.assert_allclose(evaluate(SharedReward(game, "blockwise"), points), evaluate(game, points), atol=1e-12)


def test_a_critic_that_looks_as_far_is_exact():
    game = random_markov(3, (2, 2), 0.8, shared=True)
    points = 0.2 * np.random.default_rng(0).normal(size=(3, 6))
    same = SharedReward(game, "approximate", critic_discount=0.8)
    np.testing.assert_allclose(evaluate(same, points), evaluate(game, points), atol=1e-10)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: SharedReward(nosde()), "one reward for all"),
        (lambda: SharedReward(relay(), "greedy"), "update must be one of"),
        (lambda: SharedReward(relay(), "approximate", critic_discount=1.0), "below 1"),
        (lambda: SharedReward(relay(), "sequential", step=0.0), "step must be positive"),
    ],
)
def test_bad_input(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
