"""The exact projection of an affine field under an elliptically symmetric measure (`def:proj`, `rem:jac_bridge`).

For F(x) = a + J (x - mean) and a Gaussian, a uniform ellipsoid or any other elliptical law with covariance C, the
projection is again affine, a + M^-1 H (x - mean), with the symmetric H that solves the Lyapunov equation

    M^-1 H C + C H M^-1 = J C + C J^T.

With M = I it is the symmetric part of J only where C is isotropic. It does not hold on a box or a simplex: rotation
that crosses their boundary leaves a gradient part. It is an oracle for tests, not a step of an estimator: taking an
affine fit out around the empirical mean makes small-sample answers worse.
"""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array, as_finite
from hpml.geometry.metric import Euclidean, Metric


class AffineProjection(eqx.Module):
    """The split of an affine field: `direction` and `residual` are affine again.

    - `jacobian` is M^-1 H, the Jacobian of the projected field; `hessian` is H, the potential's.
    - `offset` is a, the field at `mean`.
    - `circulation` is the Jacobian of the residual, J - M^-1 H.
    - `nonpotentiality` is E|R|_M^2 / E|F|_M^2, 0 for a zero field.
    """

    jacobian: Float[Array, "d d"]
    hessian: Float[Array, "d d"]
    offset: Float[Array, " d"]
    circulation: Float[Array, "d d"]
    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]
    nonpotentiality: float
    metric: Metric

    def direction(self, points: Float[Array, "q d"]) -> Float[Array, "q d"]:
        """The projected field a + M^-1 H (x - mean)."""
        return self.offset + (np.asarray(points) - self.mean) @ self.jacobian.T

    def residual(self, points: Float[Array, "q d"]) -> Float[Array, "q d"]:
        """F - direction, which every metric gradient is orthogonal to."""
        return (np.asarray(points) - self.mean) @ self.circulation.T

    def potential(self, points: Float[Array, "q d"]) -> Float[Array, " q"]:
        """Phi with mean zero under the measure."""
        steps = np.asarray(points) - self.mean
        slope = self.metric.lower(self.offset)
        return (
            steps @ slope
            + 0.5 * ((steps @ self.hessian) * steps).sum(-1)
            - 0.5 * np.sum(self.hessian * self.covariance)
        )


def affine_projection(
    J: Any, offset: Any = 0.0, covariance: Any = None, metric: Metric | None = None, mean: Any = None
) -> AffineProjection:
    """Project F(x) = offset + J (x - mean) in L2(M, mu), mu elliptically symmetric with this mean and covariance.

    The covariance is the identity and the mean zero unless given; the metric must be constant.
    """
    J = as_finite(J, "J")
    if J.ndim != 2 or J.shape[0] != J.shape[1] or not len(J):
        raise ValueError(f"J must be a square matrix, the field's Jacobian; got shape {J.shape}.")
    d = len(J)
    metric = Euclidean() if metric is None else metric
    metric.check(d)
    if not metric.constant:
        raise ValueError("The closed form needs a constant metric: pass the metric at one point, or project samples.")
    a = _vector(offset, d, "offset")
    centre = _vector(0.0 if mean is None else mean, d, "mean")
    C = np.eye(d) if covariance is None else as_finite(covariance, "covariance")
    if C.shape != (d, d) or not np.allclose(C, C.T, rtol=1e-8, atol=1e-10 * np.abs(C).max(initial=0.0)):
        raise ValueError(f"covariance must be a symmetric matrix of shape ({d}, {d}), got shape {C.shape}.")
    C = 0.5 * (C + C.T)

    # In y = W (x - mean) the metric is Euclidean and the equation reads K C_y + C_y K = J_y C_y + C_y J_y^T.
    eye = np.eye(d)
    W, W_inverse = np.asarray(metric.whiten(eye)).T, np.asarray(metric.unwhiten(eye)).T
    J_y, C_y = W @ J @ W_inverse, W @ C @ W.T
    K = _symmetric_lyapunov(C_y, J_y @ C_y + C_y @ J_y.T)
    R_y = J_y - K
    energy = float(np.sum((W @ a) ** 2) + np.sum(J_y @ C_y * J_y))
    share = float(np.clip(np.sum(R_y @ C_y * R_y) / energy, 0.0, 1.0)) if energy > 0 else 0.0
    jacobian = W_inverse @ K @ W
    return AffineProjection(jacobian, W.T @ K @ W, a, J - jacobian, centre, C, share, metric)


def _symmetric_lyapunov(C: np.ndarray, Q: np.ndarray) -> np.ndarray:
    """The symmetric K with K C + C K = Q.

    In the eigenbasis of C, K_ij = Q_ij / (c_i + c_j). Two directions without variance leave K_ij free: zero there.
    """
    c, V = np.linalg.eigh(C)
    if c[0] < -1e-10 * max(c[-1], 0.0) or c[-1] <= 0:
        raise ValueError("covariance must have no negative eigenvalue and at least one positive one.")
    sums = c[:, None] + c[None]
    seen = sums > 1e-12 * c[-1]
    K = np.where(seen, V.T @ Q @ V / np.where(seen, sums, 1.0), 0.0)
    K = V @ K @ V.T
    return 0.5 * (K + K.T)


def _vector(values: Any, d: int, name: str) -> np.ndarray:
    array = as_finite(values, name)
    if array.shape not in ((), (d,)):
        raise ValueError(f"{name} must be one number or have shape ({d},), got {array.shape}.")
    return np.broadcast_to(array, (d,)).copy()
