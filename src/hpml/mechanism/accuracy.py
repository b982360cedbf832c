"""The linear 3-D field: cosine to the exact potential part -z against the number of samples (`fig:part1`)."""

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from hpml.games.families.linear import skew3d
from hpml.geometry.arrays import Array
from hpml.mechanism.config import MechanismConfig
from hpml.mechanism.projected import project_game

RHO = 4.0
QUERIES = 500
SEEDS = 3


@dataclass(frozen=True)
class Accuracy:
    """`cosines[name]` (n, seeds): the mean cosine at new points of the ball, at each sample count."""

    rho: float
    counts: Float[np.ndarray, " n"]
    raw: float
    cosines: dict[str, Float[np.ndarray, "n seeds"]]


def run_accuracy(config: MechanismConfig) -> Accuracy:
    """Every projector, over several draws of the samples; networks train long, so they get one draw."""
    game = skew3d(RHO)
    queries = np.asarray(game.domain.sample(jax.random.key(config.seed + 2), QUERIES), np.float64)
    cosines = {}
    for name, projector in config.projectors.items():
        seeds = 1 if name == "neural" or config.quick else SEEDS
        cosines[name] = np.array(
            [
                [
                    mean_cosine(project_game(game, projector, count, config.seed + 10 * k).at(queries), -queries)
                    for k in range(seeds)
                ]
                for count in config.counts
            ]
        )
    raw = mean_cosine(queries @ game.matrix.T, -queries)
    return Accuracy(RHO, np.asarray(config.counts, float), raw, cosines)


def mean_cosine(left: Float[Array, "n d"], right: Float[Array, "n d"]) -> float:
    """The mean cosine of the angles between rows."""
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return float(((left * right).sum(1) / np.maximum(lengths, 1e-300)).mean())
