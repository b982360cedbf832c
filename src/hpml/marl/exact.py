"""Repeated matrix games without sampling: expected returns, best replies and exploitability of given policies.

A policy that sees the last joint action is a table with a row for each thing that can be seen: row 0 is the first
round, row 1 + j the round after the joint action of number j, in C order. Without memory there is row 0 alone. The
distribution over rows then goes from round to round, and best replies follow backwards from the last round; they may
depend on the round, so exploitability is measured against the strongest deviation.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hpml.games.families.normal_form import NormalForm
from hpml.marl.env import Observation
from hpml.marl.envs.matrix import MatrixGame, Round
from hpml.marl.learner import Trainer
from hpml.marl.networks import Actor
from hpml.marl.policy import allowed
from hpml.marl.rollout import see

Tables = Sequence[Float[np.ndarray, "rows _"]]  # one an agent


def rows(env: MatrixGame) -> int:
    """How many different things an agent can see."""
    return 1 + int(np.prod(env.game.sizes)) if env.memory else 1


def observations(env: MatrixGame) -> Observation:
    """What the agents see in every row, to ask a policy for its table: parts have shape (rows, agents, ...)."""
    played = np.argwhere(np.ones(env.game.sizes, bool))[: rows(env) - 1]
    first = np.full((1, len(env.game.sizes)), -1)
    nothing = np.zeros((), np.int32)
    seen = [env.observe(Round(last.astype(np.int32), nothing)) for last in np.concatenate([first, played])]
    return Observation(*(None if part[0] is None else np.stack(part) for part in zip(*seen, strict=True)))


def policy_tables(trainer: Trainer, actors: Actor, env: MatrixGame) -> Tables:
    """The tables of trained actors, which must have no memory of their own."""
    if trainer.settings.memory:
        raise ValueError("Recurrent actors remember more than the last joint action: they have no table.")
    shown = see(observations(env), trainer.spec, trainer.settings)
    seen = jax.tree.map(lambda x: jnp.moveaxis(jnp.asarray(x), 1, 0)[:, :, None], shown)
    starts = jnp.zeros(seen.vector.shape[1:3], bool)
    run = jax.vmap(
        lambda actor, vector: actor(vector, None, None, starts)[0], (None if trainer.settings.share else 0, 0)
    )
    policy = np.exp(np.asarray(allowed(run(actors, seen.vector), seen.mask)[:, :, 0], np.float64))
    return as_tables(env, list(policy))


def as_tables(env: MatrixGame, policies: Any) -> Tables:
    """Policies as tables in float64: one mixed strategy an agent (played whatever was seen), or one table an agent."""
    sizes = env.game.sizes
    if len(policies) != len(sizes):
        raise ValueError(f"Give one policy for each of the {len(sizes)} agents, got {len(policies)}.")
    tables = []
    for policy, size in zip(policies, sizes, strict=True):
        table = np.asarray(policy, np.float64)[..., :size]
        if table.ndim == 1:
            table = np.broadcast_to(table, (rows(env), size))
        if table.shape != (rows(env), size) or (table < 0).any() or np.abs(table.sum(1) - 1).max() > 1e-4:
            raise ValueError(f"A policy here is ({rows(env)}, {size}) probabilities with rows that sum to 1.")
        tables.append(table / table.sum(1, keepdims=True))
    return tables


def expected_returns(env: MatrixGame, policies: Any) -> Float[np.ndarray, " agents"]:
    """Each agent's expected return of an episode."""
    joint = _joint(as_tables(env, policies))
    payoffs = _payoffs(env)
    seen, total = np.eye(rows(env))[0], np.zeros(len(payoffs))
    for _ in range(env.horizon):
        played = seen @ joint
        total += payoffs @ played
        seen = np.concatenate([[0.0], played]) if env.memory else seen
    return total


def best_reply_returns(env: MatrixGame, policies: Any) -> Float[np.ndarray, " agents"]:
    """What each agent would get in an episode by its best reply to the others, who stay as they are."""
    tables = as_tables(env, policies)
    payoffs, sizes = _payoffs(env), env.game.sizes
    best = []
    for i, size in enumerate(sizes):
        even = [np.ones_like(table) if j == i else table for j, table in enumerate(tables)]
        others = _joint(even)  # (rows, joint): the others' probabilities, whatever agent i plays
        own = np.indices(sizes)[i].ravel()
        sums = np.eye(size)[own]
        later = np.zeros(rows(env))
        for _ in range(env.horizon):
            worth = payoffs[i] + (later[1:] if env.memory else later[0])
            later = ((others * worth) @ sums).max(1)
        best.append(later[0])
    return np.array(best)


def exploitability(env: MatrixGame, policies: Any) -> float:
    """What the agents could gain in an episode by best replies, summed over agents: 0 at equilibria alone."""
    return float((best_reply_returns(env, policies) - expected_returns(env, policies)).sum())


def random_returns(env: MatrixGame) -> Float[np.ndarray, " agents"]:
    """Each agent's expected return of an episode where all play at random."""
    return expected_returns(env, [np.full(size, 1.0 / size) for size in env.game.sizes])


def best_joint_returns(env: MatrixGame) -> Float[np.ndarray, " agents"]:
    """Each agent's return where the joint action with the largest sum of payoffs is played in every round."""
    payoffs = _payoffs(env)
    return env.horizon * payoffs[:, payoffs.sum(0).argmax()]


def _payoffs(env: MatrixGame) -> Float[np.ndarray, "agents joint"]:
    game: NormalForm = env.game
    return np.asarray(game.payoffs, np.float64).reshape(len(game.sizes), -1)


def _joint(tables: Tables) -> Float[np.ndarray, "rows joint"]:
    joint = np.ones((len(tables[0]), 1))
    for table in tables:
        joint = (joint[:, :, None] * table[:, None, :]).reshape(len(table), -1)
    return joint
