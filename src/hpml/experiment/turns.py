"""Seeds in groups that take turns on the GPU: while one group learns there, the other plays on the cores.

A group plays again as soon as it has learnt, so that the cores have something to do while the last environments of the
other one are at their last steps. A group's rollout and update depend on its own seeds alone: who plays beside whom
changes nothing. What is saved looks like one course of all the seeds: a run may go on with another number of groups, on
another device, though not bit for bit.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpml.experiment.course import Course, Leg
from hpml.experiment.evaluation import Episodes
from hpml.experiment.hosted import HostedCourse


class Turns(Course):
    """Courses of some seeds each, in the order of their seeds."""

    def __init__(self, groups: Sequence[HostedCourse]) -> None:
        self.spec, self._groups = groups[0].spec, tuple(groups)

    @property
    def versions(self) -> dict[str, str]:
        """See `Course.versions`."""
        return self._groups[0].versions

    def tree(self) -> Any:
        """See `Course.tree`."""
        return _join(_concatenate, [group.tree() for group in self._groups])

    def template(self) -> Any:
        """See `Course.template`."""
        return _join(_shape, [group.template() for group in self._groups])

    def parameters(self) -> dict[str, int]:
        """See `Course.parameters`."""
        return self._groups[0].parameters()

    def restore(self, tree: Any) -> None:
        """See `Course.restore`."""
        ends = [0, *accumulate(len(group.seeds) for group in self._groups)]
        for group, (first, last) in zip(self._groups, pairwise(ends), strict=True):
            group.restore(_part(tree, first, last, ends[-1]))

    def advance(self, updates: int) -> Leg:
        """See `Course.advance`. All groups are at play when this ends."""
        legs: list[list[Leg]] = []
        for group in self._groups:
            group.begin()
        for _ in range(updates):
            legs.append([])
            for group in self._groups:
                legs[-1].append(group.learn(group.played()))
                group.begin()
        rows = [[row for leg in each for row in leg.rows[0]] for each in legs]
        return Leg(rows, np.stack([np.concatenate([leg.finite[0] for leg in each]) for each in legs]))

    def evaluate(self, update: int, episodes: int) -> list[Episodes]:
        """See `Course.evaluate`."""
        return [seed for group in self._groups for seed in group.evaluate(update, episodes)]

    def film(self, update: int, add: Callable[[Any], None]) -> None:
        """See `Course.film`."""
        self._groups[0].film(update, add)

    def close(self) -> None:
        """End the workers."""
        for group in self._groups:
            group.close()


def _join(join: Callable[..., Any], trees: list[Any]) -> Any:
    """The trees of groups as that of all their seeds; every array has the seeds first, or their environments."""
    pools = [tree["pool"] for tree in trees]
    longest = max(pool["actions"].shape[1] for pool in pools)
    pools = [pool | {"actions": _lengthen(pool["actions"], longest)} for pool in pools]
    return jax.tree.map(join, *[tree | {"pool": pool} for tree, pool in zip(trees, pools, strict=True)])


def _part(tree: Any, first: int, last: int, seeds: int) -> Any:
    """The tree of some of the seeds."""

    def part(leaf: Any) -> Any:
        return leaf if jnp.ndim(leaf) == 0 else leaf[len(leaf) // seeds * first : len(leaf) // seeds * last]

    return jax.tree.map(part, tree)


def _lengthen(actions: Any, length: int) -> Any:
    """Actions of episodes as arrays of this length; those of a template have any."""
    if isinstance(actions, jax.ShapeDtypeStruct):
        return actions
    return np.pad(actions, ((0, 0), (0, length - actions.shape[1]), (0, 0)))


def _concatenate(*leaves: Any) -> Any:
    """Side by side, and on the host: a GPU that is nearly full has no room for a second learner."""
    first = leaves[0]
    if jnp.ndim(first) == 0:
        return first  # the same number of steps for everybody
    if jax.dtypes.issubdtype(first.dtype, jax.dtypes.prng_key):
        return jnp.concatenate(leaves)
    return np.concatenate([np.asarray(leaf) for leaf in leaves])


def _shape(*leaves: Any) -> Any:
    """What `_concatenate` gives, for a template; arrays of NumPy stay such, so that they come back as they are."""
    first = leaves[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(leaves)
    if not hasattr(first, "shape") or first.ndim == 0:
        return first
    return jax.ShapeDtypeStruct((sum(leaf.shape[0] for leaf in leaves), *first.shape[1:]), first.dtype)
