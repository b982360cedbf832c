"""Convention switching: how often the players change what they jointly do (`app:exp_diag`; docs/conventions.md).

An interaction is a step in which somebody shows a convention; those who show none (-1) take no part in it. The joint
convention is what each of its players shows. Arrays are (T, E, agents): steps, environments, players.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int

from hpml.geometry.arrays import Array


class Switches(NamedTuple):
    """How many interactions there were, how many consecutive pairs of them, and in how many pairs something changed."""

    interactions: Int[Array, ""]
    pairs: Int[Array, ""]
    switches: Int[Array, ""]

    @property
    def rate(self) -> Float[Array, ""]:
        """The share of consecutive pairs that differ; NaN where there is no pair."""
        return jnp.where(self.pairs > 0, self.switches / jnp.maximum(self.pairs, 1), jnp.nan)


def count_switches(convention: Int[Array, "T E agents"], done: Bool[Array, "T E"]) -> Switches:
    """Switches between consecutive interactions of the same players, within episodes.

    Two interactions are consecutive where none of their players took part in another one between them; `done` says that
    a step ended its episode, and no pair reaches over that. Pairs that a cut of the data separates are not counted.
    """
    shown = jnp.asarray(convention)
    done = jnp.asarray(done)
    if shown.ndim != 3 or done.shape != shown.shape[:2]:
        raise ValueError(f"convention must be (T, E, agents) and done (T, E), got {shown.shape} and {done.shape}.")
    takes_part = shown >= 0
    times = jnp.arange(len(shown))[:, None]
    before = _latest_before(jnp.where(takes_part, times[..., None], -1))  # each player's last interaction
    start = _latest_before(jnp.where(done, times, -1)) + 1
    step = jnp.where(takes_part, before, -1).max(-1)  # everybody's last one, where the same players met then
    found = jnp.take_along_axis(shown, jnp.maximum(step, 0)[..., None], axis=0)
    same_players = ((found >= 0) == takes_part).all(-1)
    pairs = takes_part.any(-1) & same_players & (step >= start) & (step >= 0)
    changed = pairs & (found != shown).any(-1)
    return Switches(takes_part.any(-1).sum(), pairs.sum(), changed.sum())


def most_frequent(convention: Int[Array, "T E agents"]) -> Int[Array, " agents"]:
    """The joint convention that most interactions show, the first one in time where several do; -1s where none do."""
    rows = jnp.asarray(convention).reshape(-1, convention.shape[-1])
    order = jnp.lexsort(rows.T)  # stable, so that equal rows stay in the order of time
    ordered = rows[order]
    new = jnp.concatenate([jnp.ones(1, bool), (ordered[1:] != ordered[:-1]).any(-1)])
    block = jnp.cumsum(new) - 1
    counts = jnp.zeros(len(rows), jnp.int32).at[block].add((ordered >= 0).any(-1).astype(jnp.int32))
    count = counts[block]
    first = jnp.where(count == count.max(), order, len(rows)).min()
    return jnp.where(count.max() > 0, rows[first], -1)


def evaluation_switches(frequent: Int[Array, "evaluations agents"]) -> Switches:
    """Changes of the most frequent joint convention between evaluations; those that show none are passed over."""
    shown = jnp.asarray(frequent)
    some = (shown >= 0).any(-1)
    times = jnp.arange(len(shown))
    before = _latest_before(jnp.where(some, times, -1))
    pairs = some & (before >= 0)
    changed = pairs & (shown[jnp.maximum(before, 0)] != shown).any(-1)
    return Switches(some.sum(), pairs.sum(), changed.sum())


def _latest_before(times: Int[Array, " T *rest"]) -> Int[Array, " T *rest"]:
    """The largest entry before each time, -1 before the first."""
    latest = jax.lax.cummax(jnp.asarray(times), axis=0)
    return jnp.concatenate([jnp.full_like(times[:1], -1), latest[:-1]])
