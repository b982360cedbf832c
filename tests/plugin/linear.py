"""A projector that fits F = a + J (y - mean) by least squares: the residual is the antisymmetric part of J."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from hpml.projection.projector import LocalSamples, Projector


class Linear(eqx.Module):
    skew: Any
    centre: Any


class LinearProjector(Projector):
    """For tests only; exact for affine fields whose potential part has no trace of the skew one."""

    def fit(self, samples, metric, measure=None, key=None):
        raise NotImplementedError

    def local_init(self, count, rank, key):
        return Linear(jnp.zeros((rank, rank)), jnp.zeros(rank))

    def local_fit(self, state, samples: LocalSamples):
        m = samples.mask[:, None].astype(samples.points.dtype)
        total = jnp.maximum(m.sum(), 1.0)
        centre = (samples.points * m).sum(0) / total
        y, f = (samples.points - centre) * m, (samples.field - (samples.field * m).sum(0) / total) * m
        J = (jnp.linalg.pinv(y, rtol=1e-3) @ f).T
        return Linear(0.5 * (J - J.T), centre)

    def local_residual(self, state, point, field):
        return state.skew @ (point - state.centre)
