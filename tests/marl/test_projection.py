"""The projection inside training: only the actors' direction changes, one look an update, seeds do not meet."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from making import play, spec

from hpml.marl.algorithms.mappo import MAPPO
from hpml.marl.learner import Trainer
from hpml.marl.projection import ProjectionSettings, make_projection, projection_logs
from hpml.marl.settings import Settings

SPEC = spec(agents=2, actions=2)
SETTINGS = Settings(environments=4, rollout=4, hidden=4, passes=2)
KEYS = jax.random.split(jax.random.key(0), 2)
UPDATES = 5


def train(settings, keys=KEYS, training=SETTINGS):
    """The learners of some seeds after a few updates in one compiled loop, and their logs; the loop; its start."""
    trainer = Trainer(SPEC, MAPPO(), training, make_projection(settings, training, SPEC.agents))
    start = jax.jit(jax.vmap(trainer.init))(keys)
    rollout = play(trainer, jax.tree.map(lambda x: x[0], start.actors))

    def step(learner, _):
        learner, _ = trainer.update(learner, rollout)
        return learner, projection_logs(learner.projection)

    run = jax.jit(jax.vmap(lambda learner: jax.lax.scan(step, learner, None, UPDATES)))
    return run(start), run, start


@pytest.fixture(scope="module")
def plain():
    (learner, logs), *_ = train(ProjectionSettings())
    assert logs == {}
    return learner


@pytest.mark.parametrize(
    "settings",
    [
        ProjectionSettings("kernel", residual="extragradient", probes=2, history=4, refresh=2),
        ProjectionSettings("kernel", residual="adjust"),
    ],
    ids=["kernel, probes", "adjust"],
)
def test_only_the_actors_move_differently_and_seeds_do_not_meet(settings, plain):
    (learner, logs), run, start = train(settings)
    for a, b in zip(jax.tree.leaves(learner.critic), jax.tree.leaves(plain.critic), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    gap = max(
        float(jnp.abs(a - b).max())
        for a, b in zip(jax.tree.leaves(learner.actors), jax.tree.leaves(plain.actors), strict=True)
    )
    assert gap > 1e-6
    assert all(np.isfinite(value).all() and value.shape == (2, UPDATES) for value in logs.values())
    assert (logs["projection_angle"][:, -1] > 0).all()
    assert (logs["projection_identifiable"][:, -1] > 0.1).all()
    swapped, _ = run(jax.tree.map(lambda x: x[::-1], start))
    for a, b in zip(jax.tree.leaves(learner.actors), jax.tree.leaves(swapped.actors), strict=True):
        np.testing.assert_allclose(a, b[::-1], atol=1e-5)
    assert run._cache_size() == 1


def test_one_step_an_update_looks_every_time():
    (learner, _), *_ = train(ProjectionSettings("graph", history=4, refresh=2), training=replace(SETTINGS, passes=1))
    assert learner.projection.change is None
    assert learner.projection.history.count.tolist() == [UPDATES] * len(KEYS)


@pytest.mark.parametrize("kind", ["none", "graph"])
def test_an_update_writes_every_part_of_a_learner_where_it_was(kind):
    """A part that an update does not use would be left out, and all behind it would be copied from place to place."""
    trainer = Trainer(SPEC, MAPPO(), SETTINGS, make_projection(ProjectionSettings(kind, history=4), SETTINGS, 2))
    learner = trainer.init(KEYS[0])
    rollout = play(trainer, learner.actors)
    text = jax.jit(trainer.update, donate_argnums=0).lower(learner, rollout).compile().as_text()
    pairs = re.findall(r"\{(\d+)\}: \((\d+), \{\}", text.split("\n", 1)[0])
    big = [i for i, leaf in enumerate(jax.tree.leaves(learner)) if leaf.size > 4]
    assert {(str(i), str(i)) for i in big} <= set(pairs)


def game(x):
    """Gradients of the losses of a bilinear game with a bowl."""
    return {"one": 0.1 * x["one"] + x["two"], "two": 0.1 * x["two"] - x["one"]}


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("kind", ["graph", "neural", "kernel"])
def test_every_kind_runs_under_scan(kind, preset):
    if kind == "kernel" and preset == "paper":
        with pytest.raises(ValueError, match="kernel"):
            ProjectionSettings(kind, preset)
        return
    transformation = make_projection(ProjectionSettings(kind, preset, history=4, refresh=2), SETTINGS, 2)
    start = {"one": jnp.ones(2), "two": jnp.ones(2)}

    def step(now, _):
        x, state = now
        halves = (game(x), game(x))
        update, state = transformation.update(game(x), state, x, field_fn=game, halves=halves)
        return (jax.tree.map(lambda p, g: p - 0.1 * g, x, update), state), None

    (x, state), _ = jax.jit(lambda x: jax.lax.scan(step, (x, transformation.init(x)), None, 20))(start)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(x))
    # Two passes an update: 20 steps are 10 looks.
    assert state.history.count == 10
    assert state.diagnostics.refreshes == {"graph": 1, "neural": 10}[kind] if preset == "paper" else 5
    assert state.diagnostics.noise == 0.0


@pytest.mark.parametrize("bad", [{"strength": -1.0}, {"lookahead": 0.0}])
def test_bad_settings_are_named(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=name):
        ProjectionSettings(**bad)
