"""Every game keeps one list of truths. Families are found by listing their folder, so a new file is tested too."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpml.catalogue import list_games
from hpml.games.game import as_feasible, as_points, evaluate, exploitability
from hpml.geometry.arrays import in_double
from hpml.geometry.domain import Space

GAMES = {f"{family}/{name}": game for family, games in list_games().items() for name, game in games.items()}
N = 3


@pytest.fixture(params=GAMES, scope="module")
def game(request):
    return GAMES[request.param]


@pytest.fixture(scope="module")
def points(game):
    """Inside the domain, away from its edges."""
    if isinstance(game.domain, Space):
        return np.random.default_rng(0).normal(size=(N, game.domain.dimension))
    inner = 0.9 * np.asarray(game.domain.sample(jax.random.key(0), N), np.float64)
    return inner + 0.1 * np.asarray(game.domain.sample(jax.random.key(1), 64), np.float64).mean(0)


def at_rest(game):
    """As many copies of the equilibrium as there are points: another number would be compiled again."""
    return np.tile(game.equilibrium, (N, 1))


@in_double
def measure(game, points):
    """What the field and the payoffs are at a point to first order, compiled once a game."""

    def one(x):
        J = jax.jacfwd(game.field)(x)
        returns = game.returns(x)
        gradients = None if returns is None else jax.jacrev(game.returns)(x)
        parts = game.strategies(x)
        return J, returns, gradients, None if parts is None else list(parts)

    return jax.vmap(one)(points)


@eqx.filter_jit
def single(game, point):
    return game.field(point)


@pytest.fixture(scope="module")
def measured(game, points):
    names = ("jacobian", "returns", "gradients", "strategies")
    return dict(zip(names, measure(game, points), strict=True)) | {"field": evaluate(game, points)}


def test_the_field_is_finite_and_differentiable(game, points, measured):
    d = game.domain.dimension
    assert sum(game.blocks) == d
    assert min(game.blocks) > 0
    assert measured["field"].shape == (N, d)
    assert np.isfinite(measured["field"]).all()
    assert measured["jacobian"].shape == (N, d, d)
    assert np.isfinite(measured["jacobian"]).all()
    assert np.abs(measured["field"]).max() > 0


def test_the_jacobian_is_that_of_finite_differences(game, points, measured):
    step = np.random.default_rng(1).normal(size=game.domain.dimension)
    h = 1e-5 / np.linalg.norm(step)
    change = (evaluate(game, points + h * step) - evaluate(game, points - h * step)) / (2 * h)
    truth = measured["jacobian"] @ step
    np.testing.assert_allclose(change, truth, atol=1e-6 * (1 + np.abs(truth).max()))


def test_one_point_at_a_time_and_float32(game, points, measured):
    field = single(game, jnp.asarray(points[0], jnp.float32))
    assert field.dtype == jnp.float32
    scale = 1 + np.abs(measured["field"]).max()
    np.testing.assert_allclose(field, measured["field"][0], atol=1e-4 * scale)


def test_each_block_is_the_gradient_of_its_agents_payoff(game, measured):
    if measured["returns"] is None:
        pytest.skip("the field is no gradient of payoffs")
    agents = len(game.blocks)
    assert measured["returns"].shape == (N, agents)
    starts = np.concatenate([[0], np.cumsum(game.blocks)])
    for i in range(agents):
        own = slice(starts[i], starts[i + 1])
        np.testing.assert_allclose(measured["field"][:, own], measured["gradients"][:, i, own], atol=1e-9)


def test_strategies_are_probabilities_with_names(game, measured):
    if game.labels is None:
        assert measured["strategies"] is None
        return
    assert len(game.labels) == len(measured["strategies"])
    for names, p in zip(game.labels, measured["strategies"], strict=True):
        assert p.shape == (N, len(names))
        assert len(set(names)) == len(names)
        assert (p > 0).all()
        np.testing.assert_allclose(p.sum(-1), 1.0, atol=1e-12)


def test_regrets_are_positive_and_vanish_at_the_equilibrium(game, points):
    regrets = jax.eval_shape(game.regrets, jnp.asarray(points[0]))
    if regrets is None:
        with pytest.raises(ValueError, match="Stampacchia"):
            exploitability(game, points)
        return
    assert regrets.shape == (len(game.blocks),)
    gaps = exploitability(game, points)
    assert (gaps >= 0).all()
    if game.equilibrium is not None:
        assert exploitability(game, at_rest(game)).max() < 1e-9
        assert (gaps > 1e-6).all()


def test_the_equilibrium_solves_the_variational_inequality(game):
    if game.equilibrium is None:
        pytest.skip("no known equilibrium")
    x = at_rest(game)
    F = evaluate(game, x)
    if isinstance(game.domain, Space):
        assert np.abs(F).max() < 1e-9
        return
    np.testing.assert_allclose(as_feasible(game, x), x)
    with jax.enable_x64(True):
        best = np.asarray(game.domain.maximise(jnp.asarray(F)))
    assert (F * (best - x)).sum(1).max() < 1e-9


def test_points_of_another_size_get_a_sentence(game):
    with pytest.raises(ValueError, match="columns for this game"):
        as_points(game, np.zeros((2, game.domain.dimension + 1)))
