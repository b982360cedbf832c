"""The substrates of Melting Pot, played by the engine itself.

Rewards are each player's own, in the engine's units. An engine plays one episode: the state is that engine, and the key
is the episode's seed. Same seed, same actions: same frames, in any process.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar

import numpy as np

from hpml.marl.engine import package
from hpml.marl.engine.engine import Engine
from hpml.marl.engine.substrate import INTERACTION, VECTORS, Substrate, load
from hpml.marl.env import Env, Observation, Spec, Step

SHORT = {
    "bos_repeated": "bach_or_stravinsky_in_the_matrix__repeated",
    "pure_coordination_repeated": "pure_coordination_in_the_matrix__repeated",
    "rationalizable_coordination_repeated": "rationalizable_coordination_in_the_matrix__repeated",
    "stag_hunt_repeated": "stag_hunt_in_the_matrix__repeated",
    "prisoners_dilemma_repeated": "prisoners_dilemma_in_the_matrix__repeated",
    "collaborative_cooking_circuit": "collaborative_cooking__circuit",
    "collaborative_cooking_crowded": "collaborative_cooking__crowded",
    "collaborative_cooking_figure_eight": "collaborative_cooking__figure_eight",
    "commons_harvest_partnership": "commons_harvest__partnership",
    "clean_up": "clean_up",
}
PICTURES = {"rgb": "RGB", "layers": "LAYER"}


@dataclass(frozen=True)
class MeltingPot(Env):
    """A substrate as an environment that lives in a worker process.

    `advance` and `skip` are `step` without new arrays: what they see goes where the caller says, or nowhere.
    """

    compiled: ClassVar[bool] = False
    spec: Spec
    substrate: Substrate = field(repr=False)
    picture: str = "RGB"

    def reset(self, key: Any) -> tuple[Engine, Observation]:
        """A new engine for the episode of the seed `key`, and what its players see first."""
        engine, (seen, rewards, convention) = Engine(self.substrate, int(key), self.picture), self._blank()
        self._look(engine, seen, rewards, convention)
        return engine, seen

    def step(self, state: Engine, actions: Any, key: Any = None) -> tuple[Engine, Step]:
        """Everybody acts once; the engine moves on and is the state again."""
        acts = self._checked(actions)
        if state.done:
            raise ValueError(f"the episode of {self.spec.name} is over: reset begins the next one.")
        seen, rewards, convention = self._blank()
        done = self.advance(state, acts, seen, rewards, convention)
        return state, Step(seen, rewards, np.bool_(done), convention)

    def advance(self, state: Engine, actions: Any, seen: Observation, rewards: Any, convention: Any) -> bool:
        """`step`, with its results written into these arrays; whether the episode is over. Actions are not checked."""
        done = state.advance(actions)
        self._look(state, seen, rewards, convention)
        return done

    def skip(self, state: Engine, actions: Any) -> bool:
        """`step` with nobody looking."""
        return state.advance(actions)

    def _look(self, engine: Engine, seen: Observation, rewards: Any, convention: Any) -> None:
        engine.pictures(seen.image, None if self.picture == "RGB" else self._bits)
        engine.numbers(seen.vector, rewards, convention)

    def _bits(self, layers: np.ndarray) -> np.ndarray:
        """The sprite of each layer as bits: as many channels for every layer, 0 or 255."""
        assert self.spec.image is not None
        height, width, channels = self.spec.image
        places = np.arange(channels // layers.shape[-1], dtype=layers.dtype)
        on = (layers[..., None] >> places & 1).astype(np.uint8) * np.uint8(255)
        return on.reshape(height, width, channels)

    def _blank(self) -> tuple[Observation, np.ndarray, np.ndarray]:
        """Arrays for what is seen, for rewards and for conventions."""
        assert self.spec.image is not None
        agents, vector = self.spec.agents, self.spec.vector
        image = np.zeros((agents, *self.spec.image), np.uint8)
        seen = Observation(image=image, vector=np.zeros((agents, vector), np.float32))
        return seen, np.zeros(agents, np.float32), np.full(agents, -1, np.int32)

    def _checked(self, actions: Any) -> np.ndarray:
        acts, spec = np.asarray(actions), self.spec
        if acts.shape != (spec.agents,):
            raise ValueError(
                f"{spec.name} has {spec.agents} agents and takes one action of each, got the shape {acts.shape}."
            )
        if acts.dtype.kind not in "iu" or acts.min() < 0 or acts.max() >= spec.actions:
            raise ValueError(
                f"the actions of {spec.name} are the integers 0 to {spec.actions - 1}, got {acts.tolist()}."
            )
        return acts


def names() -> tuple[str, ...]:
    """The substrates of the installed package; those of the paper where it is not installed."""
    return tuple(sorted(SHORT.values())) if package.missing() else package.substrates()


def make(name: str, observation: str = "rgb", players: int | Sequence[str] | None = None) -> MeltingPot:
    """The substrate of that name, or of the paper's short name.

    - `observation`: "rgb", the engine's drawing in squares of 8 x 8 pixels, or "layers", one cell a square and the
      sprite on each layer as bits.
    - `players`: how many of the substrate's default players play, or a role for each; all of the defaults if None.
    """
    if sentence := package.missing():
        raise ValueError(sentence)
    real = SHORT.get(name, name)
    if real not in package.substrates():
        near = get_close_matches(name, sorted({*package.substrates(), *SHORT}), n=3, cutoff=0.5)
        raise ValueError(f"there is no substrate {name!r}" + (f": did you mean {' or '.join(near)}?" if near else "."))
    if observation not in PICTURES:
        raise ValueError(f"observation must be 'rgb' or 'layers', got {observation!r}.")
    substrate = load(real, players)
    held = substrate.shape(INTERACTION)
    return MeltingPot(
        Spec(
            name=f"meltingpot/{real}",
            agents=len(substrate.roles),
            actions=len(substrate.actions),
            image=_image(substrate, observation),
            patch=8 if observation == "rgb" else 1,
            vector=sum(_size(substrate.shape(each)) for each in VECTORS),
            horizon=int(substrate.settings(1)["maxEpisodeLengthFrames"]),
            conventions=held[-1] if held else 0,
            action_names=tuple(_action_name(each) for each in substrate.actions),
        ),
        substrate,
        PICTURES[observation],
    )


def _image(substrate: Substrate, observation: str) -> tuple[int, int, int]:
    if observation == "rgb":
        height, width, channels = substrate.shape("RGB") or (0, 0, 0)
        return height, width, channels
    engine = Engine(substrate, 1, PICTURES[observation])
    height, width, layers = engine.layers
    return height, width, layers * engine.sprites.bit_length()


def _size(shape: tuple[int, ...] | None) -> int:
    return 0 if shape is None else int(np.prod(shape))


def _action_name(action: dict[str, int]) -> str:
    """The parts of an action that differ from doing nothing."""
    return " ".join(f"{part}={value}" for part, value in action.items() if value) or "noop"
