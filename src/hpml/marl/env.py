"""The contract that every environment keeps, compiled or not.

An environment is a frozen object with a `Spec`. `reset` and `step` take and return the state, so that the same lines
run both kinds:

- a compiled one (`compiled = True`) is pure JAX: keys are JAX keys, the state is a pytree, everything runs under jit;
- a hosted one (`compiled = False`) lives in a worker process: keys are integers, the state is a handle on the engine,
  arrays are NumPy's, and nothing of JAX is imported.

A family is one file in `envs/` with `names()`, `make(name, **options)` and `SHORT`, other names for some of its
environments. `environment` finds them by listing the folder.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

# The logit of an action that a mask forbids: its probability is 0 in float32, and no gradient is NaN.
FORBIDDEN = -1e9


@dataclass(frozen=True)
class Spec:
    """What an environment looks like from outside.

    - `agents`, `actions`: how many agents there are, and how many actions each of them has.
    - `image`: height, width and channels of each agent's picture in bytes, or None.
    - `patch`: the side of the squares that the picture is made of (8 for the engine's sprites).
    - `vector`: how many numbers each agent sees beside the picture.
    - `horizon`: the longest episode, in steps; 0 where there is no limit.
    - `masked`: whether observations say which actions are allowed.
    - `conventions`: how many conventions a player can show in an interaction, 0 where the notion is empty.
    """

    name: str
    agents: int
    actions: int
    image: tuple[int, int, int] | None = None
    patch: int = 8
    vector: int = 0
    horizon: int = 0
    masked: bool = False
    conventions: int = 0
    action_names: tuple[str, ...] = field(default=())


def patch_shape(spec: Spec) -> tuple[int, int]:
    """How many squares the picture has, and how many bytes a square."""
    assert spec.image is not None
    height, width, channels = spec.image
    side = spec.patch
    return -(-height // side) * -(-width // side), side * side * channels


class Observation(NamedTuple):
    """What the agents see.

    - `vector`: float32 (agents, numbers); always there, of width 0 where the environment gives no numbers.
    - `image`: uint8 (agents, height, width, channels), or None.
    - `mask`: bool (agents, actions), True where the action is allowed; None where every action always is.
    """

    vector: Any
    image: Any = None
    mask: Any = None


class Step(NamedTuple):
    """What a step gives.

    - `rewards`: float32 (agents,), each agent's own, in the environment's units.
    - `done`: whether the episode is over; the observation is then its last one.
    - `convention`: int32 (agents,), what each player showed where the step ended an interaction, else -1.
    """

    observation: Observation
    rewards: Any
    done: Any
    convention: Any


class Env(ABC):
    """An environment of several agents that act at once."""

    compiled: ClassVar[bool]
    spec: Spec

    @abstractmethod
    def reset(self, key: Any) -> tuple[Any, Observation]:
        """Begin an episode: its state and first observation. The same key gives the same episode."""

    @abstractmethod
    def step(self, state: Any, actions: Any, key: Any) -> tuple[Any, Step]:
        """Everybody acts once; `key` is None for hosted environments, whose seed is the episode's."""

    def close(self, state: Any) -> None:  # noqa: B027 (most have nothing to close)
        """Let go of what the state holds."""
