"""The contract that every projector keeps, and what a projection reports.

A projector is a frozen set of hyperparameters. `fit` takes samples of any number and returns a `Fit`, on the host, in
float64. The `local_*` methods do the same for a trainer's history: fixed shapes, a mask, everything under jit, so that
the plug-in can refresh them inside a compiled step. Adding a projector is adding one file to `projectors/` (see
CONTRIBUTING.md).
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from hpml.geometry.arrays import Array, kind_of
from hpml.geometry.metric import Metric
from hpml.geometry.samples import Measure, Samples


class Energy(eqx.Module):
    """E|F|_M^2 of the observed field in three parts that add up to it (`cor:pythag`, and the noise).

    The total and the noise are averages over the samples, which is where the field was observed. The signal that is
    left is shared out between potential and circulation as under the measure, where the split is orthogonal.
    """

    potential: float
    circulation: float
    noise: float

    @property
    def nonpotentiality(self) -> float:
        """The share of the field's own energy, noise taken out, that is circulation; 0 for a zero field."""
        total = self.potential + self.circulation
        return float(np.clip(self.circulation / total, 0.0, 1.0)) if total > 0 else 0.0


class Prediction(eqx.Module):
    """What a fit says at new points, each with one standard deviation."""

    potential: Float[Array, " q"]
    direction: Float[Array, "q d"]
    residual: Float[Array, "q d"]
    potential_std: Float[Array, " q"]
    direction_std: Float[Array, "q d"]
    residual_std: Float[Array, "q d"]


class Fit(eqx.Module):
    """A projector's answer: a potential and its metric gradient."""

    @abstractmethod
    def at_samples(self) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
        """Potential and projected field at the distinct samples.

        The potential has mean zero in the samples' weights on each connected part: see `mean_zero`.
        """

    @abstractmethod
    def potential(self, points: Float[Array, "q d"]) -> Float[Array, " q"]:
        """The potential at new points."""

    @abstractmethod
    def direction(self, points: Float[Array, "q d"]) -> Float[Array, "q d"]:
        """The projected field M^-1 grad Phi at new points."""

    @abstractmethod
    def energy(self) -> Energy:
        """Potential, circulation and noise in the observed field."""


class LocalSamples(eqx.Module):
    """A history inside its chart: fixed shapes, Euclidean metric, `mask` False where a row is empty."""

    points: Float[Array, "n r"]
    field: Float[Array, "n r"]
    mask: Bool[Array, " n"]


class Projector(eqx.Module):
    """How a field is split: hyperparameters only, data arrives in the calls."""

    @abstractmethod
    def fit(self, samples: Samples, metric: Metric, measure: Measure = None, key: Any = None) -> Fit:
        """Split sampled data of any size, on the host in float64."""

    @abstractmethod
    def local_init(self, count: int, rank: int, key: jax.Array) -> Any:
        """The state of a local fit before any data, a pytree whose shapes never change."""

    @abstractmethod
    def local_fit(self, state: Any, samples: LocalSamples) -> Any:
        """Fit the history, under jit; the new state has the old one's shapes and dtypes."""

    @abstractmethod
    def local_residual(self, state: Any, point: Float[Array, " r"], field: Float[Array, " r"]) -> Float[Array, " r"]:
        """The part of the field at a point that the fit takes for circulation, zero where it cannot see."""

    def local_direction(self, state: Any, point: Float[Array, " r"], field: Float[Array, " r"]) -> Float[Array, " r"]:
        """The projected field at a point: what is left of the field, unless the projector knows better."""
        return field - self.local_residual(state, point, field)


def check_projector(projector: Any) -> None:
    """A `ValueError` where it is none, such as a name or a class."""
    if not isinstance(projector, Projector):
        raise ValueError(f"projector must be made, as in hpml.GraphProjector(neighbours=16); got {kind_of(projector)}.")


def mean_zero(
    potential: Float[Array, " n"], weights: Float[Array, " n"], labels: Int[Array, " n"]
) -> Float[np.ndarray, " n"]:
    """The potential in the gauge of every projector: of mean zero in the samples' weights on each connected part.

    A potential is known up to a constant on each part. Repeated points are one distinct point of that many times the
    weight, so that without given weights the plain mean over the given rows is zero.
    """
    phi, w, part = np.asarray(potential), np.asarray(weights), np.asarray(labels, np.intp)
    return phi - (np.bincount(part, w * phi) / np.bincount(part, w))[part]
