"""COMA's advantages and targets against loops, and against a public library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marl.making import play, quick, spec

from hpml.marl.advantage import Scale
from hpml.marl.algorithms.coma import COMA
from hpml.marl.learner import Trainer
from hpml.marl.policy import allowed
from hpml.marl.settings import Settings

T, E, AGENTS = 8, 2, 3
SETTINGS = Settings(hidden=8, rollout=T, environments=E, discount=0.9, trace=0.7)
TRAINER = Trainer(spec(masked=True), COMA(), SETTINGS)
CENTRE, DEVIATION = np.array([1.0, -2.0, 0.5]), np.array([0.5, 2.0, 3.0])
KEY = jax.random.key(7)


@pytest.fixture(scope="module")
def case():
    """What COMA makes of a rollout, with the policies and the values of all actions that it should have used."""
    learner = quick(TRAINER.init)(jax.random.key(0))
    rollout = play(TRAINER, learner.actors)
    square = DEVIATION**2 + CENTRE**2
    scale = Scale(jnp.asarray(CENTRE, jnp.float32), jnp.asarray(square, jnp.float32), jnp.ones(()))

    @quick
    def run(learner, rollout):
        batch, last = TRAINER._batch(rollout)
        judged = COMA().assess(learner.critic, scale, learner.actors, batch, last, rollout, SETTINGS, KEY)
        seen = rollout.observation
        agents_first = lambda x: jnp.moveaxis(x, 2, 0).reshape(AGENTS, (T + 1) * E, *x.shape[3:])  # noqa: E731
        back = lambda x: jnp.moveaxis(x.reshape(AGENTS, T + 1, E, -1), 0, 2)  # noqa: E731
        vector, mask = agents_first(seen.vector), agents_first(seen.mask)
        starts = jnp.zeros(((T + 1) * E, 1), bool)
        logits = jax.vmap(lambda actor, v: actor(v[:, None], None, None, starts)[0][:, 0])(learner.actors, vector)
        policy = back(allowed(logits, mask))
        end = jax.random.categorical(KEY, jnp.moveaxis(policy[T], 1, 0)[None, :, :, None])[0, :, :, 0]
        actions = jnp.concatenate([rollout.actions, end.T[None].astype(jnp.int32)])
        values = back(learner.critic(vector, None, agents_first(actions)))
        return judged, policy, values

    judged, policy, values = run(learner, rollout)
    values = np.asarray(values) * DEVIATION[:, None] + CENTRE[:, None]
    return rollout, judged, np.exp(np.asarray(policy)), values


def baseline(policy, values, t, e, i):
    return sum(float(p) * float(q) for p, q in zip(policy[t, e, i], values[t, e, i], strict=True))


def test_an_advantage_is_the_actions_value_over_the_policys_own_mean(case):
    rollout, judged, policy, values = case
    expected = np.zeros((T, E, AGENTS))
    for t in range(T):
        for e in range(E):
            for i in range(AGENTS):
                action = int(rollout.actions[t, e, i])
                expected[t, e, i] = values[t, e, i, action] - baseline(policy, values, t, e, i)
    np.testing.assert_allclose(judged.advantages, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(expected).max() > 0.1


def test_who_may_do_one_thing_only_has_no_advantage(case):
    rollout, judged, _, _ = case
    single = rollout.observation.mask[:T].sum(-1) == 1
    assert single.any()
    np.testing.assert_allclose(np.asarray(judged.advantages)[single], 0.0, atol=1e-5)


def test_targets_are_lambda_returns_of_the_values_of_what_was_done(case):
    rollout, judged, policy, values = case
    rlax = pytest.importorskip("rlax")
    taken = np.take_along_axis(values[:T], np.asarray(rollout.actions)[..., None], -1)[..., 0]
    np.testing.assert_allclose(judged.foretold, taken, rtol=1e-4, atol=1e-5)
    for e in range(E):
        for i in range(AGENTS):
            after = [*taken[1:, e, i], baseline(policy, values, T, e, i)]
            goes_on = 1.0 - np.asarray(rollout.starts[1:, e], np.float32)
            target, expected = after[-1], np.zeros(T)
            for t in reversed(range(T)):
                mixed = (1 - SETTINGS.trace) * after[t] + SETTINGS.trace * target
                target = float(rollout.rewards[t, e, i]) + SETTINGS.discount * goes_on[t] * mixed
                expected[t] = target
            np.testing.assert_allclose(np.asarray(judged.returns)[:, e, i], expected, rtol=1e-4, atol=1e-4)
            theirs = rlax.lambda_returns(
                rollout.rewards[:, e, i], SETTINGS.discount * goes_on, jnp.asarray(after, jnp.float32), SETTINGS.trace
            )
            np.testing.assert_allclose(theirs, expected, rtol=1e-4, atol=1e-4)
