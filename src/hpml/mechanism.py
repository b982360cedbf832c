"""The field whose answer is known, -z + rho J z in the unit disc: what each projector makes of it (`def:proj`).

The rotation rho J z is orthogonal to every gradient on the disc, so the exact projection is -z, its potential is
-|z|^2 / 2, and the exact non-potentiality is rho^2 / (1 + rho^2).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import numpy as np

from hpml.geometry.domain import Ball
from hpml.projection.project import Projection, project
from hpml.projection.projector import Projector
from hpml.projection.projectors.graph import GraphProjector
from hpml.projection.projectors.kernel import KernelProjector
from hpml.projection.projectors.neural import NeuralProjector

DISC = Ball(np.zeros(2))
QUARTER_TURN = np.array([[0.0, -1.0], [1.0, 0.0]])
PROJECTORS: dict[str, Projector] = {
    "graph (paper)": GraphProjector.paper(),
    "graph": GraphProjector(),
    "kernel (default)": KernelProjector(),
    "neural": NeuralProjector(),
}
SHOWN = "kernel (default)"


@dataclass(frozen=True)
class MechanismConfig:
    """Which field is split, and from how many samples."""

    samples: int = 400
    """How many points of the disc the field is sampled at."""
    rho: float = 2.0
    """How strong the rotation is, against a pull to the centre of strength 1."""
    noise: float = 0.0
    """Standard deviation of the noise on each estimate of the field; above 0 two estimates are given."""
    queries: int = 1000
    """How many new points of the disc the error is measured at."""
    seed: int = 0
    """Which random samples are drawn: the same seed gives the same numbers."""

    def __post_init__(self) -> None:
        if self.samples < 10:
            raise ValueError(f"--samples must be at least 10, got {self.samples}.")
        if self.queries < 1:
            raise ValueError(f"--queries must be at least 1, got {self.queries}.")
        if not (np.isfinite(self.rho) and np.isfinite(self.noise) and self.noise >= 0):
            raise ValueError("--rho and --noise must be finite, and --noise must not be negative.")


@dataclass(frozen=True)
class MechanismRow:
    """One projector's answer against -z.

    - `error` and `cosine` are relative error and mean cosine at new points, `sample_error` is the error at the samples.
    - `nonpotentiality` and `noise` are shares of the energy; `split` is the field to draw.
    """

    name: str
    error: float
    sample_error: float
    cosine: float
    nonpotentiality: float
    exact_nonpotentiality: float
    noise: float
    seconds: float
    split: "SplitField"


@dataclass(frozen=True)
class SplitField:
    """A field, its potential part and its residual on a lattice of the disc, and the potential on a finer grid."""

    points: np.ndarray
    field: np.ndarray
    direction: np.ndarray
    residual: np.ndarray
    axis: np.ndarray
    potential: np.ndarray


def joint_field(points: np.ndarray, rho: float) -> np.ndarray:
    """F(z) = -z + rho J z."""
    return -points + rho * points @ QUARTER_TURN.T


def run_mechanism(config: MechanismConfig) -> Iterator[MechanismRow]:
    """One row a projector, each as soon as it is known."""
    keys = jax.random.split(jax.random.key(config.seed), 4)
    points = np.asarray(DISC.sample(keys[0], config.samples), np.float64)
    field = joint_field(points, config.rho)
    if config.noise > 0:
        field = field + config.noise * np.asarray(jax.random.normal(keys[1], (2, *field.shape)), np.float64)
    queries = np.asarray(DISC.sample(keys[2], config.queries), np.float64)
    for name, projector in PROJECTORS.items():
        start = time.perf_counter()
        projection = project(points, field, projector, key=keys[3])
        seconds = time.perf_counter() - start
        yield _row(name, projection, points, queries, config.rho, seconds)


def _row(
    name: str, projection: Projection, points: np.ndarray, queries: np.ndarray, rho: float, seconds: float
) -> MechanismRow:
    answer, exact = projection.at(queries), -queries
    energy = projection.energy
    total = energy.potential + energy.circulation + energy.noise
    cosine = (answer * exact).sum(1) / np.maximum(
        np.linalg.norm(answer, axis=1) * np.linalg.norm(exact, axis=1), 1e-300
    )
    return MechanismRow(
        name=name,
        error=float(np.linalg.norm(answer - exact) / np.linalg.norm(exact)),
        sample_error=float(np.linalg.norm(projection.direction + points) / np.linalg.norm(points)),
        cosine=float(cosine.mean()),
        nonpotentiality=projection.nonpotentiality,
        exact_nonpotentiality=rho**2 / (1 + rho**2),
        noise=energy.noise / total if total > 0 else 0.0,
        seconds=seconds,
        split=_split(projection, rho),
    )


def _split(projection: Projection, rho: float) -> SplitField:
    lattice = _in_disc(np.linspace(-0.88, 0.88, 9), 0.95)
    axis = np.linspace(-1.0, 1.0, 61)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    potential = np.full(len(grid), np.nan)
    inside = np.linalg.norm(grid, axis=1) <= 0.97  # contours at the rim would be cut into dashes
    potential[inside] = projection.potential_at(grid[inside])
    field, direction = joint_field(lattice, rho), np.asarray(projection.at(lattice))
    return SplitField(lattice, field, direction, field - direction, axis, potential.reshape(len(axis), len(axis)))


def _in_disc(axis: np.ndarray, radius: float) -> np.ndarray:
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    return points[np.linalg.norm(points, axis=1) <= radius]
