"""The pool: the right numbers in the right places, whoever plays them, also after a kill and after a resume."""

import os
import select
import signal
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marl import counting

from hpml.marl.collect.hosted import parameters
from hpml.marl.collect.native import NativePlayer
from hpml.marl.collect.player import Player, Turn, log_probs
from hpml.marl.collect.pool import STUBBORN, Pool
from hpml.marl.collect.wire import episode_seed
from hpml.marl.engine import package
from hpml.marl.env import Observation
from hpml.marl.networks import init_actors
from hpml.marl.settings import Settings
from hpml.native.play import library

SEEDS, ENVIRONMENTS, STEPS = (3, 11), 3, 9
needs_engine = pytest.mark.skipif(bool(package.missing()), reason="no engine for this platform")


def open_pool(family=counting.__name__, name="counting", options=None, **changes):
    settings = {"seeds": SEEDS, "environments": ENVIRONMENTS, "steps": STEPS, "workers": 2} | changes
    return Pool(family, name, options, **settings)


def actions_of(pool, rollout):
    """Everybody's actions: each slot's own, whatever else is played."""
    shape = (pool.steps, pool.spec.agents)
    draws = [
        np.random.default_rng([rollout, slot]).integers(pool.spec.actions, size=shape) for slot in range(pool.slots)
    ]
    return np.stack(draws, axis=1)


def play(pool, rollout=0):
    """A rollout with given actions; copies of what was played."""
    pool.follow(actions_of(pool, rollout))
    played = {name: array.copy() for name, array in pool.arrays.items()}
    pool.carry()
    return played


def kill_at(pool, worker, told):
    """End a worker: before it is told to play, or when it has just been told and cannot have answered yet."""
    process = pool._workers[worker].process
    if told == "before":
        process.kill()
        process.wait()
        return
    process.send_signal(signal.SIGSTOP)  # so that the command finds it alive, and its answer never comes
    tell = pool._workers[worker].tell

    def tell_and_kill(*command):
        pool._workers[worker].tell = tell
        tell(*command)
        process.kill()
        process.wait()

    pool._workers[worker].tell = tell_and_kill


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert np.array_equal(one[name], other[name]), name


def test_every_number_is_where_it_belongs():
    env = counting.make("counting")
    with open_pool() as pool:
        rollouts = [play(pool, 0), play(pool, 1)]
        chosen = np.concatenate([actions_of(pool, 0), actions_of(pool, 1)])
        assert not pool.workers_import_jax
    for slot in range(len(SEEDS) * ENVIRONMENTS):
        seed, environment = SEEDS[slot // ENVIRONMENTS], slot % ENVIRONMENTS
        episode, played = 0, []
        state, seen = env.reset(episode_seed(seed, 0, environment, episode))
        for actions in chosen[:, slot]:
            state, step = env.step(state, actions)
            before, seen = seen, step.observation
            if step.done:
                episode += 1
                state, seen = env.reset(episode_seed(seed, 0, environment, episode))
            played.append((before, step, seen))
        for time, (before, step, after) in enumerate(played):
            arrays, t = rollouts[time // STEPS], time % STEPS
            for name in ("vector", "image", "mask"):
                assert np.array_equal(arrays[name][t, slot], getattr(before, name))
                assert np.array_equal(arrays[name][t + 1, slot], getattr(after, name))
            assert np.array_equal(arrays["rewards"][t, slot], step.rewards)
            assert np.array_equal(arrays["convention"][t, slot], step.convention)
            assert arrays["done"][t, slot] == step.done


def test_a_slot_plays_the_same_beside_other_seeds():
    with open_pool() as pool:
        both = play(pool)
    with open_pool(seeds=SEEDS[:1]) as pool:
        alone = play(pool)
    same(alone, {name: array[:, :ENVIRONMENTS] for name, array in both.items()})


def test_another_stream_plays_other_episodes():
    with open_pool() as pool, open_pool(stream=1) as other:
        assert not np.array_equal(play(pool)["image"], play(other)["image"])


def test_a_slot_rests_after_its_episodes():
    with open_pool() as pool:
        endless = play(pool)
    with open_pool(episodes=1) as pool:
        once = play(pool)
        assert pool.state()["episode"].tolist() == [1] * pool.slots
    ends = endless["done"].argmax(0)
    for slot, end in enumerate(ends):
        for name in ("rewards", "done", "convention", "vector"):
            assert np.array_equal(once[name][: end + 1, slot], endless[name][: end + 1, slot])
        assert once["done"][end:, slot].all()
        assert not once["rewards"][end + 1 :, slot].any()
        assert (once["convention"][end + 1 :, slot] == -1).all()


def test_an_error_in_a_worker_is_a_sentence():
    with open_pool(options={"fails": 2}) as pool, pytest.raises(RuntimeError, match=r"counting failed .*got tired\.$"):
        play(pool)


def test_a_worker_that_always_dies_is_given_up():
    with open_pool(options={"dies": 2}) as pool:
        with pytest.raises(RuntimeError, match="times in a row"):
            play(pool)
        assert pool.replaced == STUBBORN


@pytest.mark.parametrize("told", ["before", "after"])
def test_a_killed_worker_is_replaced_with_nothing_changed(told):
    with open_pool() as pool:
        whole = [play(pool, rollout) for rollout in range(3)]
    with open_pool() as pool:
        same(whole[0], play(pool, 0))
        kill_at(pool, 1, told)
        same(whole[1], play(pool, 1))
        same(whole[2], play(pool, 2))
        assert pool.replaced == 1


def test_a_worker_whose_substitute_dies_too_plays_once(tmp_path):
    with open_pool() as pool:
        whole = play(pool)
    trap = tmp_path / "trap"
    with open_pool(options={"trap": str(trap)}) as pool:
        trap.touch()
        kill_at(pool, 1, "after")
        same(whole, play(pool, 0))
        assert pool.replaced == 2
        assert not trap.exists()


def policy_of(spec, seeds, memory=0):
    """Parameters of a tiny policy for each seed."""
    settings = Settings(hidden=8, sprites=4, memory=memory)
    actors = [init_actors(jax.random.key(seed), spec, settings) for seed in seeds]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *actors)
    return {name: np.asarray(array) for name, array in parameters(stacked).items()}


def shapes_of(spec, memory=0):
    return {name: array.shape for name, array in policy_of(spec, SEEDS, memory).items()}


@pytest.mark.parametrize("memory", [0, 6])
def test_what_was_played_is_what_the_policy_does(memory):
    spec = counting.make("counting").spec
    policy = policy_of(spec, SEEDS, memory)
    draws = np.random.default_rng(4).random((STEPS, len(SEEDS) * ENVIRONMENTS, spec.agents), np.float32)
    shapes = {name: array.shape for name, array in policy.items()}
    rollouts = []
    for workers in (1, 4):
        with open_pool(workers=workers, policy=shapes, memory=memory) as pool:
            pool.play(policy, draws)
            pool.carry()
            pool.play(policy, draws[::-1])
            rollouts.append({name: array.copy() for name, array in pool.arrays.items()})
    same(*rollouts)
    played = rollouts[0]
    for slot in range(len(SEEDS) * ENVIRONMENTS):
        player = NativePlayer(spec, False, library()) if library() else Player(spec, False)
        player.load({name: array[slot // ENVIRONMENTS] for name, array in policy.items()})
        for t in range(STEPS):
            alone = slice(slot, slot + 1)
            seen = Observation(*(played[name][t, alone] for name in ("vector", "image", "mask")))
            known = played["memory"][t, alone] if memory else None
            actions, logits = np.zeros((1, spec.agents), np.int32), np.zeros((1, spec.agents, spec.actions), np.float32)
            after = None if known is None else np.empty_like(known)
            player.act(player.prepare(Turn(seen, known, draws[::-1][t, alone], actions, logits, after)))
            assert np.array_equal(played["actions"][t, slot], actions[0])
            assert np.array_equal(played["log_probs"][t, slot], log_probs(logits, actions)[0])
            if memory:
                expected = np.zeros_like(after[0]) if played["done"][t, slot] else after[0]
                assert np.array_equal(played["memory"][t + 1, slot], expected)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda pool: pool.follow(np.zeros((STEPS, 6, 3), int)), "2 agents"),
        (lambda pool: pool.follow(np.full((STEPS, 6, 2), 5)), "0 to 4"),
        (lambda pool: pool.follow(np.zeros((STEPS + 1, 6, 2), int)), "9 steps"),
        (lambda pool: pool.play({}, np.zeros((STEPS, 6, 2))), "knows no policy"),
        (lambda pool: pool.finish(), "begin comes before finish"),
        (lambda pool: open_pool(state=pool.state(), environments=2), "go on with the seeds and environments"),
        (lambda pool: open_pool("matrix", "prisoners_dilemma"), "needs no workers"),
        (lambda pool: open_pool(seeds=()), "at least one seed"),
        (lambda pool: open_pool(policy=shapes_of(pool.spec, memory=6)), "needs its units"),
        (lambda pool: open_pool(policy=shapes_of(pool.spec), memory=6), "needs its units"),
    ],
)
def test_misuse_is_said(wrong, says):
    with open_pool(workers=1) as pool, pytest.raises(ValueError, match=says):
        wrong(pool)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for a stranger's end as Linux offers it")
def test_no_worker_outlives_its_parent():
    code = f"""
import sys
sys.path[:] = {sys.path!r}
from hpml.marl.collect.pool import Pool
pool = Pool({counting.__name__!r}, "counting", seeds=(1,), environments=2, steps=3, workers=2)
print(*pool.processes(), flush=True)
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ends = [os.pidfd_open(int(each)) for each in parent.stdout.readline().split()]
    assert len(ends) == 2
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    for end in ends:
        assert select.select([end], [], [], 60)[0]


@needs_engine
def test_the_engines_frames_do_not_depend_on_the_number_of_workers():
    rollouts = []
    for workers in (1, 2, 3):
        with open_pool("meltingpot", "bos_repeated", steps=20, workers=workers) as pool:
            rollouts.append(play(pool))
            assert not pool.workers_import_jax
    same(rollouts[0], rollouts[1])
    same(rollouts[0], rollouts[2])
    assert rollouts[0]["image"].std() > 0


@needs_engine
def test_the_engine_goes_on_after_a_resume_and_after_a_kill():
    settings = {"seeds": (5,), "environments": 2, "steps": 260}
    with open_pool("meltingpot", "collaborative_cooking_circuit", **settings) as pool:
        whole = [play(pool, rollout) for rollout in range(5)]
        assert pool.state()["episode"].tolist() == [1, 1]
    saved = None
    with open_pool("meltingpot", "collaborative_cooking_circuit", **settings) as pool:
        for rollout in range(3):
            play(pool, rollout)
        saved = pool.state()
    with open_pool("meltingpot", "collaborative_cooking_circuit", state=saved, **settings) as pool:
        assert np.array_equal(pool.arrays["image"][0], whole[3]["image"][0])

        kill_at(pool, 0, "after")
        same(whole[3], play(pool, 3))
        same(whole[4], play(pool, 4))
        assert pool.replaced == 1
