"""Every algorithm keeps one list of truths. They are found by listing their folder, so a new file is tested too."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marl.making import play, quick, spec

from hpml.experiment.build import algorithm, algorithm_names
from hpml.marl.env import Spec
from hpml.marl.learner import Trainer
from hpml.marl.networks import count_parameters, init_actors, init_critic
from hpml.marl.rollout import cut
from hpml.marl.settings import Settings

TINY = {"hidden": 8, "sprites": 4, "rollout": 8, "chunk": 2, "passes": 2, "actor_rate": 1e-2}
# Together: pictures and numbers alone, memory and none, one environment and two, masks, one minibatch and two, sharing.
SETUPS = {
    "numbers, two minibatches": (spec(masked=True), Settings(**TINY, environments=2, minibatch=24)),
    "pictures, memory, one environment": (spec(image=True, masked=True), Settings(**TINY, environments=1, memory=3)),
    "shared, scaled rewards": (
        spec(),
        Settings(**TINY, environments=2, share=True, normalise_rewards=True, reward_scale=0.1),
    ),
}
PLAIN = next(iter(SETUPS))
ALGORITHMS = {name: algorithm(name) for name in algorithm_names()}
SIMULTANEOUS = [name for name, each in ALGORITHMS.items() if not each.sequential]
RUNS = [(name, setup) for name in ALGORITHMS for setup in SETUPS if name in SIMULTANEOUS or not SETUPS[setup][1].share]
SEEDS = (3, 4)


def pick(tree, seed):
    """One seed's part, without compiling anything."""
    keys = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)  # noqa: E731
    return jax.tree.map(lambda x: x[seed] if keys(x) else np.asarray(x)[seed], tree)


@functools.cache
def first(setup, central, counterfactual):
    """Learners of two seeds before any update: of an algorithm, they depend on the kind of critic only."""
    kinds = {(ALGORITHMS[name].central, ALGORITHMS[name].counterfactual): name for name in SIMULTANEOUS}
    trainer = Trainer(SETUPS[setup][0], ALGORITHMS[kinds[central, counterfactual]], SETUPS[setup][1])
    return quick(jax.vmap(trainer.init))(jax.vmap(jax.random.key)(jnp.array(SEEDS)))


@functools.cache
def rollouts(setup):
    """What the first actors of both seeds played; they are the same for all algorithms."""
    learner = first(setup, False, False)
    trainer = Trainer(SETUPS[setup][0], ALGORITHMS["ippo"], SETUPS[setup][1])
    seeds = [play(trainer, pick(learner.actors, k), seed) for k, seed in enumerate(SEEDS)]
    return jax.tree.map(lambda *x: np.stack([np.asarray(each) for each in x]), *seeds)


def with_rewards(played, rewards):
    return eqx.tree_at(lambda r: r.rewards, played, rewards)


@functools.cache
def learning(name, setup):
    """The first learners, and the compiled update: of both seeds in the first setup, of one in the others."""
    found = ALGORITHMS[name]
    trainer = Trainer(SETUPS[setup][0], found, SETUPS[setup][1])
    learner = first(setup, found.central, found.counterfactual)
    if setup == PLAIN:
        return learner, rollouts(setup), quick(jax.vmap(trainer.update)), trainer
    return pick(learner, 0), pick(rollouts(setup), 0), quick(trainer.update), trainer


def changes(before, after):
    """How far each parameter moved."""
    leaves = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return [np.abs(np.asarray(x) - np.asarray(y)) for x, y in leaves]


@pytest.mark.parametrize(("name", "setup"), RUNS)
def test_every_layer_learns_and_all_numbers_are_finite(name, setup):
    learner, played, update, trainer = learning(name, setup)
    after, report = update(learner, played)
    assert np.asarray(report.finite).all()
    assert np.isfinite(np.concatenate([np.ravel(x) for x in jax.tree.leaves(report.logs)])).all()
    lead = (len(SEEDS),) if setup == PLAIN else ()
    agents = (*lead, trainer.spec.agents)
    for part in ("gain", "entropy", "divergence", "clipped", "explained"):
        assert report.logs[part].shape == agents
    assert all((x.reshape(*agents, -1).max(-1) > 0).all() for x in changes(learner.critic, after.critic))
    own = (*lead, 1) if trainer.settings.share else agents
    assert all((x.reshape(*own, -1).max(-1) > 0).all() for x in changes(learner.actors, after.actors))
    assert (np.asarray(after.updates) == 1).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_seed_learns_the_same_beside_any_other(name):
    learner, played, update, _ = learning(name, PLAIN)
    turned = lambda tree: jax.tree.map(lambda x: x[::-1], tree)  # noqa: E731
    changed = eqx.tree_at(lambda x: x.critic.head.weight, turned(learner), replace_fn=lambda x: x.at[0].multiply(-1.0))
    after, _ = update(learner, played)
    beside, _ = update(changed, turned(played))
    assert max(x.max() for x in changes(pick(after.actors, 0), pick(beside.actors, 1))) < 1e-6
    assert max(x.max() for x in changes(pick(after.actors, 1), pick(beside.actors, 0))) > 1e-4


@pytest.mark.parametrize("name", ["happo"])
def test_a_seed_alone_learns_what_it_learns_beside_another(name):
    learner, played, update, trainer = learning(name, PLAIN)
    single, alone = quick(trainer.update), pick(learner, 1)
    for _ in range(2):
        learner, _ = update(learner, played)
        alone, _ = single(alone, pick(played, 1))
    beside = pick((learner.actors, learner.critic, learner.values), 1)
    assert max(x.max() for x in changes(beside, (alone.actors, alone.critic, alone.values))) < 1e-4


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_reward_that_is_no_number_is_told(name):
    learner, played, update, _ = learning(name, PLAIN)
    broken = played.rewards.copy()
    broken[0, 2, 1, 0] = np.nan
    _, report = update(learner, with_rewards(played, broken))
    assert np.asarray(report.finite).tolist() == [False, True]


@pytest.mark.parametrize("name", SIMULTANEOUS)
def test_an_agent_learns_from_its_own_rewards(name):
    learner, played, update, _ = learning(name, PLAIN)
    others = with_rewards(played, played.rewards * np.array([1.0, -2.0, -2.0], np.float32))
    after, _ = update(learner, played)
    changed, _ = update(learner, others)
    gaps = changes(after.actors, changed.actors)
    assert max(gap[:, 0].max() for gap in gaps) == 0
    if name != "coma":  # its advantages are what the critic thinks, and that has not learnt yet
        assert max(gap[:, 1:].max() for gap in gaps) > 1e-3


@functools.cache
def slopes(name):
    """The stacked gradients of the first seed, compiled; a plain step where one agent has to be moved."""
    settings = SETUPS[PLAIN][1]

    def run(actors, batch):
        move = lambda i, slope: jax.tree.map(lambda x, g: x[i] - 0.1 * g, actors, slope)  # noqa: E731
        return ALGORITHMS[name].gradients(actors, batch, settings, move, jax.random.key(0))[0]

    return quick(run)


@functools.cache
def batch():
    """The first seed's samples, with its rewards for advantages."""
    spec, settings = SETUPS[PLAIN]
    trainer = Trainer(spec, ALGORITHMS["ippo"], settings)
    played = pick(rollouts(PLAIN), 0)
    run = quick(lambda played: (trainer._batch(played)[0], cut(played.rewards, settings)))
    made, rewards = run(played)
    return jax.tree.map(np.asarray, eqx.tree_at(lambda b: b.advantages, made, rewards))


def actors():
    return pick(first(PLAIN, False, False).actors, 0)


@pytest.mark.parametrize("name", SIMULTANEOUS)
def test_an_agents_gradient_does_not_depend_on_the_others_parameters(name):
    moved = jax.tree.map(
        lambda x: x + 0.3 * (np.arange(3) > 0).reshape(3, *[1] * (x.ndim - 1)).astype(x.dtype), actors()
    )
    gaps = changes(slopes(name)(actors(), batch()), slopes(name)(moved, batch()))
    assert max(gap[:, 0].max() for gap in gaps) == 0
    assert max(gap[:, 1:].max() for gap in gaps) > 1e-3


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_mean_of_the_halves_is_the_gradient_of_the_whole_batch(name):
    whole = jax.tree.map(lambda x: np.stack([np.concatenate([x[0], x[1]], 1)] * 2), batch())
    halves, both = slopes(name)(actors(), batch()), slopes(name)(actors(), whole)
    for x, y in zip(jax.tree.leaves(halves), jax.tree.leaves(both), strict=True):
        np.testing.assert_allclose(np.asarray(x).mean(0), np.asarray(y)[0], rtol=1e-4, atol=1e-6)
    # halves tell noise apart only where they differ
    assert all((np.abs(np.asarray(x)[0] - np.asarray(x)[1])).max() > 1e-4 for x in jax.tree.leaves(halves))


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in SIMULTANEOUS])
def test_agents_who_take_turns_do_not_share_an_actor(name):
    with pytest.raises(ValueError, match="leave share off"):
        Trainer(spec(), ALGORITHMS[name], Settings(**TINY, share=True))


@pytest.mark.parametrize(
    "place", [Spec("bos", 2, 8, (40, 40, 3), vector=4), Spec("clean", 7, 9, (88, 88, 3), vector=1)]
)
def test_all_algorithms_have_as_many_parameters(place):
    settings, key = Settings(), jax.random.key(0)
    actors = jax.eval_shape(lambda: init_actors(key, place, settings))
    kinds = {name: (a.central, a.counterfactual) for name, a in ALGORITHMS.items()}
    critics = {
        name: count_parameters(jax.eval_shape(lambda kind=kind: init_critic(key, place, settings, *kind)))
        for name, kind in kinds.items()
    }
    # Equal to the last number, but for the values of all actions where the critic is counterfactual.
    plain = {critics[name] for name, (_, counterfactual) in kinds.items() if not counterfactual}
    assert len(plain) == 1
    total = count_parameters(actors) + plain.pop()
    assert all(abs(count_parameters(actors) + size - total) < 0.04 * total for size in critics.values())
