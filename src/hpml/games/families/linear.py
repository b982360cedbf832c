"""Linear fields whose split is known: the 2-D swirl, the 3-D field with a known skew, the saddle, the pure rotation.

z -> -z + rho S z has the exact potential part -z on balls around the origin, and the exact share of circulation is
rho^2 |S|_F^2 / (d + rho^2 |S|_F^2) there. `rotation` is the residual-only field of `prop:residual_rotation_fp`,
`saddle` that of `ex:bilinear_app` for vectors.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

from hpml.games.game import Game
from hpml.geometry.arrays import Array, as_matrix
from hpml.geometry.domain import Ball, Domain

QUARTER_TURN = np.array([[0.0, -1.0], [1.0, 0.0]])


class Linear(Game):
    """F(z) = J z on a domain, with the origin at rest; `blocks` says which coordinates belong to which agent."""

    matrix: Float[Array, "d d"]
    region: Domain
    sizes: tuple[int, ...]

    def __init__(self, matrix: Any, domain: Domain | None = None, blocks: tuple[int, ...] | None = None):
        self.matrix = as_matrix(matrix, "matrix")
        d = len(self.matrix)
        if self.matrix.shape != (d, d):
            raise ValueError(f"A linear field needs a square matrix, got {self.matrix.shape}.")
        self.region = Ball(np.zeros(d)) if domain is None else domain
        self.sizes = (1,) * d if blocks is None else tuple(blocks)
        if self.region.dimension != d or sum(self.sizes) != d:
            raise ValueError(
                f"The matrix has {d} coordinates, the domain {self.region.dimension}, the blocks {sum(self.sizes)}: "
                "they must agree."
            )

    @property
    def domain(self):
        """See `Game.domain`."""
        return self.region

    @property
    def blocks(self):
        """See `Game.blocks`."""
        return self.sizes

    @property
    def equilibrium(self):
        """See `Game.equilibrium`."""
        return np.zeros(len(self.matrix))

    def field(self, point):
        """See `Game.field`."""
        return self.matrix @ point

    @property
    def exact_nonpotentiality(self) -> float:
        """The share |A|_F^2 / |J|_F^2 of circulation, exact for isotropic measures around the origin."""
        skew = (self.matrix - self.matrix.T) / 2
        return float((skew**2).sum() / (self.matrix**2).sum())


def swirl(rho: float = 2.0) -> Linear:
    """The 2-D field -z + rho J z on the unit disc."""
    return Linear(rho * QUARTER_TURN - np.eye(2))


def skew3d(rho: float = 2.0, axis: Any = (1.0, 2.0, 2.0)) -> Linear:
    """The 3-D field -z + rho S z on the unit ball; S turns around `axis` and has spectral norm 1."""
    a = np.asarray(axis, np.float64) / np.linalg.norm(axis)
    S = np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])
    return Linear(rho * S - np.eye(3))


def saddle(size: int = 1, pull: float = 0.0) -> Linear:
    """min_u max_v <u, v> for vectors of `size`, with an optional pull of both to the origin."""
    I, O = np.eye(size), np.zeros((size, size))
    return Linear(np.block([[O, -I], [I, O]]) - pull * np.eye(2 * size), blocks=(size, size))


def rotation() -> Linear:
    """R(u, v) = (v, -u): all residual, no potential."""
    return Linear(-QUARTER_TURN)


def examples() -> dict[str, Game]:
    """Games of this family by name."""
    return {"swirl": swirl(), "skew3d": skew3d(), "saddle": saddle(2), "rotation": rotation()}
