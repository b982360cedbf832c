"""Potentials that certificates can take: closed forms, JAX functions, pairs of functions, and projections."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from hpml.certificates.certificate import Constant
from hpml.geometry.arrays import Array, as_finite, as_matrix, in_double
from hpml.projection.project import Projection

Points = Float[np.ndarray, "n d"]
MANY = 64  # coordinates above which Hessians are not formed


class Potential(eqx.Module):
    """Phi and its gradient at many points, and what is known about them (`ass:smooth`)."""

    @abstractmethod
    def value(self, points: Points) -> Float[np.ndarray, " n"]:
        """Phi at each point."""

    @abstractmethod
    def gradient(self, points: Points) -> Points:
        """grad Phi at each point."""

    def smoothness(self, points: Points) -> Constant | None:
        """L, or what these points say about it, or None where gradients alone must tell."""
        return None

    @property
    def rounding(self) -> float:
        """The relative rounding of `value` and `gradient`."""
        return 64 * float(np.finfo(np.float64).eps)

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Assumptions about this kind of potential that cannot be checked from its values."""
        return ()


class Quadratic(Potential):
    """Phi(x) = x^T H x / 2 + <h, x>, with L = |H|."""

    matrix: Float[np.ndarray, "d d"]
    slope: Float[np.ndarray, " d"]

    def __init__(self, matrix: Any, slope: Any = None):
        H = as_matrix(matrix, "matrix")
        if H.shape[0] != H.shape[1]:
            raise ValueError(f"A quadratic needs a square matrix, got {H.shape}.")
        self.matrix = (H + H.T) / 2  # the antisymmetric part does nothing to the value
        self.slope = np.zeros(len(H)) if slope is None else as_finite(slope, "slope")

    def value(self, points):
        """See `Potential.value`."""
        return ((points @ self.matrix) * points).sum(-1) / 2 + points @ self.slope

    def gradient(self, points):
        """See `Potential.gradient`."""
        return points @ self.matrix + self.slope

    def smoothness(self, points):
        """See `Potential.smoothness`."""
        return Constant(float(np.linalg.norm(self.matrix, 2)), "computed", "the norm of the quadratic's matrix")


class Differentiable(Potential):
    """Phi as a JAX function of one point."""

    function: Callable[..., Any]

    def value(self, points):
        """See `Potential.value`."""
        return _value(self.function, points)

    def gradient(self, points):
        """See `Potential.gradient`."""
        return _gradient(self.function, points)

    def smoothness(self, points):
        """See `Potential.smoothness`."""
        if points.shape[1] > MANY:
            return None
        H = _hessian(self.function, points)
        return Constant(float(np.linalg.norm(H, 2, axis=(1, 2)).max()), "estimated", f"Hessians at {len(H)} points")


class Given(Potential):
    """Phi and grad Phi as functions of many points, with L where it is known."""

    potential: Callable[..., Any]
    slope: Callable[..., Any]
    bound: float | None = None

    def value(self, points):
        """See `Potential.value`."""
        return as_finite(self.potential(points), "potential")

    def gradient(self, points):
        """See `Potential.gradient`."""
        return as_matrix(self.slope(points), "gradient")

    def smoothness(self, points):
        """See `Potential.smoothness`."""
        return None if self.bound is None else Constant(float(self.bound), "given", "by the caller")


class Projected(Potential):
    """The potential of a projection and the projected field as its gradient."""

    projection: Projection

    def value(self, points):
        """See `Potential.value`."""
        return np.asarray(self.projection.potential_at(points), np.float64)

    def gradient(self, points):
        """See `Potential.gradient`."""
        return np.asarray(self.projection.at(points), np.float64)

    @property
    def rounding(self) -> float:
        """See `Potential.rounding`: sums over many samples with coefficients of either sign."""
        return 1e-9

    @property
    def unchecked(self) -> tuple[str, ...]:
        """See `Potential.unchecked`."""
        return ("the projection was made in the Euclidean metric",)


@in_double
def _value(function: Callable, points: Array) -> Array:
    return jax.vmap(function)(points)


@in_double
def _gradient(function: Callable, points: Array) -> Array:
    return jax.vmap(jax.grad(function))(points)


@in_double
def _hessian(function: Callable, points: Array) -> Array:
    return jax.vmap(jax.hessian(function))(points)
