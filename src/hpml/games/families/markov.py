"""Discounted finite Markov games with exact returns and exact policy gradients (`subsec:mg`).

Any number of agents, states and actions, from arrays. `nosde` has no deterministic stationary equilibrium but a cyclic
one (Zinkevich, Greenwald and Littman, 2006).
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hpml.games import bellman
from hpml.games.game import Game
from hpml.games.policies import Policies, check_probabilities
from hpml.geometry.arrays import Array, as_finite
from hpml.geometry.domain import Domain

KEEP, SEND = 0, 1
# What the agent in control does in each state, in the joint policies that `nosde` repeats in its cyclic equilibrium.
NOSDE_CYCLE = ((KEEP, KEEP), (KEEP, KEEP), (KEEP, SEND), (SEND, SEND), (SEND, KEEP))


class MarkovGame(Game):
    """`transitions[s, a_1, ..., a_n, s']`, `rewards[i, s, a_1, ..., a_n]`, a discount, and the law of the first state.

    Points are stationary policies: in `coordinates` "orthonormal" or "dropped" of the simplex product, or as "logits".
    The first state is uniform where `initial` is not given, so that every state matters.
    """

    transitions: Float[Array, " states *actions_and_states"]
    rewards: Float[Array, "agents states *actions"]
    discount: float
    initial: Float[Array, " states"]
    policies: Policies
    names: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    rest: Float[Array, " d"] | None

    def __init__(
        self,
        transitions: Any,
        rewards: Any,
        discount: float,
        initial: Any = None,
        coordinates: str = "orthonormal",
        labels: Sequence[Sequence[str]] | None = None,
        states: Sequence[str] | None = None,
        equilibrium: Sequence[Any] | None = None,
    ):
        self.transitions, self.rewards = as_finite(transitions, "transitions"), as_finite(rewards, "rewards")
        agents, S, *actions = self.rewards.shape if self.rewards.ndim > 1 else (0, 0)
        if agents != len(actions) or not actions or min(actions) < 2:
            raise ValueError(
                "rewards must have shape (agents, states, actions of agent 1, ..., actions of the last agent) with at "
                f"least two actions each, got {self.rewards.shape}."
            )
        if self.transitions.shape != (S, *actions, S):
            raise ValueError(
                f"transitions must have shape {(S, *actions, S)}, the rewards' states and actions and then the next "
                f"state, got {self.transitions.shape}."
            )
        check_probabilities(self.transitions, "The probabilities of the next state")
        if not (np.ndim(discount) == 0 and 0.0 < discount < 1.0):
            raise ValueError(f"discount must lie strictly between 0 and 1, got {discount}.")
        self.discount = float(discount)
        self.initial = np.full(S, 1 / S) if initial is None else as_finite(initial, "initial")
        if self.initial.shape != (S,):
            raise ValueError(f"initial must hold one probability for each of {S} states, got {self.initial.shape}.")
        check_probabilities(self.initial, "The law of the first state")
        self.policies = Policies(tuple(actions), S, coordinates)
        self.names = _names(actions, S, labels, states)
        self.rest = None if equilibrium is None else self.point(equilibrium)

    @property
    def domain(self) -> Domain:
        """See `Game.domain`."""
        return self.policies.domain

    @property
    def blocks(self):
        """See `Game.blocks`."""
        return self.policies.blocks

    @property
    def equilibrium(self):
        """See `Game.equilibrium`."""
        return self.rest

    @property
    def labels(self):
        """See `Game.labels`: for each agent, for each state."""
        return self.names

    def point(self, policies: Sequence[Any]) -> Float[Array, " d"]:
        """The coordinates of stationary policies, one array (states, actions) an agent."""
        return self.policies.point(policies)

    def strategies(self, point):
        """See `Game.strategies`: for each agent, for each state."""
        tables = self.policies.probabilities(point)
        return [p[..., s, :] for p in tables for s in range(self.policies.states)]

    def returns(self, point):
        """See `Game.returns`."""
        return self.initial @ self._values(self.policies.probabilities(point))[1]

    def field(self, point):
        """See `Game.field`: visitation times action values, in the point's coordinates."""
        policies = self.policies.probabilities(point)
        system, V = self._values(policies)
        d = bellman.visitation(system, jnp.asarray(self.initial))
        values = bellman.action_values(*self._model, policies, V)
        return self.policies.gradient(point, [d[:, None] * q for q in values])

    def regrets(self, point):
        """See `Game.regrets`: against the best stationary policy, which is a best one of all."""
        policies = self.policies.probabilities(point)
        transitions, rewards, discount = self._model
        best = [
            bellman.best_reply(
                bellman.average(transitions, policies, keep=i), bellman.average(rewards[i], policies, keep=i), discount
            )
            for i in range(len(policies))
        ]
        gains = self.initial @ (jnp.stack(best, 1) - self._values(policies)[1])
        return jnp.maximum(gains, 0.0)  # rounding may go below 0

    @property
    def _model(self):
        return jnp.asarray(self.transitions), jnp.asarray(self.rewards), self.discount

    def _values(self, policies):
        return bellman.values(*self._model, policies)


def _names(
    actions: Sequence[int], S: int, labels: Sequence[Sequence[str]] | None, states: Sequence[str] | None
) -> tuple[tuple[str, ...], ...]:
    labels = [[str(a + 1) for a in range(K)] for K in actions] if labels is None else labels
    states = [str(s + 1) for s in range(S)] if states is None else states
    if [len(part) for part in labels] != list(actions) or len(states) != S:
        raise ValueError(f"labels must name {list(actions)} actions, one list an agent, and states {S} states.")
    return tuple(tuple(f"{name} in {state}" for name in part) for part in labels for state in states)


def nosde(discount: float = 0.75, **options: Any) -> MarkovGame:
    """Two states, each with one agent in control that keeps the turn or sends it; no deterministic equilibrium.

    Keeping gives (1, 0) in the first state and (3, 1) in the second, sending (0, 3) and (0, 0). With a discount of 3/4
    the only stationary equilibrium of the agents in control is mixed: they send with probability 2/3 and 5/12. Value
    iteration does not find it but goes round the five joint policies of `NOSDE_CYCLE`, which are an equilibrium when
    played in turn.
    """
    P, r = np.zeros((2, 2, 2, 2)), np.zeros((2, 2, 2, 2))
    P[0, KEEP, :, 0] = P[0, SEND, :, 1] = 1.0
    P[1, :, KEEP, 1] = P[1, :, SEND, 0] = 1.0
    r[:, 0, KEEP], r[:, 0, SEND] = np.array([1.0, 0.0])[:, None], np.array([0.0, 3.0])[:, None]
    r[:, 1, :, KEEP], r[:, 1, :, SEND] = np.array([3.0, 1.0])[:, None], np.array([0.0, 0.0])[:, None]
    even = [0.5, 0.5]
    rest = [[[1 / 3, 2 / 3], even], [even, [7 / 12, 5 / 12]]] if discount == 0.75 else None
    names = {"labels": [["keep", "send"]] * 2, "states": ["first", "second"]}
    return MarkovGame(P, r, discount, equilibrium=rest, **names, **options)  # type: ignore[arg-type]


def random_markov(
    states: int = 3,
    actions: tuple[int, ...] = (2, 2),
    discount: float = 0.8,
    shared: bool = False,
    seed: int = 0,
    **options: Any,
) -> MarkovGame:
    """Transitions uniform on the simplex and Gaussian rewards; with `shared`, all agents get the first one's."""
    rng = np.random.default_rng(seed)
    P = rng.exponential(size=(states, *actions, states))
    r = rng.normal(size=(len(actions), states, *actions))
    if shared:
        r = np.repeat(r[:1], len(actions), axis=0)
    return MarkovGame(P / P.sum(-1, keepdims=True), r, discount, **options)


def examples() -> dict[str, Game]:
    """Games of this family by name."""
    return {
        "nosde": nosde(),
        "random_markov": random_markov(3, (2, 3), coordinates="dropped"),
        "shared_three_agents": random_markov(2, (2, 2, 2), shared=True, coordinates="logits"),
    }
