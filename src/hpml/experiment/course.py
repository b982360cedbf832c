"""The contract that training keeps for both kinds of environments, and how an update becomes a row.

A course holds everything that changes; `tree` is what a checkpoint keeps of it, and `restore` puts it back
so that it goes on bit for bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from hpml.experiment.evaluation import Episodes
from hpml.marl.conventions import Switches
from hpml.marl.env import Spec
from hpml.marl.learner import Learner

Row = dict[str, float]
UNLIMITED = 1000  # steps of an evaluation episode where the environment has no end
INITIAL, WORLDS, EVALUATION = range(3)  # what a seed's keys are for


class Leg(NamedTuple):
    """Some updates: `rows[k][s]` are the columns of the k-th update of seed s, `finite` (updates, seeds) says where all
    numbers were numbers."""

    rows: list[list[Row]]
    finite: Any


class Course(ABC):
    """Seeds that train together on one environment."""

    spec: Spec

    @abstractmethod
    def tree(self) -> Any:
        """The arrays that a checkpoint keeps."""

    def template(self) -> Any:
        """The structure of `tree`; an axis of -1 has any length."""
        return self.tree()

    @abstractmethod
    def parameters(self) -> dict[str, int]:
        """How many numbers actors and critic have, all agents together, in one seed."""

    @abstractmethod
    def restore(self, tree: Any) -> None:
        """Go on from what `tree` gave."""

    @abstractmethod
    def advance(self, updates: int) -> Leg:
        """Play and learn, a few updates of all seeds."""

    @abstractmethod
    def evaluate(self, update: int, episodes: int) -> list[Episodes]:
        """Play episodes with each seed's policies as they are, on seeds of their own; nothing is learnt from them."""

    def exact(self) -> list[Row] | None:
        """What can be said about the policies without playing, a row a seed; None where nothing can."""
        return None

    def film(self, update: int, add: Callable[[Any], None]) -> None:
        """Give the frames of an evaluation episode of the first seed, one by one, to `add`."""
        raise ValueError(f"{self.spec.name} has no picture to film: leave --video out.")

    @property
    def versions(self) -> dict[str, str]:
        """What else its numbers depend on, beside the packages."""
        return {}

    @property
    def longest(self) -> int:
        """The most updates that `advance` should be asked for at once: what lies between two looks at the signals."""
        return 1

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Let go of processes and memory."""


def count(learner: Learner) -> dict[str, int]:
    """The parameters of one of the seeds that a learner holds side by side."""
    parts = {"actors": learner.actors, "critic": learner.critic}
    return {name: sum(leaf[0].size for leaf in jax.tree.leaves(part)) for name, part in parts.items()}


def mean_columns(logs: Mapping[str, Any], prefix: str = "") -> list[list[Row]]:
    """Arrays (updates, seeds) or (updates, seeds, agents) as rows; agents are averaged."""
    flat = {name: np.asarray(value, np.float64) for name, value in logs.items()}
    flat = {name: value if value.ndim == 2 else value.mean(-1) for name, value in flat.items()}
    updates, seeds = next(iter(flat.values())).shape
    return [
        [{f"{prefix}{name}": float(value[k, s]) for name, value in flat.items()} for s in range(seeds)]
        for k in range(updates)
    ]


def return_columns(returns: Any, episodes: Any) -> list[list[Row]]:
    """Mean returns (updates, seeds, agents) over the episodes (updates, seeds) that ended; NaN where none did."""
    R, count = np.asarray(returns, np.float64), np.asarray(episodes)

    def one(mean: np.ndarray, ended: float) -> Row:
        columns = {"episodes": float(ended), "return": float(mean.mean()), "collective_return": float(mean.sum())}
        return columns | {f"return/{i}": float(value) for i, value in enumerate(mean)}

    return [[one(R[k, s], float(count[k, s])) for s in range(R.shape[1])] for k in range(R.shape[0])]


def switch_columns(switches: Switches) -> list[list[Row]]:
    """Convention switches, counts of (updates, seeds), as rates; NaN where there was no pair to compare."""
    pairs = np.asarray(switches.pairs)
    return mean_columns({"switch_rate": np.where(pairs > 0, switches.switches / np.maximum(pairs, 1), np.nan)})


def merge(*parts: list[list[Row]]) -> list[list[Row]]:
    """Rows side by side."""
    return [
        [{name: value for row in rows for name, value in row.items()} for rows in zip(*seeds, strict=True)]
        for seeds in zip(*parts, strict=True)
    ]


def seed_keys(seeds: Int[np.ndarray, " S"] | tuple[int, ...], purpose: int) -> jax.Array:
    """A key for each seed and purpose, (S,); a seed's keys do not depend on which seeds run beside it."""
    return jax.vmap(lambda seed: jax.random.fold_in(jax.random.key(seed), purpose))(np.asarray(seeds, np.uint32))
