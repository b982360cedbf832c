"""Ways to move and stay feasible: Euclidean projection, the softmax (entropic mirror) step, or nothing at all."""

import jax
import jax.numpy as jnp

from hpml.dynamics.rule import Move
from hpml.geometry.arrays import Array, in_double
from hpml.geometry.domain import Domain, Simplices

FLOOR = 1e-300  # an action without probability stays so; its logarithm must not be -inf


@in_double
def _project(domain: Domain, points: Array, step: Array) -> Array:
    return domain.retract(points + step)


@in_double
def _mirror(domain: Simplices, points: Array, step: Array) -> Array:
    pairs = zip(domain.complete(points), domain.complete_covectors(step), strict=True)
    return domain.reduce([jax.nn.softmax(jnp.log(jnp.maximum(p, FLOOR)) + h) for p, h in pairs])


def retraction(domain: Domain, kind: str = "euclidean") -> Move:
    """The move named "euclidean" (closest feasible point), "softmax" (p exp(step), normalised) or "identity"."""
    if kind == "euclidean":
        return lambda points, step: _project(domain, points, step)
    if kind == "identity":
        return lambda points, step: points + step
    if kind != "softmax":
        raise ValueError(f'retraction must be "euclidean", "softmax" or "identity", got {kind!r}.')
    if not isinstance(domain, Simplices):
        raise ValueError('The softmax retraction moves mixed strategies: use "euclidean" on this domain.')
    return lambda points, step: _mirror(domain, points, step)
