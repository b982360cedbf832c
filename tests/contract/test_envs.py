"""Every environment keeps the contract of `Env`; families are found by listing the folder."""

import subprocess
import sys
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from hpml.marl import find
from hpml.marl.env import Env, Observation, Spec

# Environments that are worth a test, where a family's first two will not do: every game, and cheap substrates.
EXAMPLES = {
    "matrix": [
        *find.family("matrix").names(),
        "stag_hunt:memory=false,horizon=3",
        "[[[1,2,0],[3,4,1]],[[0,1,2],[2,3,1]]]:horizon=3",
    ],
    "meltingpot": ["bach_or_stravinsky_in_the_matrix__repeated", "collaborative_cooking__circuit"],
}
STEPS = 25  # of the second episode, to be compared with the first
LONGEST = 10_000  # steps, where an environment has no horizon


class Played(NamedTuple):
    """An episode: what was seen before each step and at its end, and what the steps gave."""

    seen: list[Observation]
    steps: list[Any]


def full_names():
    for family in find.families():
        yield from (f"{family}/{name}" for name in EXAMPLES.get(family, find.family(family).names()[:2]))


def actions_for(env: Env, seen: Observation, rng: np.random.Generator) -> np.ndarray:
    """Random actions among those that are allowed."""
    spec = env.spec
    allowed = np.ones((spec.agents, spec.actions), bool) if seen.mask is None else np.asarray(seen.mask)
    return np.where(allowed, rng.random(allowed.shape), -1.0).argmax(1).astype(np.int32)


def play(env: Env, seed: int, longest: int) -> Played:
    key = jax.random.key(seed) if env.compiled else seed
    step = jax.jit(env.step) if env.compiled else env.step
    state, first = env.reset(key)
    rng, seen, steps = np.random.default_rng(seed), [first], []
    try:
        while len(steps) < longest and not (steps and steps[-1].done):
            now = jax.random.fold_in(key, len(steps)) if env.compiled else None
            state, given = step(state, actions_for(env, seen[-1], rng), now)
            given = jax.tree.map(np.array, given)  # a hosted environment may use its arrays again
            steps.append(given)
            seen.append(given.observation)
    finally:
        env.close(state)
    return Played(seen, steps)


@pytest.fixture(scope="module", params=list(full_names()))
def env(request):
    try:
        return find.environment(request.param)
    except ValueError as error:
        if "not installed" in str(error):
            pytest.skip(str(error))
        raise


@pytest.fixture(scope="module")
def episode(env):
    return play(env, 7, env.spec.horizon or LONGEST)


def test_the_spec_is_one(env):
    spec = env.spec
    assert isinstance(spec, Spec)
    assert spec.name.split("/")[0] in find.families()
    assert spec.agents >= 1
    assert spec.actions >= 2
    assert spec.horizon >= 0
    assert len(spec.action_names) in (0, spec.actions)
    if env.compiled:
        assert {env: 1}[env]  # compiled functions are found again by their environment


def test_everything_seen_is_as_the_spec_says(env, episode):
    spec = env.spec
    for seen in episode.seen:
        assert (seen.image is None) == (spec.image is None)
        if spec.image is not None:
            assert seen.image.shape == (spec.agents, *spec.image)
            assert seen.image.dtype == np.uint8
        assert seen.vector.shape == (spec.agents, spec.vector)
        assert seen.vector.dtype == np.float32
        assert np.isfinite(seen.vector).all()
        assert (seen.mask is None) == (not spec.masked)
        if spec.masked:
            assert seen.mask.shape == (spec.agents, spec.actions)
            assert seen.mask.dtype == bool
            assert seen.mask.any(-1).all()


def test_every_step_gives_each_agent_a_reward_and_a_convention(env, episode):
    for step in episode.steps:
        assert step.rewards.shape == (env.spec.agents,)
        assert step.rewards.dtype == np.float32
        assert np.isfinite(step.rewards).all()
        assert step.convention.shape == (env.spec.agents,)
        assert step.convention.dtype == np.int32
        assert (step.convention >= -1).all()
        assert (step.convention < max(env.spec.conventions, 0)).all()


def test_the_episode_ends_once_and_by_the_horizon(env, episode):
    ends = [bool(step.done) for step in episode.steps]
    assert not any(ends[:-1])
    assert ends[-1] == (env.spec.horizon > 0)


def test_the_same_key_and_actions_give_the_same_episode(env, episode):
    again = play(env, 7, STEPS)
    for one, other in zip(again.seen, episode.seen, strict=False):
        jax.tree.map(np.testing.assert_array_equal, one, other)
    for one, other in zip(again.steps, episode.steps, strict=False):
        jax.tree.map(np.testing.assert_array_equal, one, other)


def test_actions_that_do_not_fit_get_a_sentence(env):
    spec = env.spec
    state, seen = env.reset(jax.random.key(0) if env.compiled else 0)
    good = actions_for(env, seen, np.random.default_rng(0))
    try:
        for bad in (good[:-1], np.append(good, 0), good[None]):
            with pytest.raises(ValueError, match=f"{spec.agents}.*agents"):
                env.step(state, bad, None)
        for bad in (good * 0 - 1, good * 0 + spec.actions, good + 0.5):
            with pytest.raises(ValueError, match=f"0 to {spec.actions - 1}"):
                env.step(state, bad, None)
    finally:
        env.close(state)


def test_many_at_once_are_as_one(env, episode):
    if not env.compiled:
        pytest.skip("a hosted environment is one at a time")
    keys = jax.random.split(jax.random.key(7), 3)
    state, seen = jax.jit(jax.vmap(env.reset))(keys)
    actions = np.stack([actions_for(env, episode.seen[0], np.random.default_rng(i)) for i in range(3)])
    many = jax.jit(jax.vmap(env.step))(state, actions, keys)
    for i in range(3):
        alone, first = env.reset(keys[i])
        one = env.step(alone, actions[i], keys[i])
        for got, want in ((many, one), (seen, first)):
            jax.tree.map(lambda x, y, i=i: np.testing.assert_allclose(x[i], y, rtol=1e-6), got, want)


@pytest.mark.parametrize("family", find.families())
def test_a_family_names_its_environments(family):
    module = find.family(family)
    assert module.names()
    assert set(module.SHORT.values()) <= set(module.names())
    known = find.short_names()
    for short, full in module.SHORT.items():
        assert known[short] == f"{family}/{full}"
    with pytest.raises(ValueError, match=r"did you mean|not installed"):
        find.environment(f"{family}/{module.names()[0][:-1]}")


def test_short_names_are_no_ones_twice():
    total = sum(len(find.family(family).SHORT) for family in find.families())
    assert len(find.short_names()) == total


@pytest.mark.parametrize("family", find.families())
def test_a_hosted_environment_needs_no_jax(family):
    module = find.family(family)
    if hasattr(module, "jax"):
        pytest.skip("a family that is compiled imports JAX")
    name = EXAMPLES.get(family, module.names())[0]
    try:
        full = find.environment(f"{family}/{name}").spec.name
    except ValueError as error:
        pytest.skip(str(error))
    code = f"import sys; from hpml.marl.find import environment as e; e({full!r}); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
