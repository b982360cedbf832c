"""Policies at play, in NumPy and in C: the same function as the actors that learn, and draws that follow it."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpml.marl.collect.hosted import draw_all, parameters
from hpml.marl.collect.native import NativePlayer
from hpml.marl.collect.player import Player, Turn, log_probs
from hpml.marl.collect.worker import policies
from hpml.marl.env import Observation, Spec
from hpml.marl.networks import init_actors
from hpml.marl.policy import allowed
from hpml.marl.rollout import see
from hpml.marl.settings import Settings
from hpml.native.play import library

AGENTS, ACTIONS = 3, 5
SEEING = {
    "numbers": {"vector": 4},
    "picture": {"image": (16, 24, 3), "vector": 2},
    "no numbers": {"image": (16, 24, 3)},
    "broken squares": {"image": (11, 13, 2), "patch": 4, "vector": 2},
    "masked": {"image": (16, 16, 3), "vector": 2, "masked": True},
}


def uneven_actors(spec, settings):
    """As those that a learner begins with in all but their numbers."""
    shapes, draw = jax.eval_shape(lambda: init_actors(jax.random.key(0), spec, settings)), np.random.default_rng(7)
    return jax.tree.map(lambda x: jnp.asarray(0.4 * draw.normal(size=x.shape), x.dtype), shapes)


def case(name, **changes):
    """A spec, its settings, actors whose policies are far from uniform, and what one environment shows."""
    spec = Spec(name, AGENTS, ACTIONS, **SEEING[name])
    settings = Settings(hidden=16, sprites=4, **changes)
    actors = uneven_actors(spec, settings)
    draw = np.random.default_rng(8)
    image = None if spec.image is None else draw.integers(256, size=(AGENTS, *spec.image), dtype=np.uint8)
    mask = np.array([[1, 0, 1, 1, 0], [0, 0, 0, 1, 0], [1, 1, 1, 1, 1]], bool) if spec.masked else None
    seen = Observation(draw.normal(size=(AGENTS, spec.vector)).astype(np.float32), image, mask)
    memory = draw.normal(size=(AGENTS, settings.memory)).astype(np.float32) if settings.memory else None
    return spec, settings, actors, seen, memory


def learnt(spec, settings, actors, seen, memory):
    """Log-probabilities and memory as the learner has them."""
    known = None if memory is None else memory[:, None]
    log_policy, known = learning(spec, settings)(actors, seen, known)
    return np.asarray(log_policy), known


@cache
def learning(spec, settings):
    """The learner's own program, compiled once for both kinds of players."""
    axes = (None if settings.share else 0, 0, 0, 0)

    @jax.jit
    def run(actors, seen, memory):
        inputs = jax.tree.map(lambda x: jnp.asarray(x)[:, None, None], see(seen, spec, settings))
        of_agent = jax.vmap(lambda actor, *rest: actor(*rest, jnp.zeros((1, 1), bool)), in_axes=axes)
        logits, known = of_agent(actors, inputs.vector, inputs.patches, memory)
        return allowed(logits[:, 0, 0], seen.mask), known

    return run


@pytest.fixture(params=["NumPy", "C"])
def made(request):
    """A player of a kind, with these parameters."""
    if request.param == "C" and library() is None:
        pytest.skip("this machine has no C compiler")

    def make(spec, weights, shared):
        player = Player(spec, shared) if request.param == "NumPy" else NativePlayer(spec, shared, library())
        player.load(weights)
        make.kept.append(weights)
        return player

    make.kept = []
    return make


def play(player, seen, memory, draws):
    """Actions, logits and what is known afterwards; as many environments at a time as the player takes."""
    actions, logits = np.empty(draws.shape, np.int32), np.empty((*draws.shape, ACTIONS), np.float32)
    then = None if memory is None else np.empty_like(memory)
    for first in range(0, len(draws), player.together):
        few = slice(first, first + player.together)
        given = jax.tree.map(lambda x, few=few: x[few], (seen, memory, draws, actions, logits, then))
        player.act(player.prepare(Turn(*given)))
    return actions, logits, then


def act(player, seen, memory, number):
    """One environment's actions, with the same draw for all agents."""
    seen, memory = jax.tree.map(lambda x: x[None], (seen, memory))
    played = play(player, seen, memory, np.full((1, AGENTS), number, np.float32))
    return jax.tree.map(lambda x: x[0], played)


@pytest.mark.parametrize("changes", [{}, {"share": True}, {"memory": 6}, {"memory": 6, "share": True}], ids=str)
@pytest.mark.parametrize("name", SEEING)
def test_the_player_is_the_actor(made, name, changes):
    spec, settings, actors, seen, memory = case(name, **changes)
    expected, known = learnt(spec, settings, actors, seen, memory)
    actions, logits, after = act(made(spec, jax.device_get(parameters(actors)), settings.share), seen, memory, 0.4)
    found = log_probs(logits, actions)
    np.testing.assert_allclose(found, expected[np.arange(AGENTS), actions], rtol=2e-5, atol=2e-5)
    assert (after is None) == (memory is None)
    if memory is not None:
        np.testing.assert_allclose(after, np.asarray(known)[:, 0], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["picture", "broken squares", "masked"])
def test_environments_side_by_side_are_each_alone_to_the_last_bit(made, name):
    spec, settings, actors, seen, memory = case(name, memory=6)
    player, draw = made(spec, jax.device_get(parameters(actors)), settings.share), np.random.default_rng(3)
    several = jax.tree.map(lambda x: np.stack([np.roll(x, k, 0) for k in range(5)]), (seen, memory))
    draws = draw.random((5, AGENTS), np.float32)
    together = play(player, *several, draws)
    for k in range(5):
        alone = play(player, *jax.tree.map(lambda x, k=k: x[k : k + 1], several), draws[k : k + 1])
        for one, other in zip(together, alone, strict=True):
            assert np.array_equal(one[k], other[0])


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("name", ["picture", "masked"])
def test_environments_of_several_seeds_are_each_alone_to_the_last_bit(name, share):
    spec, _, actors, seen, memory = case(name, memory=6, share=share)
    seeds = jax.tree.map(lambda x: np.stack([x, 0.9 * x, x - 0.1]), jax.device_get(parameters(actors)))
    places = [0, 0, 1, 2, 2]
    draws = np.random.default_rng(3).random((5, AGENTS), np.float32)
    several = jax.tree.map(lambda x: np.stack([np.roll(x, k, 0) for k in range(5)]), (seen, memory))
    player = Player(spec, share)
    player.together = len(places)
    player.load(policies(seeds, places, share))
    together = play(player, *several, draws)
    for k, place in enumerate(places):
        player = Player(spec, share)
        player.load({key: array[place] for key, array in seeds.items()})
        alone = play(player, *jax.tree.map(lambda x, k=k: x[k : k + 1], several), draws[k : k + 1])
        for one, other in zip(together, alone, strict=True):
            assert np.array_equal(one[k], other[0])


def test_what_is_not_a_number_stays_so(made):
    spec, settings, actors, seen, _ = case("picture")
    weights = jax.device_get(parameters(actors))
    weights["sight.vector.bias"] = np.full_like(weights["sight.vector.bias"], np.nan)
    _, logits, _ = act(made(spec, weights, settings.share), seen, None, 0.5)
    assert np.isnan(logits).all()


def test_c_refuses_what_it_would_read_beyond(made):
    spec, settings, actors, seen, _ = case("picture")
    weights = jax.device_get(parameters(actors))
    player = made(spec, weights, settings.share)
    if isinstance(player, Player):
        pytest.skip("NumPy looks by itself")
    shared = {name: array[0] for name, array in weights.items()}
    double = {name: array.astype(float) for name, array in weights.items()}
    for wrong in (shared, double, {**weights, "head.weight": weights["head.weight"][:, :-1]}):
        with pytest.raises(ValueError, match="needs policies of float32"):
            player.load(wrong)
    with pytest.raises(ValueError, match="needs policies"):
        made(spec, shared, False)
    two = jax.tree.map(lambda x: np.stack([x, x]), seen)
    with pytest.raises(ValueError, match="one environment at a time"):
        player.prepare(Turn(two, None, np.zeros((2, AGENTS), np.float32), None, None, None))


def test_what_is_kept_of_squares_changes_nothing(made):
    """Thousands of pictures, of few squares and of many: none is forgotten, mistaken, or kept from other parameters."""
    spec, settings, actors, _, _ = case("broken squares")
    first, other = (jax.device_get(parameters(jax.tree.map(lambda x, c=c: c * x, actors))) for c in (1.0, 0.9))
    draw, count = np.random.default_rng(5), 1500  # 36 squares each, half of them new: more than a player keeps
    images = draw.integers(2, size=(count, AGENTS, *spec.image), dtype=np.uint8) * np.uint8(255)
    images[::2] = draw.choice(images[1:20:2], count // 2)  # as a game has them: nearly always seen before
    seen = Observation(draw.normal(size=(count, AGENTS, spec.vector)).astype(np.float32), images, None)
    draws = draw.random((count, AGENTS), np.float32)
    long_played = made(spec, first, settings.share)
    play(long_played, seen, None, draws)
    for weights in (other, first):
        long_played.load(weights)
        actions, logits, _ = play(long_played, seen, None, draws)
        for k in (0, 1, 700, 1498, 1499):
            alone = jax.tree.map(lambda x, k=k: x[k : k + 1], seen)
            fresh = play(made(spec, weights, settings.share), alone, None, draws[k : k + 1])
            assert np.array_equal(actions[k], fresh[0][0])
            assert np.array_equal(logits[k], fresh[1][0])


@pytest.mark.parametrize("name", ["picture", "masked"])
def test_draws_follow_the_policy(made, name):
    spec, settings, actors, seen, _ = case(name)
    expected = np.exp(learnt(spec, settings, actors, seen, None)[0])
    player, count = made(spec, jax.device_get(parameters(actors)), settings.share), 2000
    # Equally spaced draws hit every action as often as its probability says, but for one at each of its ends.
    even = (np.arange(count, dtype=np.float32) + 0.5) / count
    played = np.stack([act(player, seen, None, u)[0] for u in even])
    shares = np.stack([(played == action).mean(0) for action in range(ACTIONS)], -1)
    np.testing.assert_allclose(shares, expected, atol=2.0 / count)
    for last in (0.0, np.nextafter(np.float32(1), np.float32(0))):
        actions, logits, _ = act(player, seen, None, last)
        assert np.isfinite(log_probs(logits, actions)).all()
        assert expected[np.arange(AGENTS), actions].min() > 0


def test_draws_are_a_seeds_and_an_environments_own():
    keys = jax.random.split(jax.random.key(0), 3)
    many, few = draw_all(keys, 5, 4, 6, 2), draw_all(keys[1:2], 5, 4, 3, 2)
    assert np.array_equal(many[:, 1:2, :3], few)
    assert not np.array_equal(many, draw_all(keys, 6, 4, 6, 2))
    assert len(np.unique(np.asarray(many))) > 0.9 * many.size
