"""The Jacobian split S + A of a field and its antisymmetric energy (`def:rot_energy`, `rem:residual_quantitative`).

In a metric M the one-form Y = M F is split: K = dY, S = (K + K^T) / 2, B = (K - K^T) / 2. For constant M these are
(M J + J^T M) / 2 and (M J - J^T M) / 2. B is a bilinear form, so its energy is measured in the metric too,
|W^-T B W^-1|_F^2 with M = W^T W: the energy that a user of the coordinates y = W x would find with M = I.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array, as_matrix, in_double
from hpml.geometry.metric import Euclidean, Metric, Varying

Field = Callable[..., Any]  # of one point, in JAX: a game's `field` or any such function


class JacobianSplit(eqx.Module):
    """K = dY at each point as `symmetric` + `antisymmetric`, and `energy`, the size of the second in the metric."""

    symmetric: Float[np.ndarray, "n d d"]
    antisymmetric: Float[np.ndarray, "n d d"]
    energy: Float[np.ndarray, " n"]

    @property
    def jacobian(self) -> Float[np.ndarray, "n d d"]:
        """The Jacobian of Y = M F, of F itself where M = I."""
        return self.symmetric + self.antisymmetric


class EnergyEstimate(eqx.Module):
    """An unbiased estimate of the antisymmetric energy at each point, with its standard error."""

    value: Float[np.ndarray, " n"]
    error: Float[np.ndarray, " n"]


def split_jacobian(field: Field, points: Any, metric: Metric | None = None) -> JacobianSplit:
    """S, A and |A|^2 at each point by automatic differentiation; `field` is a JAX function of one point."""
    X, metric = as_matrix(points, "points"), traceable(metric)
    K, size = _split(field, X, metric)
    swapped = np.swapaxes(K, 1, 2)
    return JacobianSplit((K + swapped) / 2, (K - swapped) / 2, size)


def antisymmetric_energy(field: Field, points: Any, metric: Metric | None = None) -> Float[np.ndarray, " n"]:
    """R(x) = |A(x)|_F^2 at each point."""
    return split_jacobian(field, points, metric).energy


def estimate_energy(
    field: Field, points: Any, metric: Metric | None = None, probes: int = 64, seed: int = 0
) -> EnergyEstimate:
    """|A(x)|_F^2 = E |A v|^2 over random signs v, without ever forming A: one jvp and one vjp a probe.

    Probes are drawn anew for every point, so that the errors of different points are independent.
    """
    X, metric = as_matrix(points, "points"), traceable(metric)
    if probes < 2:
        raise ValueError(f"A standard error needs at least two probes, got {probes}.")
    signs = np.random.default_rng(seed).integers(0, 2, size=(probes, *X.shape)).astype(np.float64) * 2 - 1
    squares = np.stack([_turned(field, X, v, metric) for v in signs])
    return EnergyEstimate(squares.mean(0), squares.std(0, ddof=1) / np.sqrt(probes))


def traceable(metric: Metric | None) -> Metric:
    """The metric, Euclidean where none is given, or a `ValueError` where it cannot be differentiated."""
    metric = Euclidean() if metric is None else metric
    if isinstance(metric, Varying):
        raise ValueError("A metric from a Python function cannot be differentiated: use a constant one or Shahshahani.")
    return metric


def one_form(field: Field, metric: Metric) -> Field:
    """Y(x) = M(x) F(x)."""
    return lambda x: metric.lower(field(x), x)


@in_double
def _split(field: Field, points: Array, metric: Metric) -> tuple[Array, Array]:
    def one(x):
        K = jax.jacfwd(one_form(field, metric))(x)
        rows = metric.whiten_covector((K - K.T) / 2, x)  # the right factor W^-1
        return K, jnp.sum(metric.whiten_covector(rows.T, x) ** 2)

    return jax.vmap(one)(points)


@in_double
def _turned(field: Field, points: Array, vectors: Array, metric: Metric) -> Array:
    def one(x, v):
        u = metric.unwhiten(v, x)
        form = one_form(field, metric)
        _, forward = jax.jvp(form, (x,), (u,))
        (reverse,) = jax.vjp(form, x)[1](u)
        return jnp.sum(metric.whiten_covector((forward - reverse) / 2, x) ** 2)

    return jax.vmap(one)(points, vectors)
