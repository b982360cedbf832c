"""Fits to a history and to halves of it, so that what is said of a sample need not come from its own noise."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from hpml.geometry.arrays import Array
from hpml.projection.projector import LocalSamples, Projector

Scalar = Float[Array, ""]


class Fits(NamedTuple):
    """A fit to all samples, and two to every second of them in time, stacked; None where nobody asked for those."""

    whole: Any
    folds: Any


def unfitted(projector: Projector, count: int, rank: int, key: jax.Array, cross_fit: bool = True) -> Fits:
    """Before the first fit."""
    whole = projector.local_init(count, rank, key)
    return Fits(whole, jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), whole) if cross_fit else None)


def residual_at(projector: Projector, fit: Any, point: Array, field: Array) -> Array:
    """The fitted residual in the chart, zero where a projector has no finite answer."""
    dtype = jnp.result_type(float)
    R = projector.local_residual(fit, point.astype(dtype), field.astype(dtype))
    return jnp.where(jnp.all(jnp.isfinite(R)), R, 0.0)


def residuals(projector: Projector, fit: Any, samples: LocalSamples) -> Float[Array, "n r"]:
    """The fitted residual at every row."""
    return jax.vmap(lambda y, f: residual_at(projector, fit, y, f))(samples.points, samples.field)


def fitted(projector: Projector, fits: Fits, samples: LocalSamples) -> tuple[Fits, Scalar]:
    """A fit to all rows, and the share of its residual in the field's energy."""
    fit = projector.local_fit(fits.whole, samples)
    circulating = energy_of(residuals(projector, fit, samples), samples)
    return Fits(fit, None), share_of(circulating, energy_of(samples.field, samples))


def cross_fitted(
    projector: Projector, fits: Fits, samples: LocalSamples, times: Int[Array, " n"]
) -> tuple[Fits, Scalar, Scalar]:
    """The same with fits to every second row in time, and <R, F> over |F|^2 cross-fitted.

    In the last R at every second row comes from the fit to the other rows, and the other way round. A projector that
    goes on from an old fit has seen all rows before: its answer is not held out.
    """
    place = jnp.argsort(jnp.argsort(jnp.where(samples.mask, times, jnp.iinfo(times.dtype).max)))
    odd = place % 2 == 1
    masks = jnp.stack([samples.mask, samples.mask & ~odd, samples.mask & odd])

    def one(mask: Array) -> tuple[Any, Array]:
        part = projector.local_fit(fits.whole, LocalSamples(samples.points, samples.field, mask))
        return part, residuals(projector, part, samples)

    # One vmapped fit compiles in a third of the time of three.
    found, R = jax.vmap(one)(masks)
    other = jnp.where(odd[:, None], R[1], R[2])
    product = jnp.sum(jnp.where(samples.mask[:, None], other * samples.field, 0.0))
    energy = energy_of(samples.field, samples)
    whole, folds = (jax.tree.map(lambda leaf, at=at: leaf[at], found) for at in (0, slice(1, None)))
    return Fits(whole, folds), share_of(energy_of(R[0], samples), energy), share_of(product, energy)


def energy_of(rows: Array, samples: LocalSamples) -> Array:
    """The sum of squares of the rows that count."""
    return jnp.sum(jnp.where(samples.mask[:, None], rows, 0.0) ** 2)


def share_of(part: Array, whole: Array) -> Scalar:
    """A part of an energy, between 0 and 1; 0 where there is none."""
    part, whole = (jnp.asarray(value).astype(jnp.float32) for value in (part, whole))
    return jnp.clip(jnp.where(whole > 0, part / jnp.where(whole > 0, whole, 1.0), 0.0), 0.0, 1.0)
