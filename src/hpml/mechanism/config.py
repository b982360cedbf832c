"""What `hpml mechanism` runs, and how much of it (`subsec:exp_interpretable`)."""

from dataclasses import dataclass

import numpy as np

from hpml.projection.projector import Projector
from hpml.projection.projectors.graph import GraphProjector
from hpml.projection.projectors.kernel import KernelProjector
from hpml.projection.projectors.neural import NeuralProjector

PAPER, OURS = "graph (paper)", "kernel (default)"


@dataclass(frozen=True)
class MechanismConfig:
    """How large the experiments are; everything else is fixed, so that two reports can be compared."""

    quick: bool = False
    """A small form of every experiment, for a first look."""
    rho: float = 2.0
    """How strong the rotation is in the portraits, against a pull to the centre of strength 1."""
    seed: int = 0
    """Which random samples and starts are drawn: the same seed gives the same numbers."""
    processes: int = 2
    """How many processes share the experiments."""

    def __post_init__(self) -> None:
        if not np.isfinite(self.rho):
            raise ValueError(f"--rho must be finite, got {self.rho}.")
        if self.processes < 1:
            raise ValueError(f"--processes must be at least 1, got {self.processes}.")
        if self.seed < 0:
            raise ValueError(f"--seed must not be negative, got {self.seed}.")

    @property
    def samples(self) -> int:
        """How many points the field is sampled at."""
        return 300 if self.quick else 1000

    @property
    def steps(self) -> int:
        """How many steps a run takes."""
        return 300 if self.quick else 500

    @property
    def starts(self) -> int:
        """How many starts a run has."""
        return 4 if self.quick else 8

    @property
    def rhos(self) -> tuple[float, ...]:
        """The rotations of the sweeps."""
        return (0.0, 1.0, 2.0, 4.0) if self.quick else (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0)

    @property
    def counts(self) -> tuple[int, ...]:
        """The sample counts of the 3-D test."""
        return (50, 200) if self.quick else (50, 200, 1000)

    @property
    def projectors(self) -> dict[str, Projector]:
        """The projectors that are compared, by name."""
        neural = NeuralProjector(width=32, steps=600 if self.quick else 1500, members=2)
        return {PAPER: GraphProjector.paper(), "graph": GraphProjector(), OURS: KernelProjector(), "neural": neural}
