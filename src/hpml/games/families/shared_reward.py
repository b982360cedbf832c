"""One shared-reward Markov game under exact, blockwise, sequential and approximate updates (`rem:bellman_bridge`).

All agents climb the same return J. Stacked exact gradients are the gradient of J, so nothing circulates. The same game
updated in local or approximate blocks need not be the gradient of anything, though every block improves its agent:

- "exact": visitation times action values, grad J.
- "blockwise": each agent improves its action values in all states alike, as from a replay buffer with fixed weights:
  the visitation that the policies bring about is left out.
- "sequential": exact gradients one agent after the other, each at the point to which `step` has taken those before it.
- "approximate": exact visitation, but action values from a critic that looks less far ahead (`critic_discount`).

With one state and one reward the first two agree up to scale: it is the coupling through states that circulates.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from hpml.games import bellman
from hpml.games.families.markov import MarkovGame, nosde
from hpml.games.game import Game
from hpml.geometry.domain import Domain

UPDATES = ("exact", "blockwise", "sequential", "approximate")


class SharedReward(Game):
    """A Markov game with one reward for all, and the way its agents update: one of `UPDATES`."""

    game: MarkovGame
    update: str = eqx.field(static=True)
    critic_discount: float
    step: float

    def __init__(self, game: MarkovGame, update: str = "exact", critic_discount: float = 0.0, step: float = 0.1):
        if np.abs(game.rewards - game.rewards[:1]).max() > 1e-12:
            raise ValueError("The agents' rewards differ: a shared-reward game needs one reward for all of them.")
        if update not in UPDATES:
            raise ValueError(f"update must be one of {', '.join(UPDATES)}, got {update!r}.")
        if not 0.0 <= critic_discount < 1.0:
            raise ValueError(f"critic_discount must be at least 0 and below 1, got {critic_discount}.")
        if not 0.0 < step < np.inf:
            raise ValueError(f"step must be positive, got {step}.")
        self.game, self.update = game, update
        self.critic_discount, self.step = float(critic_discount), float(step)

    @property
    def domain(self) -> Domain:
        """See `Game.domain`."""
        return self.game.domain

    @property
    def blocks(self):
        """See `Game.blocks`."""
        return self.game.blocks

    @property
    def equilibrium(self):
        """See `Game.equilibrium`: other updates than exact ones may rest elsewhere."""
        return self.game.equilibrium if self.update == "exact" else None

    @property
    def labels(self):
        """See `Game.labels`."""
        return self.game.labels

    def strategies(self, point):
        """See `Game.strategies`."""
        return self.game.strategies(point)

    def regrets(self, point):
        """See `Game.regrets`."""
        return self.game.regrets(point)

    def returns(self, point):
        """See `Game.returns`: only exact updates are the gradients of the agents' returns."""
        return self.game.returns(point) if self.update == "exact" else None

    def field(self, point):
        """See `Game.field`."""
        if self.update == "exact":
            return self.game.field(point)
        if self.update == "sequential":
            return self._sequential(point)
        game = self.game
        model = (jnp.asarray(game.transitions), jnp.asarray(game.rewards))
        policies = game.policies.probabilities(point)
        system, V = bellman.values(*model, game.discount, policies)
        if self.update == "blockwise":
            # The weights sum to what the visitation sums to, so that the blocks have a like size.
            weights = jnp.full(len(V), 1.0 / (len(V) * (1.0 - game.discount)))
            values = bellman.action_values(*model, game.discount, policies, V)
        else:
            weights = bellman.visitation(system, jnp.asarray(game.initial))
            near = bellman.values(*model, self.critic_discount, policies)[1]
            values = bellman.action_values(*model, self.critic_discount, policies, near)
        return game.policies.gradient(point, [weights[:, None] * q for q in values])

    def _sequential(self, point):
        moved, parts = point, []
        ends = np.cumsum(self.blocks)
        for start, end in zip(ends - self.blocks, ends, strict=True):
            own = self.game.field(moved)[start:end]
            parts.append(own)
            moved = self.domain.retract(moved.at[start:end].add(self.step * own))
        return jnp.concatenate(parts)


def relay(discount: float = 0.75, **options: Any) -> MarkovGame:
    """The turns of `markov.nosde` played as a team that gets the sum of both rewards.

    The best is that the first agent sends the turn from the first state and the second agent keeps it in the second.
    What they do where they are not in control changes nothing, so the game can be drawn in two coordinates.
    """
    turns = nosde(discount)
    reward = np.broadcast_to(turns.rewards.sum(0), turns.rewards.shape)
    best = [[[0.0, 1.0], [0.5, 0.5]], [[0.5, 0.5], [1.0, 0.0]]]
    names = {"labels": [["keep", "send"]] * 2, "states": ["first", "second"]}
    return MarkovGame(turns.transitions, reward, discount, equilibrium=best, **names, **options)  # type: ignore[arg-type]


def examples() -> dict[str, Game]:
    """Games of this family by name."""
    return {update: SharedReward(relay(), update) for update in UPDATES}
