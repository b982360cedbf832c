"""What was played in a rollout, as people read it: returns of the episodes that ended, and changes of convention."""

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int

from hpml.marl.advantage import discounted
from hpml.marl.conventions import Switches, count_switches
from hpml.marl.rollout import Rollout


class Tally(eqx.Module):
    """Returns in the environment's units.

    `returns` is the mean over the `episodes` that ended, NaN where none did; `running` are those that go on.
    """

    running: Float[Array, "E agents"]
    returns: Float[Array, " agents"]
    episodes: Int[Array, ""]
    switches: Switches


def tally(rollout: Rollout, running: Float[Array, "E agents"]) -> Tally:
    """Count one seed's rollout; `running` are the returns so far of the episodes that it goes on with."""
    ends = rollout.starts[1:]
    running, totals = discounted(rollout.rewards, ends, running, 1.0)
    episodes = ends.sum()
    returns = jnp.where(ends[..., None], totals, 0.0).sum((0, 1)) / episodes
    return Tally(running, returns, episodes, count_switches(rollout.convention, ends))
