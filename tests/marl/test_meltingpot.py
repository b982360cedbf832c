"""The real engine: the paper's substrates start and step, and the same seed and actions give the same frames."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from hpml.marl.engine import install, package
from hpml.marl.envs import meltingpot

if package.missing():
    pytest.skip("no engine for this platform", allow_module_level=True)

import dmlab2d
from dmlab2d import runfiles_helper

STEPS = 25
BACH = "bach_or_stravinsky_in_the_matrix"
PLAY = """
import hashlib, json, sys
import numpy as np
from hpml.marl.envs import meltingpot

def play(name, seed, steps, after=None):
    env = meltingpot.make(name)
    if after is not None:
        env.reset(after)
    state, seen = env.reset(seed)
    digest, draw = hashlib.md5(), np.random.default_rng(0)
    for _ in range(steps):
        for part in (seen.image, seen.vector):
            digest.update(part.tobytes())
        state, step = env.step(state, draw.integers(env.spec.actions, size=env.spec.agents), None)
        digest.update(step.rewards.tobytes())
        seen = step.observation
    return digest.hexdigest()
"""
exec(PLAY)
play = globals()["play"]


def elsewhere(code: str, **environment: str) -> str:
    """What the code prints in a process of its own."""
    settings = os.environ | environment
    return subprocess.run([sys.executable, "-c", code], env=settings, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def other_process() -> dict:
    code = (
        PLAY
        + f"""
played = {{name: play(name, 3, {STEPS}) for name in meltingpot.SHORT}}
heavy = [name for name in ("jax", "chex", "tensorflow", "meltingpot") if name in sys.modules]
print(json.dumps([played, heavy]))
"""
    )
    played, heavy = json.loads(elsewhere(code, PYTHONHASHSEED="7").splitlines()[-1])
    return {"played": played, "heavy": heavy}


@pytest.mark.parametrize("name", meltingpot.SHORT)
def test_another_process_sees_the_same_frames_and_so_does_a_later_engine(name, other_process):
    """Engines after a process's first are built in another order."""
    assert play(name, 3, STEPS, after=9) == other_process["played"][name]


def test_nothing_heavy_is_imported(other_process):
    assert other_process["heavy"] == []


def test_another_seed_sees_others():
    assert play("bos_repeated", 4, 5) != play("bos_repeated", 5, 5)


@pytest.mark.parametrize("name", meltingpot.SHORT)
def test_observations_are_as_the_specification_says(name):
    env = meltingpot.make(name)
    spec = env.spec
    state, seen = env.reset(1)
    state, step = env.step(state, np.zeros(spec.agents, int), None)
    for each in (seen, step.observation):
        assert each.image.shape == (spec.agents, *spec.image)
        assert each.image.dtype == np.uint8
        assert each.image.std() > 0
        assert each.vector.shape == (spec.agents, spec.vector)
    assert spec.image[0] % spec.patch == spec.image[1] % spec.patch == 0
    assert step.rewards.shape == step.convention.shape == (spec.agents,)
    assert len(spec.action_names) == spec.actions
    assert not step.done


def test_names_are_those_of_the_package_with_the_papers_ten():
    assert set(meltingpot.SHORT.values()) <= set(meltingpot.names())
    files = {each.stem for each in (package.folder() / "configs" / "substrates").glob("*.py")}
    assert set(meltingpot.names()) <= files
    assert len(meltingpot.names()) > 40


@pytest.mark.parametrize(("name", "seed"), [("pure_coordination_repeated", 3), (f"{BACH}__arena", 0)])
def test_conventions_and_rewards_are_what_the_engine_reports_of_interactions(name, seed):
    env = meltingpot.make(name)
    agents, draw = env.spec.agents, np.random.default_rng(0)
    paid, owed, interactions = np.zeros(agents), np.zeros(agents), 0
    state, _ = env.reset(seed)
    for _ in range(300):
        actions = draw.choice(env.spec.actions, size=agents, p=np.array([0, 6, 1, 2, 2, 2, 2, 3]) / 18)
        state, step = env.step(state, actions, None)
        shown = np.full(agents, -1)
        for event, said in state._lab.events():
            if event == "interaction":
                told = dict(zip(said[1::2], said[2::2], strict=True))
                for side in ("row", "col"):
                    player = int(told[f"{side}_player_idx".encode()]) - 1
                    shown[player] = np.argmax(told[f"{side}_inventory".encode()])
                    owed[player] += told[f"{side}_reward".encode()]
                interactions += 1
        assert step.convention.tolist() == shown.tolist()
        paid += step.rewards
    assert interactions > 0
    # The engine pays some steps after the interaction.
    assert np.allclose(paid, owed)


def test_layers_spell_the_engines_sprites_in_bits():
    env = meltingpot.make("clean_up", observation="layers")
    state, seen = env.reset(1)
    assert env.spec.patch == 1
    assert set(np.unique(seen.image)) == {0, 255}
    for player in range(env.spec.agents):
        layers = state._lab.observation(f"{player + 1}.LAYER")
        bits = seen.image[player].reshape(*layers.shape, -1) // 255
        assert np.array_equal(bits @ (1 << np.arange(bits.shape[-1])), layers)


@pytest.mark.parametrize("name", ["clean_up", "collaborative_cooking_figure_eight"])
def test_our_level_draws_the_world_as_the_shipped_one_does(name):
    env = meltingpot.make(name)
    ours = env.substrate.settings(3)
    root, level = ours["hpmlRoot"], ours["hpmlLevel"]
    shipped = {key: value for key, value in ours.items() if not key.startswith("hpml")}
    shipped |= {"levelDirectory": root, "levelName": os.path.relpath(level, root)}
    cells = []
    for settings in (ours, shipped):
        lab = dmlab2d.Lab2d(runfiles_helper.find(), settings)
        lab.start(0, 3)
        world = lab.observation("WORLD.RGB")
        cells.append(world.reshape(world.shape[0] // 8, 8, world.shape[1] // 8, 8, 3).swapaxes(1, 2))
    # The shipped one places the players as it likes: each may be missing in one place and be found in another.
    assert (cells[0] != cells[1]).any((2, 3, 4)).sum() <= 2 * env.spec.agents
    assert len(np.unique(cells[0].reshape(-1, 192), axis=0)) > env.spec.agents


def test_fewer_players():
    env = meltingpot.make("clean_up", players=3)
    assert env.spec.agents == 3
    assert env.reset(1)[1].image.shape[0] == 3


def test_an_episode_ends_once():
    env = meltingpot.make("collaborative_cooking_circuit")
    state, _ = env.reset(1)
    still = np.zeros(2, int)
    ends = [env.skip(state, still) for _ in range(env.spec.horizon)]
    assert ends == [False] * (env.spec.horizon - 1) + [True]
    with pytest.raises(ValueError, match="is over"):
        env.step(state, still, None)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: meltingpot.make("cleen_up"), "did you mean clean_up"),
        (lambda: meltingpot.make("clean_up", players=9), "1 to 7 players"),
        (lambda: meltingpot.make("clean_up", players=["king"]), "no role 'king'"),
        (lambda: meltingpot.make("clean_up", observation="sound"), "'rgb' or 'layers'"),
    ],
)
def test_what_does_not_exist_is_said(wrong, says):
    with pytest.raises(ValueError, match=says):
        wrong()


def test_wrong_actions_are_said():
    env = meltingpot.make("bos_repeated")
    state, _ = env.reset(1)
    for actions, says in (([0], "2 agents"), ([0, 8], "0 to 7"), ([0.0, 1.0], "integers")):
        with pytest.raises(ValueError, match=says):
            env.step(state, actions, None)


def test_without_the_package_the_papers_names_are_known_and_making_says_how_to_install():
    code = """
from hpml.marl.engine import package
package._folder = lambda: None
from hpml.marl.envs import meltingpot
print(len(meltingpot.names()))
try:
    meltingpot.make("clean_up")
except ValueError as problem:
    print(problem)
"""
    count, sentence = elsewhere(code).splitlines()
    assert int(count) == 10
    assert package.INSTALL in sentence


def test_installing_again_does_nothing_and_a_failing_pip_is_a_sentence():
    assert install.installed()
    assert install.install() == ""
    assert "No matching distribution" in install._pip("install", "--no-index", "hpml-has-no-such-dependency")
