"""Repeated matrix games in JAX: the agents play one normal-form game again and again, and may see what was just played.

An episode is `horizon` rounds. With memory, an agent sees the last joint action as one-hot blocks from its own point
of view: its own action first, then those of the agents after it in a circle; in the first round all are zero. Without
memory it sees the number 1. The rewards of a round are the payoffs, and its joint action is the joint convention.

Where the agents have different numbers of actions, those that an agent lacks are masked, and taking one all the same
gives a reward of NaN.
"""

import inspect
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from hpml.games.families import cyclic, normal_form, random_normal_form
from hpml.games.families.normal_form import NormalForm
from hpml.geometry.arrays import Array
from hpml.marl.env import Env, Observation, Spec, Step

SHORT = {
    "rock_paper_scissors": "rock_paper_scissors",
    "rps": "rock_paper_scissors",
    "matching_pennies": "matching_pennies",
    "stag_hunt": "stag_hunt",
    "prisoners_dilemma": "prisoners_dilemma",
    "bach_or_stravinsky": "bach_or_stravinsky",
    "bos": "bach_or_stravinsky",
    "pure_coordination": "pure_coordination",
    "rationalizable_coordination": "rationalizable_coordination",
    "climbing": "climbing",
    "penalty": "penalty",
}


class Round(NamedTuple):
    """The state of an episode: what was played last, -1 before the first round, and how many rounds are over."""

    last: Int[Array, " agents"]
    rounds: Int[Array, ""]


@dataclass(frozen=True, eq=False)
class MatrixGame(Env):
    """A normal-form game played `horizon` times, with or without memory of the last joint action."""

    compiled: ClassVar[bool] = True

    game: NormalForm
    name: str = "matrix/payoffs"
    memory: bool | int = True
    horizon: int = 16
    spec: Spec = field(init=False)
    padded: Float[np.ndarray, " agents *actions"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sizes = self.game.sizes
        n, K = len(sizes), max(sizes)
        if n < 2:
            raise ValueError(
                "A matrix game needs two agents or more: payoffs of shape (agents, actions, actions, ...)."
            )
        if isinstance(self.horizon, bool) or int(self.horizon) != self.horizon or self.horizon < 1:
            raise ValueError(f"horizon must be a positive number of rounds, got {self.horizon}.")
        if self.memory not in (0, 1):
            raise ValueError(f"memory must be true (the last joint action is seen) or false, got {self.memory!r}.")
        padded = np.full((n,) + (K,) * n, np.nan, np.float32)
        padded[(slice(None), *(slice(size) for size in sizes))] = self.game.payoffs
        longest = self.game.names[int(np.argmax(sizes))]
        spec = Spec(
            name=self.name,
            agents=n,
            actions=K,
            vector=n * K if self.memory else 1,
            horizon=int(self.horizon),
            masked=min(sizes) < K,
            conventions=K,
            action_names=longest,
        )
        object.__setattr__(self, "padded", padded)
        object.__setattr__(self, "spec", spec)

    def reset(self, key: Any) -> tuple[Round, Observation]:
        """See `Env.reset`: nothing is drawn, so that every episode begins alike."""
        start = Round(jnp.full(self.spec.agents, -1, jnp.int32), jnp.zeros((), jnp.int32))
        return start, self.observe(start)

    def step(self, state: Round, actions: Any, key: Any) -> tuple[Round, Step]:
        """See `Env.step`."""
        played = self._checked(actions)
        rewards = jnp.asarray(self.padded)[(slice(None), *played)]
        state = Round(played, state.rounds + 1)
        return state, Step(self.observe(state), rewards, state.rounds >= self.spec.horizon, played)

    def observe(self, state: Round) -> Observation:
        """What the agents see of a state."""
        n, K = self.spec.agents, self.spec.actions
        mask = jnp.asarray(np.arange(K) < np.array(self.game.sizes)[:, None]) if self.spec.masked else None
        if not self.memory:
            return Observation(vector=jnp.ones((n, 1), jnp.float32), mask=mask)
        shown = jax.nn.one_hot(state.last, K, dtype=jnp.float32)  # no action, -1, is all zeros
        circle = (np.arange(n)[:, None] + np.arange(n)) % n
        return Observation(vector=shown[circle].reshape(n, n * K), mask=mask)

    def _checked(self, actions: Any) -> Int[Array, " agents"]:
        n, K = self.spec.agents, self.spec.actions
        if jnp.shape(actions) != (n,):
            raise ValueError(
                f"{self.name} takes one action for each of its {n} agents, got shape {jnp.shape(actions)}."
            )
        if not isinstance(actions, jax.core.Tracer):  # under jit the values are not known yet
            values = np.asarray(actions)
            if not np.issubdtype(values.dtype, np.integer) or (values < 0).any() or (values >= K).any():
                raise ValueError(f"Actions of {self.name} are whole numbers from 0 to {K - 1}, got {values.tolist()}.")
        return jnp.asarray(actions, jnp.int32)


def _common(payoffs: Any, names: tuple[str, ...] | None = None) -> NormalForm:
    shared = np.asarray(payoffs, np.float64)
    labels = None if names is None else [names] * shared.ndim
    return NormalForm(np.broadcast_to(shared, (shared.ndim, *shared.shape)), labels)


def _diagonal(values: Any, agents: int) -> NormalForm:
    payoffs = np.zeros((len(values),) * agents)
    payoffs[(np.arange(len(values)),) * agents] = values
    return _common(payoffs)


def pure_coordination(actions: int = 3, agents: int = 2) -> NormalForm:
    """Everybody gets 1 where all choose alike; no choice is better than another."""
    return _diagonal(np.ones(actions), agents)


def rationalizable_coordination(actions: int = 3, agents: int = 2) -> NormalForm:
    """Everybody gets a where all choose action a, so that the last one is the best to agree on."""
    return _diagonal(np.arange(1.0, actions + 1.0), agents)


def climbing() -> NormalForm:
    """A common reward whose best joint action is dear to miss (Claus and Boutilier, 1998)."""
    return _common([[11.0, -30.0, 0.0], [-30.0, 7.0, 6.0], [0.0, 0.0, 5.0]])


def penalty(cost: float = 10.0) -> NormalForm:
    """A common reward with two best agreements and a cost for mixing them up (Claus and Boutilier, 1998)."""
    return _common([[10.0, 0.0, -cost], [0.0, 2.0, 0.0], [-cost, 0.0, 10.0]])


def random(actions: int = 4, agents: int = 2, common: float = 0.0, seed: int = 0) -> NormalForm:
    """A random game with a share of common payoff: 0 is zero-sum, 1 is one reward for all; the seed draws the game."""
    return random_normal_form.random_mix((actions,) * agents, common, seed)


def rock_paper_scissors(win: float = 1.0, lose: float = 1.0) -> NormalForm:
    """Winning gives `win`, losing costs `lose`."""
    return cyclic.rock_paper_scissors(win, lose)


GAMES: dict[str, Callable[..., NormalForm]] = {
    "rock_paper_scissors": rock_paper_scissors,
    "matching_pennies": normal_form.matching_pennies,
    "stag_hunt": normal_form.stag_hunt,
    "prisoners_dilemma": normal_form.prisoners_dilemma,
    "bach_or_stravinsky": normal_form.bach_or_stravinsky,
    "pure_coordination": pure_coordination,
    "rationalizable_coordination": rationalizable_coordination,
    "climbing": climbing,
    "penalty": penalty,
    "random": random,
}


def names() -> tuple[str, ...]:
    """The games there are by name; a name that is itself a JSON array of payoffs is a game of its own."""
    return tuple(GAMES)


def make(name: str, memory: bool | int = True, horizon: int = 16, payoffs: Any = None, **options: Any) -> MatrixGame:
    """A game by its name, or any name with `payoffs` of shape (agents, actions of the first, ...); see `MatrixGame`.

    Other options are the game's own, such as `win` of rock_paper_scissors or `agents` of pure_coordination.
    """
    if name.startswith("["):
        try:
            name, payoffs = "payoffs", json.loads(name)
        except json.JSONDecodeError as error:
            raise ValueError(f"The payoffs in the environment's name are no JSON array: {error}.") from None
    own: tuple[str, ...] = ()
    if payoffs is None:
        if name not in GAMES:
            near = get_close_matches(name, GAMES) or list(GAMES)
            raise ValueError(f"There is no matrix game {name!r}: did you mean {', '.join(near)}?")
        own = tuple(k for k, p in inspect.signature(GAMES[name]).parameters.items() if p.kind != p.VAR_KEYWORD)
    known = ("memory", "horizon", "payoffs", *own)
    for option in options:
        if option not in own:
            near = get_close_matches(option, known) or list(known)
            raise ValueError(f"matrix/{name} has no option {option!r}: did you mean {', '.join(near)}?")
    game = GAMES[name](**options) if payoffs is None else NormalForm(_as_payoffs(payoffs))
    return MatrixGame(game, f"matrix/{name}", memory, horizon)


def _as_payoffs(payoffs: Any) -> Float[np.ndarray, "..."]:
    try:
        array = np.asarray(payoffs, np.float64)
    except (TypeError, ValueError):
        raise ValueError("payoffs must be one array of numbers, of shape (agents, actions, actions, ...).") from None
    if not np.isfinite(array).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"payoffs must be finite, the one at index {where} is {array[where]}: mend it.")
    return array
