"""The instrument reads what is there, and never touches training."""

import dataclasses
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

sys.path.insert(0, str(Path(__file__).parent))
from making import play, spec

from hpml.marl.algorithms.ia2c import IA2C
from hpml.marl.learner import FieldSample, Trainer
from hpml.marl.measure import LOGS, Flat, Instrument
from hpml.marl.networks import init_actors
from hpml.marl.settings import Settings

SPEC = spec(agents=2, actions=2)
SETTINGS = Settings(environments=4, rollout=4, hidden=4, passes=2)
LARGE = dataclasses.replace(SETTINGS, hidden=128)
INSTRUMENT = Instrument(history=8, refresh=2)
CIRCLE, MIXED = jnp.linspace(0.0, 2.0 * jnp.pi, 9)[:8], 0.7


def watch(angles, turn, instrument, settings):
    """Logs along an arc of a circle in parameter space, where the field goes round (`turn` 1) or outwards (0).

    The halves differ by a fixed vector across the plane, a tenth of the field's length.
    """
    flat, restore = ravel_pytree(init_actors(jax.random.key(0), SPEC, settings))
    draw = np.random.default_rng(0).normal(size=(flat.size, 3))
    u, v, across = jnp.asarray(np.linalg.qr(draw)[0].T, jnp.float32)

    def step(state, t):
        outwards, along = jnp.cos(t) * u + jnp.sin(t) * v, jnp.cos(t) * v - jnp.sin(t) * u
        F = turn * along + (1.0 - turn) * outwards
        halves = jnp.stack([-F - 0.1 * across, -F + 0.1 * across])
        sample = FieldSample(restore(flat + outwards), jax.vmap(restore)(halves))
        return instrument.observe(state, instrument.flatten(sample))

    return jax.lax.scan(step, instrument.init(restore(flat)), angles)[1]


@pytest.fixture(scope="module")
def logs():
    """Round a circle, up a hill, along an arc, and something of the first two: large actors, exactly."""
    arc = jnp.linspace(0.0, 1e-3, 8)
    run = jax.jit(jax.vmap(lambda *path: watch(*path, Instrument(8, 2, 1 << 20), LARGE)))
    found = run(jnp.stack([CIRCLE, CIRCLE, arc, CIRCLE]), jnp.array([1.0, 0.0, 1.0, MIXED]))
    return [{name: np.asarray(found[name][i]) for name in LOGS} for i in range(4)]


def test_a_closed_orbit_shows_its_rotation_and_a_hill_does_not(logs):
    rotation, hill, *_ = logs
    assert rotation["nonpot"][-1] > 0.9
    assert rotation["nonpot_held_out"][-1] > 0.5
    assert rotation["identifiable"][-1] > 0.8
    assert hill["nonpot"][-1] < 0.02
    assert hill["nonpot_held_out"][-1] < 0.05
    assert hill["angle"][-1] < 0.1


def test_a_path_says_nothing_about_rotation_and_the_instrument_says_so(logs):
    path = logs[2]
    assert path["identifiable"][-1] < 0.01
    assert path["nonpot"][-1] < 0.02


def test_shares_and_energies(logs):
    for found in logs[:3]:
        np.testing.assert_allclose(found["noise_share"], 0.01, rtol=1e-3)
    path = logs[2]
    for name in ("residual_energy", "residual_clean"):
        assert abs(path[name][-1]) < 0.05  # a path foretells its next step
    total = path["potential_share"] + path["noise_share"] + np.maximum(path["residual_clean"], 0.0)
    np.testing.assert_allclose(total[-2:], 1.0, atol=1e-3)


def test_noise_is_neither_circulation_nor_potential():
    """A hill, with `noise` times as much of it in the mean of the halves: <R_a, R_b> is 0 up to chance."""
    instrument, size, count = Instrument(), 400, 120
    draws = jnp.asarray(np.random.default_rng(0).normal(size=(count, 2, size)), jnp.float32)

    def run(noise):
        def step(now, draws):
            state, x = now
            halves = -x + 2**0.5 * noise * jnp.linalg.norm(x) / size**0.5 * draws
            field = halves.mean(0)
            state, logs = instrument.observe(state, Flat(x, field, 0.5 * (halves[0] - halves[1])))
            return (state, x + 0.01 * field), logs | {"truth": x @ x}

        return jax.lax.scan(step, (instrument.init(draws[0, 0]), draws[0, 0]), draws)[1]

    noise = np.array([1.0, 3.0])
    logs = {name: np.asarray(found)[:, 20:] for name, found in jax.jit(jax.vmap(run))(noise).items()}
    np.testing.assert_allclose(logs["noise_share"].mean(1), noise**2 / (1.0 + noise**2), atol=0.02)
    np.testing.assert_allclose(logs["potential_share"].mean(1), 1.0 / (1.0 + noise**2), atol=0.05)
    assert (np.abs((logs["residual_clean"] / logs["truth"]).mean(1)) < 0.25).all()
    assert ((logs["residual_energy"] / logs["truth"]).mean(1) > 0.4).all()


def test_measuring_never_changes_training_and_seeds_do_not_meet():
    trainer = Trainer(SPEC, IA2C(), SETTINGS)
    begin = jax.jit(jax.vmap(lambda key: (learner := trainer.init(key), INSTRUMENT.init(learner.actors))))
    start = begin(jax.random.split(jax.random.key(0), 2))
    rollout = play(trainer, jax.tree.map(lambda x: x[0], start[0].actors))

    def run(start, measured):
        def step(now, _):
            learner, state = now
            learner, report = trainer.update(learner, rollout)
            state, logs = INSTRUMENT.observe(state, INSTRUMENT.flatten(report.field)) if measured else (state, {})
            return (learner, state), logs

        def seed(start):
            (learner, _), logs = jax.lax.scan(step, start, None, 5)
            return learner, logs

        return jax.vmap(seed)(start)

    compiled = jax.jit(run, static_argnums=1)
    with_it, logs = compiled(start, True)
    without, _ = compiled(start, False)
    for a, b in zip(jax.tree.leaves(with_it.actors), jax.tree.leaves(without.actors), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(jax.tree.leaves(with_it.critic), jax.tree.leaves(without.critic), strict=True):
        np.testing.assert_array_equal(a, b)
    _, swapped = compiled(jax.tree.map(lambda x: x[::-1], start), True)
    assert set(logs) == set(LOGS)
    for name in LOGS:
        np.testing.assert_allclose(logs[name], swapped[name][::-1], atol=1e-4)


def test_large_actors_are_seen_by_short_images(logs):
    exact, short = logs[3], jax.jit(lambda: watch(CIRCLE, jnp.array(MIXED), Instrument(8, 2, 2999), LARGE))()
    for name in LOGS:
        np.testing.assert_allclose(short[name], exact[name], atol=0.1)
    assert any(not np.array_equal(short[name], exact[name]) for name in LOGS)
    images = jax.eval_shape(lambda key: Instrument().init(init_actors(key, SPEC, LARGE)), jax.random.key(0))
    assert images.history.points.size < 1 << 20


def test_what_cannot_be_measured():
    with pytest.raises(ValueError, match="history"):
        Instrument(history=3)
    with pytest.raises(ValueError, match="refresh"):
        Instrument(refresh=0)
