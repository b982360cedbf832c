"""Settle the split of a smooth posterior by the measure: what is left over is orthogonal to gradients (`def:proj`).

Constants, saddles and harmonic gradients are both curl-free and divergence-free, so samples alone do not say to which
part of the prior they belong: P and D are uncertain there with opposite signs, and noise makes that the largest error
of P. The measure knows more. For every potential psi the average of <grad psi, D> is zero, and over the points at hand
it is zero up to their sampling error. That is one more observation of the posterior for each psi, by Bayes' rule:

  b = -(C + S)^-1 y,  y the observed averages, C their posterior covariance, S that of the sampling

and P moves by Cov(P, y) b. With many points of the measure S is small, and P nears the projection. Where D has a
gradient part that the posterior is sure of (a box), C is small again, and the regression that follows has to find it.
An anisotropic measure finds an affine one in any rotation, so such a part is given a variance of its own, the
likeliest for y; else P would be bent to explain it.
"""

import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.projection.smooth.gradients import potentials
from hpml.projection.smooth.pair import PairPosterior
from hpml.projection.smooth.spectral import SpectralPosterior

LENGTH, WAVES = 2.0, 16  # twice the waves did no better
SADDLES = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
NUMBERS = 4096  # of the points that C is computed from: it needs no precision


def balance(
    posterior: PairPosterior | SpectralPosterior,
    points: Float[Array, "m d"],
    weights: Float[Array, " m"],
    rotation: Float[Array, "m d"],
) -> PairPosterior | SpectralPosterior:
    """The posterior with P and D moved so that D is orthogonal to gradients as far as the points can tell.

    `rotation` is D at the points of the measure, everything in scaled coordinates.
    """
    m, d = points.shape
    basis = potentials(d, LENGTH, WAVES)
    k = basis.size
    effective = 1.0 / float((weights**2).sum())
    if effective < 2 * k or not np.any(rotation):  # too few points to know S
        return posterior
    few = np.random.default_rng(2).permutation(m)[: max(NUMBERS // d, 8)]
    fields = np.asarray(basis.gradients(points[few]))
    C, gains = posterior.rotation_moments(points[few], fields * (weights[few] / weights[few].sum())[:, None, None])

    y, S, gram = np.zeros(k), np.zeros((k, k)), np.zeros((k, k))
    for start in range(0, m, NUMBERS):
        rows = slice(start, start + NUMBERS)
        gradients, w = np.asarray(basis.gradients(points[rows])), weights[rows]
        products = np.einsum("mdk,md->mk", gradients, rotation[rows])
        y += w @ products
        S += (products * (w**2)[:, None]).T @ products
        gram += np.einsum("mdk,mdl->kl", gradients * w[:, None, None], gradients, optimize=True)
    S -= np.outer(y, y) / effective
    # Few points leave S rough; it then leans on that of a rotation without any structure.
    plain = float((weights @ rotation**2).sum()) / d / effective * gram
    lean = k / (k + effective)
    total = C + (1.0 - lean) * S + lean * plain
    affine = gram[:, : k - 2 * WAVES]
    scores = [_score(total + size * affine @ affine.T, y) for size in SADDLES]
    return posterior.moved_by(-gains @ min(scores, key=lambda score: score[0])[1])


def _score(matrix, y):
    """-log N(y; 0, matrix) and matrix^-1 y; directions that rounding made negative count as tiny."""
    values, vectors = np.linalg.eigh(matrix)
    values = np.maximum(values, 1e-9 * values[-1])
    along = vectors.T @ y
    return 0.5 * (along**2 / values + np.log(values)).sum(), vectors @ (along / values)
