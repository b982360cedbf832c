"""Disc-game planes: the antisymmetric part of a game as a sum of rotations in planes (`def:rot_energy`).

An antisymmetric matrix is A = sum_k s_k (v_k u_k^T - u_k v_k^T) with orthonormal pairs (u_k, v_k): in the plane of u_k
and v_k it turns u_k towards v_k with strength s_k, and it does nothing else. For an antisymmetric payoff matrix each
plane is a disc game (Balduzzi et al. 2019, Open-ended learning in symmetric zero-sum games): a strategy is a point of
the plane, and it beats those that lie less than half a turn ahead of it.
"""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array, as_matrix
from hpml.projection.witness import Witness

NEGLIGIBLE = 1e-12  # a plane this much weaker than the matrix is rounding


class DiscPlanes(eqx.Module):
    """Rotation planes, the strongest first.

    - `strengths` (p,): s_k, the turning rate in each plane.
    - `axes` (p, 2, d): dual pairs (u_k, v_k); `embed` gives the coordinates of points along them.
    - `shares` (p,): 2 s_k^2 / |A|_F^2, each plane's share of the antisymmetric energy, summing to 1.
    - `antisymmetric`: |A|_F^2 / |J|_F^2, the share of the whole matrix that turns.
    - `centre` (d,): where the planes meet.
    """

    strengths: Float[Array, " p"]
    axes: Float[Array, "p 2 d"]
    shares: Float[Array, " p"]
    antisymmetric: float
    centre: Float[Array, " d"]

    @property
    def count(self) -> int:
        """The number p of planes."""
        return len(self.strengths)

    def embed(self, points: Any) -> Float[Array, "n p 2"]:
        """The coordinates of points in every plane."""
        X = as_matrix(points, "points")
        if X.shape[1] != self.axes.shape[2]:
            raise ValueError(f"points must have {self.axes.shape[2]} columns like the planes, got {X.shape[1]}.")
        return np.einsum("nd,pcd->npc", X - self.centre, self.axes)


def disc_planes(matrix: Any, centre: Any = None, limit: int | None = None) -> DiscPlanes:
    """The planes of the antisymmetric part A = (J - J^T) / 2 of a square matrix: a Jacobian, or payoffs.

    - `centre`: where the planes meet, the origin unless given.
    - `limit`: keep at most so many planes.
    """
    J = as_matrix(matrix, "matrix")
    if J.shape[0] != J.shape[1]:
        raise ValueError(f"Disc planes need a square matrix, got {J.shape}.")
    A = 0.5 * (J - J.T)
    strengths, axes = _planes(A)
    whole, energy = float((J**2).sum()), float((A**2).sum())
    middle = np.zeros(len(J)) if centre is None else np.asarray(centre, np.float64)
    shares = 2.0 * strengths**2 / energy if energy > 0 else strengths
    kept = slice(limit)
    return DiscPlanes(strengths[kept], axes[kept], shares[kept], energy / whole if whole > 0 else 0.0, middle)


def disc_embedding(payoffs: Any) -> Float[np.ndarray, "n p 2"]:
    """Strategies of an antisymmetric payoff matrix as points of disc games.

    P[i, j] is the sum over planes of y_i1 y_j2 - y_i2 y_j1: i wins where j lies less than half a turn ahead of it.
    """
    P = as_matrix(payoffs, "payoffs")
    if P.shape[0] != P.shape[1] or np.abs(P + P.T).max() > 1e-9 * max(np.abs(P).max(), 1e-300):
        raise ValueError("payoffs must be antisymmetric, P = -P^T: what one strategy gains the other loses.")
    planes = disc_planes(P)
    # P = sum s (v u^T - u v^T), and the disc game of (y1, y2) is y1 y2'^T - y2 y1'^T: so y1 is along v and y2 along u.
    u, v = planes.axes[:, 0], planes.axes[:, 1]
    return np.stack([v, u], -1).transpose(1, 0, 2) * np.sqrt(planes.strengths)[None, :, None]


def witness_planes(witness: Witness, centre: Any, limit: int = 3) -> DiscPlanes:
    """The planes that samples show (`hpml.nonpotentiality(...).witness`), in standard deviations of the points."""
    half = np.asarray(witness.planes)[:limit]
    energy = 2.0 * float((np.asarray(witness.strengths) ** 2).sum())
    strengths = np.asarray(witness.strengths)[:limit]
    # The half-axes span an ellipse one standard deviation wide; its dual pair measures along them.
    axes = np.stack([np.linalg.pinv(pair).T for pair in half]) if len(half) else np.empty((0, *half.shape[1:]))
    shares = 2.0 * strengths**2 / energy if energy > 0 else strengths
    return DiscPlanes(strengths, axes, shares, float(witness.size) ** 2, np.asarray(centre, np.float64))


def _planes(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Strengths (p,) and orthonormal pairs (p, 2, d) with A u = s v, A v = -s u."""
    values, vectors = np.linalg.eigh(1j * A)
    order = np.argsort(-values)
    order = order[values[order] > NEGLIGIBLE * max(float(np.abs(values).max(initial=0.0)), 1e-300)]
    # i A z = s z with z = (a + i b) / sqrt(2) gives A a = s b and A b = -s a, with |a| = |b| = 1.
    z = np.sqrt(2.0) * vectors[:, order].T
    return values[order], np.stack([z.real, z.imag], 1)
