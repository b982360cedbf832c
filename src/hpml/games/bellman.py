"""Stationary policies of a finite Markov game, evaluated exactly by solving linear systems (`subsec:mg`).

A table has the axes (states, actions of agent 1, ..., actions of the last agent, ...), an agent's policy the axes
(states, actions). P_pi is the states' chain under the policies and r_pi the expected rewards. Then

    values      V_i = (I - gamma P_pi)^-1 r_pi,i            returns  J_i = rho . V_i
    visitation  d = (I - gamma P_pi)^-T rho                 (discounted, sum 1 / (1 - gamma))
    action values q_i(s, a) = E[r_i + gamma V_i(s')] with the others' actions drawn from their policies
    gradient    dJ_i / dpi_i(a | s) = d(s) q_i(s, a).
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Float

from hpml.geometry.arrays import Array

Policies = Sequence[Float[Array, "states _"]]

MOST_ROUNDS = 1000  # of policy iteration; a handful is usual


def average(table: Float[Array, " states *rest"], policies: Policies, keep: int | None = None) -> Array:
    """The table with every agent's action drawn from its policy, except that agent `keep` keeps its axis."""
    # From the last agent to the first, so that the axes of those still to come stay where they are.
    for j in reversed(range(len(policies))):
        if j != keep:
            table = jnp.einsum("sa,sa...->s...", policies[j], jnp.moveaxis(table, 1 + j, 1))
    return table


def values(
    transitions: Float[Array, " states *actions_and_states"],
    rewards: Float[Array, "agents states *actions"],
    discount: Float[Array, ""] | float,
    policies: Policies,
) -> tuple[Float[Array, "states states"], Float[Array, "states agents"]]:
    """I - gamma P_pi, and each agent's value of each state."""
    joint = policies[0]
    for p in policies[1:]:
        joint = (joint[:, :, None] * p[:, None, :]).reshape(len(p), -1)
    # One pass over the largest table, with no axis moved.
    chain = jnp.einsum("sj,sjt->st", joint, transitions.reshape(*joint.shape, -1))
    system = jnp.eye(len(chain)) - discount * chain
    expected = jax.vmap(lambda r: average(r, policies), out_axes=1)(rewards)
    return system, jnp.linalg.solve(system, expected)


def action_values(
    transitions: Float[Array, " states *actions_and_states"],
    rewards: Float[Array, "agents states *actions"],
    discount: Float[Array, ""] | float,
    policies: Policies,
    worth: Float[Array, "states agents"],
) -> Policies:
    """q_i(s, a_i) for every agent, with `worth` the values of the next state."""
    ahead = transitions @ worth
    return [average(rewards[i] + discount * ahead[..., i], policies, keep=i) for i in range(len(policies))]


def visitation(system: Float[Array, "states states"], initial: Float[Array, " states"]) -> Float[Array, " states"]:
    """How often each state is met, discounted, from I - gamma P_pi and the law of the first state."""
    return jnp.linalg.solve(system.T, initial)


def best_reply(
    transitions: Float[Array, "states K states"], rewards: Float[Array, "states K"], discount: Float[Array, ""] | float
) -> Float[Array, " states"]:
    """The optimal values of one agent against fixed others, by policy iteration: exact, since each round solves."""
    states = jnp.arange(len(rewards))
    eye = jnp.eye(len(rewards))

    def evaluate(policy):
        V = jnp.linalg.solve(eye - discount * transitions[states, policy], rewards[states, policy])
        return V, rewards + discount * transitions @ V

    def improve(carry):
        policy, _, _, rounds = carry
        V, Q = evaluate(policy)
        better = Q.argmax(-1)
        # A gain within rounding is none: ties would be swapped for ever.
        margin = 64 * jnp.finfo(Q.dtype).eps * (1.0 + jnp.abs(Q).max())
        gain = Q[states, better] > Q[states, policy] + margin
        return jnp.where(gain, better, policy), V, gain.any(), rounds + 1

    def unfinished(carry):
        return carry[2] & (carry[3] < MOST_ROUNDS)

    start = (rewards.argmax(-1), rewards[:, 0], jnp.asarray(True), 0)
    return jax.lax.while_loop(unfinished, improve, start)[1]
