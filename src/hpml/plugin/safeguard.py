"""The safeguard on the angle between the raw update and the changed one."""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from hpml.geometry.arrays import Array

Scalar = Float[Array, ""]


def blend_weight(energy: Scalar, along: Scalar, change: Scalar, limit: float | jax.Array | None) -> Scalar:
    """The largest w in [0, 1] with <F + w u, F> >= limit |F + w u| |F|.

    `energy` is |F|^2, `along` <u, F> and `change` |u|^2.
    Squared, the condition is a quadratic in w that holds at w = 0; the answer is its smallest positive root, or 1.
    Where F is zero so is the answer: a fixed point of F stays one. So it is where a length is beyond the dtype.
    """
    unit = jnp.where(energy > 0, energy, 1.0)
    p, q = along / unit, change / unit  # in units of |F|^2
    fine = (energy > 0) & jnp.isfinite(p) & jnp.isfinite(q)
    if limit is None:
        return jnp.where(fine, 1.0, 0.0).astype(energy.dtype)
    rest = 1.0 - limit**2
    # The discriminant (p rest)^2 - (p^2 - limit^2 q) rest, without the p^2 that cancel: they cost float32 four digits.
    root = limit * jnp.sqrt(rest * jnp.maximum(q - p**2, 0.0)) - p * rest
    w = jnp.where(root > rest, rest / jnp.where(root > rest, root, 1.0), 1.0)
    return jnp.where(fine & jnp.isfinite(w), w, 0.0)


def angle_between(energy: Scalar, along: Scalar, change: Scalar) -> Scalar:
    """The angle in radians between F and F + u."""
    # Two roots: the product of two energies leaves float32's range.
    length = jnp.sqrt(energy) * jnp.sqrt(jnp.maximum(energy + 2.0 * along + change, 0.0))
    known = (length > 0) & jnp.isfinite(length)
    cosine = jnp.where(known, (energy + along) / jnp.where(known, length, 1.0), 1.0)
    return jnp.arccos(jnp.clip(cosine, -1.0, 1.0))
