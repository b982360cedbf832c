"""Policies of several agents in coordinates: simplex products or logits (`rem:param_app`).

A policy is a probability vector over an agent's actions in each of `states` states; a matrix game has one state.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array, as_finite
from hpml.geometry.domain import Domain, Simplices, Space, tangent_basis

Parts = Sequence[Float[Array, "*batch states _"]]  # one array an agent, for each state and action

SMALLEST = 1e-12  # what a probability of 0 becomes before its logarithm is taken


class Policies(eqx.Module):
    """`coordinates`: "orthonormal" (in the simplex's tangent space), "dropped" (without the last) or "logits"."""

    actions: tuple[int, ...] = eqx.field(static=True)
    states: int = eqx.field(static=True, default=1)
    coordinates: str = eqx.field(static=True, default="orthonormal")

    def __check_init__(self):
        if self.coordinates not in ("orthonormal", "dropped", "logits"):
            raise ValueError(f'coordinates must be "orthonormal", "dropped" or "logits", got {self.coordinates!r}.')

    @property
    def blocks(self) -> tuple[int, ...]:
        """How many coordinates each agent has."""
        return tuple(self.states * (K if self.coordinates == "logits" else K - 1) for K in self.actions)

    @property
    def domain(self) -> Domain:
        """The product of all simplices, or all of R^d for logits."""
        if self.coordinates == "logits":
            return Space(sum(self.blocks))
        return Simplices(tuple(K for K in self.actions for _ in range(self.states)), self.coordinates)

    def probabilities(self, point: Float[Array, "*batch d"]) -> Parts:
        """Each agent's probabilities, for each state and action."""
        parts = jnp.split(jnp.asarray(point), np.cumsum(self.blocks)[:-1], axis=-1)
        tables = [x.reshape(*x.shape[:-1], self.states, -1) for x in parts]
        if self.coordinates == "logits":
            return [jax.nn.softmax(z) for z in tables]
        return [Simplices(K, self.coordinates).complete(x)[0] for K, x in zip(self.actions, tables, strict=True)]

    def gradient(self, point: Float[Array, "*batch d"], covectors: Parts) -> Float[Array, "*batch d"]:
        """The gradient in these coordinates of a function whose gradient in the probabilities is `covectors`."""
        if self.coordinates == "logits":
            pairs = zip(self.probabilities(point), covectors, strict=True)
            parts = [p * (h - (p * h).sum(-1, keepdims=True)) for p, h in pairs]
        else:
            parts = [Simplices(h.shape[-1], self.coordinates).reduce_covectors([h]) for h in covectors]
        return jnp.concatenate([x.reshape(*x.shape[:-2], -1) for x in parts], axis=-1)

    def point(self, probabilities: Sequence[Any]) -> Float[np.ndarray, " d"]:
        """The coordinates of policies, one array (states, actions) an agent, or a `ValueError` off the simplex."""
        parts = [np.atleast_2d(as_finite(p, f"The policy of agent {i + 1}")) for i, p in enumerate(probabilities)]
        expected = [(self.states, K) for K in self.actions]
        if [p.shape for p in parts] != expected:
            raise ValueError(
                f"Give one policy an agent, with shapes (states, actions) {expected}, got {[p.shape for p in parts]}."
            )
        for i, p in enumerate(parts):
            check_probabilities(p, f"The policy of agent {i + 1}")
        if self.coordinates == "logits":
            return np.concatenate([np.log(np.maximum(p, SMALLEST)).ravel() for p in parts])
        if self.coordinates == "dropped":
            return np.concatenate([p[:, :-1].ravel() for p in parts])
        return np.concatenate([(p @ tangent_basis(p.shape[1])).ravel() for p in parts])


def check_probabilities(values: Float[np.ndarray, "*batch K"], name: str) -> None:
    """Raise a `ValueError` where a row is negative somewhere or does not sum to 1."""
    wrong = (values < -1e-9).any(-1) | (abs(values.sum(-1) - 1.0) > 1e-6)
    if wrong.any():
        row = values[wrong][0]
        raise ValueError(
            f"{name} must be non-negative and sum to 1, got {np.array2string(row, precision=4, threshold=6)} with the "
            f"sum {row.sum():.6g}: divide each row by its sum."
        )
