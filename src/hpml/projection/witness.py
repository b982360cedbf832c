"""The antisymmetric witness: a sign of rotation that needs no fit (`def:rot_energy`, `rem:jac_bridge`).

Centred products of points and covectors, E[h (x - mean)^T] with h = M F, have a skew part wherever the covariance C of
the points is anisotropic, even for a pure gradient (H C is not symmetric). In coordinates y = C^-1/2 (x - mean), where
covectors become C^1/2 h, the product of a linear gradient field is C^1/2 H C^1/2, symmetric, so that a skew part is
rotation. For a non-linear gradient under a Gaussian it is symmetric too (Stein's identity), up to the sampling error.
"""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.geometry.metric import Euclidean, Metric
from hpml.geometry.samples import Samples, gather_samples


class Witness(eqx.Module):
    """The rotation seen in whitened point-field products.

    - `matrix` is the skew part A (r, r) in whitened coordinates of the r directions that the points span.
    - `size` is |A|_F / |B|_F in [0, 1], B the whole product: 0 for a gradient, 1 for pure rotation.
    - `planes` (p, 2, d) are the rotation planes, the strongest first: each pair holds the half-axes of the ellipse, one
      standard deviation wide, along which points are carried from the first axis to the second.
    - `strengths` (p,) are the matching singular values of A.
    """

    matrix: Float[Array, "r r"]
    size: float
    planes: Float[Array, "p 2 d"]
    strengths: Float[Array, " p"]


def antisymmetric_witness(points: Any, field: Any, metric: Metric | None = None, weights: Any = None) -> Witness:
    """The skew part of the whitened, centred products of points and field, and its leading rotation planes."""
    metric = Euclidean() if metric is None else metric
    return witness_of(gather_samples(points, field, weights, metric), metric)


def witness_of(samples: Samples, metric: Metric) -> Witness:
    """`antisymmetric_witness` of samples that are gathered already."""
    w = samples.weights
    h = np.asarray(metric.lower(samples.field, samples.points))
    root = np.sqrt(w)[:, None]
    # The thin SVD whitens inside the span of the points, so that d may be far larger than n.
    U, s, Vt = np.linalg.svd(root * (samples.points - w @ samples.points), full_matrices=False)
    seen = s > 1e-9 * s[0]
    U, s, Vt = U[:, seen], s[seen], Vt[seen]
    B = (s[:, None] * (Vt @ (root * (h - w @ h)).T)) @ U
    A = 0.5 * (B - B.T)
    total = np.linalg.norm(B)
    size = float(np.linalg.norm(A) / total) if total > 0 else 0.0

    # A skew matrix's singular values come in pairs; each pair's left vectors span one plane.
    values, vectors = np.linalg.eigh(1j * A)
    pairs = [k for k in np.argsort(-values) if values[k] > 1e-12 * total]
    axes = s[:, None] * Vt
    planes = np.array([_plane(vectors[:, k], A) @ axes for k in pairs]).reshape(-1, 2, samples.dimension)
    return Witness(A, min(size, 1.0), planes, values[pairs])


def _plane(vector: np.ndarray, A: np.ndarray) -> np.ndarray:
    """An orthonormal pair (u, v) of the plane of a complex eigenvector of a skew matrix, with A u along +v."""
    u = vector.real if np.linalg.norm(vector.real) >= np.linalg.norm(vector.imag) else vector.imag
    u = u / np.linalg.norm(u)
    v = A @ u
    return np.stack([u, v / np.linalg.norm(v)])
