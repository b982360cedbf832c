"""Repeated matrix games pay what the table says, show what was played, and have exact values to train towards."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.games.families import normal_form
from hpml.games.game import exploitability as stage_exploitability
from hpml.marl.envs.matrix import GAMES, make
from hpml.marl.exact import (
    best_joint_returns,
    best_reply_returns,
    expected_returns,
    exploitability,
    observations,
    random_returns,
    rows,
)
from hpml.marl.find import environment, resolve, short_names

UNEVEN = np.random.default_rng(0).normal(size=(3, 2, 3, 4))


def play(env, actions):
    """Steps of one episode with these actions (rounds, agents)."""
    return jax.lax.scan(lambda s, a: env.step(s, a, None), env.reset(None)[0], jnp.asarray(actions))[1]


@pytest.mark.parametrize("name", GAMES)
def test_rounds_pay_the_table_and_end_at_the_horizon(name):
    env = make(name, horizon=5)
    actions = np.random.default_rng(1).integers(env.spec.actions, size=(5, env.spec.agents))
    steps = play(env, actions)
    want = [env.game.payoffs[(slice(None), *joint)] for joint in actions]
    np.testing.assert_allclose(steps.rewards, want, rtol=1e-6)
    np.testing.assert_array_equal(steps.done, [False] * 4 + [True])
    np.testing.assert_array_equal(steps.convention, actions)


def test_an_agent_sees_its_own_action_first_and_then_round_the_circle():
    env = make("pure_coordination", agents=3)
    seen = np.asarray(play(env, [[0, 1, 2]]).observation.vector[0]).reshape(3, 3, 3).argmax(-1)
    np.testing.assert_array_equal(seen, [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    assert not np.any(env.reset(None)[1].vector)


def test_without_memory_nothing_that_was_played_is_seen():
    env = make("stag_hunt", memory=False)
    assert env.spec.vector == 1
    np.testing.assert_array_equal(play(env, [[0, 1], [1, 1]]).observation.vector, 1.0)


def test_actions_that_an_agent_lacks_are_masked_and_pay_nan():
    env = make("three", payoffs=UNEVEN)
    np.testing.assert_array_equal(env.reset(None)[1].mask.sum(1), [2, 3, 4])
    steps = play(env, [[1, 2, 3], [2, 0, 0]])
    np.testing.assert_allclose(steps.rewards[0], UNEVEN[:, 1, 2, 3], rtol=1e-6)
    assert np.isnan(steps.rewards[1]).all()


def memory_one(env, seed):
    rng = np.random.default_rng(seed)
    return [rng.dirichlet(np.ones(size), size=rows(env)) for size in env.game.sizes]


def test_expected_returns_agree_with_played_episodes():
    env = make("three", payoffs=UNEVEN, horizon=6)
    tables = memory_one(env, 3)
    seen = np.asarray(observations(env).vector)  # (rows, agents, numbers)
    padded = jnp.asarray(np.stack([np.pad(t, ((0, 0), (0, 4 - t.shape[1]))) for t in tables]))

    def turn(carry, key):
        state, vector = carry
        row = jnp.argmax((seen[:, 0] == vector[0]).all(-1))
        actions = jax.random.categorical(key, jnp.log(padded[:, row]))
        state, step = env.step(state, actions, None)
        return (state, step.observation.vector), step.rewards

    def episode(key):
        state, first = env.reset(None)
        return jax.lax.scan(turn, (state, first.vector), jax.random.split(key, 6))[1].sum(0)

    sampled = np.asarray(jax.jit(jax.vmap(episode))(jax.random.split(jax.random.key(0), 20_000)))
    error = sampled.std(0) / np.sqrt(len(sampled))
    assert (np.abs(sampled.mean(0) - expected_returns(env, tables)) < 4.5 * error).all()


@given(st.sampled_from(["rock_paper_scissors", "stag_hunt", "bach_or_stravinsky", "climbing"]), st.integers(0, 99))
def test_stationary_play_has_the_stage_games_values(name, seed):
    rng = np.random.default_rng(seed)
    for memory in (False, True):
        env = make(name, memory=memory, horizon=7)
        mix = [rng.dirichlet(np.ones(size)) for size in env.game.sizes]
        point = env.game.point(mix)[None]
        assert exploitability(env, mix) == pytest.approx(7 * stage_exploitability(env.game, point)[0], abs=1e-5)
        assert expected_returns(env, mix) == pytest.approx(7 * np.asarray(env.game.returns(point[0])), abs=1e-4)


def test_memory_lets_a_threat_hold_until_the_last_round():
    env = make("prisoners_dilemma", horizon=10)
    # Cooperate first and after both cooperated, else defect: rows are first, CC, CD, DC, DD.
    grim = np.array([[1.0, 0], [1, 0], [0, 1], [0, 1], [0, 1]])
    assert expected_returns(env, [grim, grim]) == pytest.approx(30)
    assert best_reply_returns(env, [grim, grim]) == pytest.approx(9 * 3 + 5)  # defect in the last round alone
    always = [np.array([1.0, 0.0])] * 2
    assert best_reply_returns(env, always) == pytest.approx(10 * 5)


@given(st.integers(0, 99))
def test_no_policy_beats_the_best_reply(seed):
    env = make("three", payoffs=UNEVEN, horizon=4)
    tables, other = memory_one(env, seed), memory_one(env, seed + 1000)
    best = best_reply_returns(env, tables)
    for i in range(3):
        changed = [other[j] if j == i else tables[j] for j in range(3)]
        assert expected_returns(env, changed)[i] <= best[i] + 1e-9


def test_known_equilibria_and_optima():
    even = [np.full(3, 1 / 3)] * 2
    assert exploitability(make("rock_paper_scissors"), even) == pytest.approx(0, abs=1e-12)
    assert random_returns(make("rationalizable_coordination", horizon=1)) == pytest.approx([2 / 3, 2 / 3])
    assert best_joint_returns(make("rationalizable_coordination", horizon=2)) == pytest.approx([6, 6])
    assert best_joint_returns(make("climbing", horizon=1)) == pytest.approx([11, 11])
    assert random_returns(make("climbing", horizon=1)) == pytest.approx([-31 / 9, -31 / 9])


def test_payoffs_are_those_of_the_games_of_the_library():
    np.testing.assert_array_equal(make("stag_hunt").game.payoffs, normal_form.stag_hunt().payoffs)
    u = make("random", common=0.0, seed=3).game.payoffs
    np.testing.assert_allclose(u[0], -u[1])
    u = make("random", common=1.0, agents=3, seed=3).game.payoffs
    np.testing.assert_allclose(u[0], u[2])


def test_names_carry_options_and_payoffs():
    env = environment("matrix/[[[1,0],[0,2]],[[1,0],[0,2]]]:horizon=3,memory=false")
    assert (env.spec.agents, env.spec.actions, env.spec.horizon, env.spec.vector) == (2, 2, 3, 1)
    assert environment("rps:win=2,horizon=3", horizon=4).spec.horizon == 4
    assert resolve("bos:horizon=3") == ("matrix/bach_or_stravinsky", {"horizon": 3})
    assert all("/" in full for full in short_names().values())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("rok_paper_scissors", "did you mean matrix/rock_paper_scissors"),
        ("matrx/stag_hunt", "no family of environments 'matrx': did you mean matrix"),
        ("matrix/stag_hnt", "did you mean stag_hunt"),
        ("matrix/stag_hunt:horizn=3", "no option 'horizn': did you mean horizon"),
        ("matrix/stag_hunt:horizon", "key=value"),
        ("matrix/stag_hunt:horizon=0", "positive number of rounds"),
        ("matrix/stag_hunt:memory=7", "memory must be true"),
        ("matrix/[[1,2],[3,4]]", "payoffs must have shape"),
        ("matrix/[[1,2],[3]]", "one array of numbers"),
        ("matrix/[[1,2", "no JSON array"),
        ("matrix/[[1,2]]", "two agents or more"),
        ("matrix/[[[1,2],[NaN,4]],[[0,1],[2,3]]]", r"index \(0, 1, 0\) is nan"),
    ],
)
def test_bad_names_and_payoffs_get_a_sentence(name, sentence):
    with pytest.raises(ValueError, match=sentence):
        environment(name)


def test_policies_that_do_not_fit_get_a_sentence():
    env = make("stag_hunt")
    with pytest.raises(ValueError, match="one policy for each of the 2"):
        expected_returns(env, [[0.5, 0.5]])
    with pytest.raises(ValueError, match="rows that sum to 1"):
        expected_returns(env, [[0.5, 0.4]] * 2)


def test_finding_names_imports_no_jax():
    code = "import sys; from hpml.marl.find import resolve; resolve('bos'); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
