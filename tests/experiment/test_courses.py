"""Both kinds of courses: what they play, what they learn, and that seeds, workers and restarts change nothing."""

import os
import signal
from functools import cache

import jax
import numpy as np
import pytest
from experiment.counting import Counting

from hpml.experiment.build import algorithm
from hpml.experiment.checkpoint import load_checkpoint, save_checkpoint
from hpml.experiment.compiled import CompiledCourse
from hpml.experiment.hosted import HostedCourse
from hpml.experiment.turns import Turns
from hpml.marl.find import environment
from hpml.marl.learner import Trainer
from hpml.marl.projection import ProjectionSettings, make_projection
from hpml.marl.settings import Settings

# One set of settings for all, so that little is compiled; a memory, so that there is one to lose.
SETTINGS = Settings(
    environments=4,
    rollout=8,
    hidden=16,
    passes=2,
    actor_rate=1e-2,
    critic_rate=1e-2,
    memory=8,
    chunk=4,
    reward_scale=0.1,
)
PLACE = ("experiment.counting", "counting", {})


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Compiling is most of the time, and what is compiled need not be fast here."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@cache
def trainer(whole):
    """One for all courses: what it compiles for some seeds, it compiles once."""
    projection = (
        make_projection(ProjectionSettings("graph", "paper"), SETTINGS, Counting.spec.agents) if whole else None
    )
    return Trainer(Counting.spec, algorithm("ippo"), SETTINGS, projection)


def hosted(seeds=(3, 4), workers=2, whole=False):
    """A course; a whole one measures and projects as well."""
    return HostedCourse(trainer(whole), Counting(), PLACE, seeds, workers, measure=whole)


def compiled(measure):
    env = environment("matrix/stag_hunt:horizon=3")
    return CompiledCourse(Trainer(env.spec, algorithm("ippo"), SETTINGS), env, (3,), measure)


def timeless(leg):
    """The rows without times, every bit of every number."""
    return [[{k: repr(v) for k, v in row.items() if "seconds" not in k} for row in seeds] for seeds in leg.rows]


def bits(tree):
    def plain(x):
        key = jax.dtypes.issubdtype(getattr(x, "dtype", int), jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(x) if key else x).tobytes()

    return [plain(leaf) for leaf in jax.tree.leaves(tree)]


def test_agents_learn_to_count_and_returns_are_in_the_environments_units():
    course = hosted()
    before = np.concatenate([played.returns for played in course.evaluate(0, 8)])
    rows = [seeds for _ in range(40) for seeds in course.advance(1).rows]
    after = course.evaluate(40, 8)
    course.close()
    assert before.mean() < 3.0  # a third of 4 to 6 steps
    assert max(row["return"] for seeds in rows for row in seeds if row["episodes"]) <= 6.0
    for place, played in enumerate(after):
        # The best return is the length of the episode; nobody can get more.
        assert (played.returns <= played.lengths[:, None]).all()
        assert played.returns.mean() > 0.9 * played.lengths.mean()
        assert set(played.lengths.tolist()) <= {4, 5, 6}
        assert (played.conventions[-1][played.lengths < len(played.conventions)] == -1).all()
        # Each step of each episode counts once, whichever rollout it was in: none are lost between updates.
        last = [seeds[place] for seeds in rows[-5:] if seeds[place]["episodes"]]
        assert all(row["return"] > 3.0 for row in last)


def test_environments_in_workers_go_on_where_the_checkpoint_was_taken(tmp_path):
    """With other workers, and with an evaluation in only one of the two."""
    whole, other = hosted(), hosted(workers=1)
    whole.advance(2)
    save_checkpoint(tmp_path, 2, whole.tree())
    found = load_checkpoint(tmp_path, other.template())
    other.restore(found.tree)
    whole.evaluate(2, 8)
    assert timeless(whole.advance(2)) == timeless(other.advance(2))
    assert bits(whole.tree()) == bits(other.tree())
    for course in (whole, other):
        course.close()


def test_measuring_changes_nothing():
    measured, plain = compiled(True), compiled(False)
    rows, expected = measured.advance(3).rows, timeless(plain.advance(3))
    assert {"nonpot", "nonpot_held_out", "residual_clean", "identifiable"} <= rows[-1][0].keys()
    for row, (other,) in zip(rows, expected, strict=True):
        assert {name: repr(row[0][name]) for name in other} == other
    for part in ("learner", "worlds"):
        assert bits(measured.tree()[part]) == bits(plain.tree()[part])


def test_a_seed_alone_is_the_same_seed_in_a_batch():
    batch, alone = hosted((3, 4)), hosted((4,))
    together, single = batch.advance(2), alone.advance(2)
    for rows, (row,) in zip(together.rows, single.rows, strict=True):
        for name, value in row.items():
            if "seconds" not in name:
                assert rows[1][name] == pytest.approx(value, rel=1e-3, abs=1e-5, nan_ok=True), name
    for x, y in zip(batch.evaluate(2, 8)[1], alone.evaluate(2, 8)[0], strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    for course in (batch, alone):
        course.close()


def turns(workers=2, whole=False):
    return Turns([hosted((3, 4), workers, whole), hosted((5,), workers, whole)])


def test_groups_that_take_turns_are_each_alone_to_the_last_bit():
    groups, alone = turns(), [hosted((3, 4)), hosted((5,))]
    found, expected = timeless(groups.advance(3)), [timeless(course.advance(3)) for course in alone]
    assert found == [[*first, *second] for first, second in zip(*expected, strict=True)]
    assert groups.advance(1).finite.shape == (1, 3)
    for played, other in zip(groups.evaluate(4, 2), [*alone[0].evaluate(4, 2), *alone[1].evaluate(4, 2)], strict=True):
        assert played.returns.shape == other.returns.shape
    for course in (groups, *alone):
        course.close()


def test_groups_that_take_turns_go_on_where_the_checkpoint_was_taken(tmp_path):
    """They are at play when it is taken, and a worker dies."""
    whole, other = turns(whole=True), turns(workers=1, whole=True)
    whole.advance(2)
    os.kill(whole._groups[0].pool.processes()[0], signal.SIGKILL)
    save_checkpoint(tmp_path, 2, whole.tree())
    other.restore(load_checkpoint(tmp_path, other.template()).tree)
    found, expected = (course.advance(2) for course in (whole, other))
    # In the first of the two updates, or in the second where it had played its part already.
    assert sum(seeds[0].pop("workers_replaced") for seeds in found.rows) == 1.0
    for seeds in [*found.rows, *expected.rows]:
        for row in seeds:
            row.pop("workers_replaced", None)
    assert timeless(found) == timeless(expected)
    assert bits(whole.tree()) == bits(other.tree())
    for course in (whole, other):
        course.close()


def test_a_course_without_groups_goes_on_with_what_groups_have_saved(tmp_path):
    groups, single = turns(), hosted((3, 4, 5))
    groups.advance(2)
    save_checkpoint(tmp_path, 2, groups.tree())
    single.restore(load_checkpoint(tmp_path, single.template()).tree)
    for rows, others in zip(groups.advance(2).rows, single.advance(2).rows, strict=True):
        for row, same in zip(rows, others, strict=True):
            assert row["episodes"] == same["episodes"]
    for course in (groups, single):
        course.close()


def test_a_worker_that_dies_is_replaced_and_counted_and_changes_nothing():
    whole, broken = hosted(), hosted()
    assert timeless(whole.advance(1)) == timeless(broken.advance(1))
    os.kill(broken.pool.processes()[0], signal.SIGKILL)
    expected, found = timeless(whole.advance(1)), timeless(broken.advance(1))
    for row, other in zip(expected[0], found[0], strict=True):
        assert (row.pop("workers_replaced"), other.pop("workers_replaced")) == ("0.0", "1.0")
    assert expected == found
    for course in (whole, broken):
        course.close()
