"""The prior of `pair.py` in random Fourier features: millions of samples at the price of one pass over them.

A frequency w carries a vector amplitude; its part along w is a gradient, the rest is divergence-free. Every vector
feature is a fixed combination of scalar functions z(u) = (1, u, cos, sin), so the normal equations of all of them
follow from the one scalar Gram matrix sum_i z(u_i) z(u_i)^T, which is what the pass accumulates. Under a metric that
varies the gradient features are stretched at every sample, and the pass takes the vector features themselves.
"""

from collections.abc import Iterable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.projection.smooth.gradients import NUMBERS, Potentials, potentials
from hpml.projection.smooth.pair import AFFINE, Hyper, Parts, Stretch, stretched

# What the features cannot represent is the same at every sample and does not average out, so the noise that stands
# for it grows with n. Without it, n samples drive the coefficients to fit that misfit and the two parts drift apart.
MISFIT = 1e-8


class SpectralPosterior(eqx.Module):
    """Coefficients of gradient features (a `Potentials` basis) and rotation features, and their precision's factor."""

    basis: Potentials
    rotations: Float[Array, "p d"]
    amplitudes: Float[Array, "p d-1 d"]
    coefficients: Float[Array, " k"]
    moved: Float[Array, " g"]  # coefficients of a gradient that was taken from D and given to P
    factor: Float[Array, "k k"]
    hyper: Hyper

    def parts(self, points: Float[Array, "q d"], stretch: Stretch = None) -> Parts:
        """Posterior means at new points, where the stretch is this."""
        features = self.basis, self.rotations, self.amplitudes
        return _parts(*features, self.coefficients, self.moved, jnp.asarray(points), stretch)

    def rotation_moments(self, points: Array, fields: Float[Array, "m d k"]) -> tuple[np.ndarray, np.ndarray]:
        """See `PairPosterior.rotation_moments`."""
        m, d, k = fields.shape
        turning = np.asarray(_rotation_features(self.rotations, self.amplitudes, points)).reshape(m * d, -1)
        rows = np.zeros((len(self.coefficients), k))
        rows[self.basis.size :] = turning.T @ fields.reshape(m * d, k)
        half = scipy.linalg.solve_triangular(self.factor, rows, lower=True)
        gains = scipy.linalg.solve_triangular(self.factor, half, lower=True, trans=1)
        return half.T @ half, gains[: self.basis.size]

    def moved_by(self, step: Float[Array, " g"]) -> "SpectralPosterior":
        """See `PairPosterior.moved_by`."""
        return eqx.tree_at(lambda p: p.moved, self, np.asarray(step))

    def variances(self, points: Float[Array, "q d"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Posterior variances of the potential (q,), of P (q, d) and of D (q, d)."""
        q, d = points.shape
        k = self.basis.size
        values = np.asarray(self.basis.values(points))
        gradients = np.asarray(self.basis.gradients(points)).reshape(q * d, k)
        turning = np.asarray(_rotation_features(self.rotations, self.amplitudes, points)).reshape(q * d, -1)

        def spread(rows, start):
            padded = np.zeros((len(self.coefficients), len(rows)))
            padded[start : start + rows.shape[1]] = rows.T
            return (scipy.linalg.solve_triangular(self.factor, padded, lower=True) ** 2).sum(0)

        return spread(values, 0), spread(gradients, 0).reshape(q, d), spread(turning, k).reshape(q, d)


def _rotation_features(rotations, amplitudes, u):
    """(q, d, features): rotations in each plane, then cos and sin of each frequency times its orthogonal amplitudes."""
    phase = u @ rotations.T
    turn = amplitudes.transpose(2, 0, 1)[None]
    q, d = u.shape
    i, j = np.triu_indices(d, 1)
    eye = jnp.eye(d)
    planes = (eye[:, i][None] * u[:, None, j] - eye[:, j][None] * u[:, None, i]) / np.sqrt(2.0)
    both = [turn * wave[:, None, :, None] for wave in (jnp.cos(phase), jnp.sin(phase))]
    return jnp.concatenate([planes, *(part.reshape(q, d, -1) for part in both)], axis=2)


@jax.jit
def _parts(basis, rotations, amplitudes, coefficients, moved, u, stretch):
    k = basis.size
    gradients = basis.gradients(u)
    rotation = _rotation_features(rotations, amplitudes, u) @ coefficients[k:]
    own = coefficients[:k] + moved
    return Parts(gradients @ own, rotation - stretched(gradients @ moved, stretch), basis.values(u) @ own)


@jax.jit
def _accumulate(frequencies, u, field, weights):
    phase = u @ frequencies.T
    z = jnp.concatenate([jnp.ones_like(u[:, :1]), u, jnp.cos(phase), jnp.sin(phase)], axis=1)
    weighted = z * weights[:, None]
    return weighted.T @ z, weighted.T @ field


@jax.jit
def _accumulate_stretched(basis, rotations, amplitudes, u, field, weights, stretch):
    gradients = jnp.einsum("nij,njk->nik", stretch, basis.gradients(u))
    features = jnp.concatenate([gradients, _rotation_features(rotations, amplitudes, u)], axis=2)
    flat = features.reshape(-1, features.shape[2])
    weighted = (features * weights[:, None, None]).reshape(flat.shape)
    return weighted.T @ flat, weighted.T @ field.reshape(-1)


def condition_spectral(
    points: np.ndarray,
    field: np.ndarray,
    inflation: np.ndarray,
    hyper: Hyper,
    frequencies: int,
    stretch: Stretch = None,
    seed: int = 0,
    chunk: int = 16384,
) -> SpectralPosterior:
    """Condition the prior on any number of samples, in one pass over them."""
    n, d = points.shape
    basis = potentials(d, float(hyper.length_gradient), frequencies, seed)
    # The rotation part has d - 1 amplitudes a frequency; hold the whole near 4,000 features.
    turns = max(16, min(frequencies, 2000 // max(d - 1, 1))) if d > 1 else 0
    rotations = potentials(d, float(hyper.length_rotation), turns, seed + 1).frequencies
    amplitudes = _orthogonal_amplitudes(rotations, hyper)

    weights = 1.0 / (max(float(hyper.noise), MISFIT * n) * inflation)
    prior = _prior_precision(basis, len(rotations), d, hyper)
    if stretch is None:
        waves = np.concatenate([basis.frequencies, rotations])
        rows = [slice(start, start + chunk) for start in range(0, n, chunk)]
        gram, side = _summed(_accumulate(waves, points[r], field[r], weights[r]) for r in rows)
        precision, right = np.diag(prior), np.zeros(len(prior))
        for c, table in enumerate(_combinations(basis, rotations, amplitudes)):
            precision += table @ (table @ gram).T  # the Gram matrix is symmetric
            right += table @ side[:, c]
    else:
        chunk = max(NUMBERS // (len(prior) * d), 64)
        rows = [slice(start, start + chunk) for start in range(0, n, chunk)]
        features = basis, rotations, amplitudes
        gram, right = _summed(
            _accumulate_stretched(*features, points[r], field[r], weights[r], stretch[r]) for r in rows
        )
        precision = gram + np.diag(prior)
    precision[np.diag_indices_from(precision)] *= 1.0 + 1e-12
    factor = scipy.linalg.cholesky(precision, lower=True)
    coefficients = scipy.linalg.cho_solve((factor, True), right)
    return SpectralPosterior(basis, rotations, amplitudes, coefficients, np.zeros(basis.size), factor, hyper)


def _summed(parts: Iterable[tuple[Array, Array]]) -> tuple[np.ndarray, np.ndarray]:
    """The sums of both members, one pair in memory at a time."""
    gram: np.ndarray | float = 0.0
    side: np.ndarray | float = 0.0
    for g, b in parts:
        gram, side = gram + np.asarray(g), side + np.asarray(b)
    return np.asarray(gram), np.asarray(side)


def _orthogonal_amplitudes(rotations: Array, hyper: Hyper) -> np.ndarray:
    """For each frequency an orthonormal basis of the vectors across it, scaled to the divergence-free kernel."""
    p, d = rotations.shape
    if p == 0:
        return np.zeros((0, max(d - 1, 0), d))
    lengths = np.linalg.norm(rotations, axis=1)
    _, _, frames = np.linalg.svd(rotations[:, None, :])
    across = frames[:, 1:, :]
    return across * (lengths * float(hyper.length_rotation) / np.sqrt(p * (d - 1)))[:, None, None]


def _prior_precision(basis: Potentials, turns: int, d: int, hyper: Hyper) -> np.ndarray:
    affine = basis.size - 2 * len(basis.frequencies)
    variances = np.concatenate(
        [
            np.full(affine, AFFINE * float(hyper.gradient)),
            np.full(basis.size - affine, float(hyper.gradient)),
            np.full(d * (d - 1) // 2, AFFINE * float(hyper.rotation)),
            np.full(2 * turns * (d - 1), float(hyper.rotation)),
        ]
    )
    return 1.0 / variances


def _combinations(basis: Potentials, rotations: Array, amplitudes: np.ndarray) -> list[scipy.sparse.csr_array]:
    """For each coordinate the vector features as combinations of the scalars (1, u, cos, sin): (features, scalars)."""
    p, d = basis.frequencies.shape
    t = len(rotations)
    cos, sin = 1 + d, 1 + d + p + t
    i, j = np.triu_indices(d, 1)
    planes = basis.size + np.arange(len(i))
    features = basis.size + len(i) + 2 * t * max(d - 1, 0)
    table = np.zeros((d, features, 1 + d + 2 * (p + t)))
    table[i, planes, 1 + j] = np.sqrt(0.5)
    table[j, planes, 1 + i] = -np.sqrt(0.5)
    index = np.arange(d)
    table[index, index, 0] = 1.0
    row = d
    if basis.quadratic:
        i, j = np.triu_indices(d)
        norm = np.where(i == j, 2.0, np.sqrt(2.0))
        rows = row + np.arange(len(i))
        np.add.at(table, (i, rows, 1 + j), 1.0 / norm)
        np.add.at(table, (j, rows, 1 + i), 1.0 / norm)
        row += len(i)
    k = np.arange(p)
    for c in range(d):
        w = basis.scale * basis.frequencies[:, c]
        table[c, row + k, sin + k] = -w
        table[c, row + p + k, cos + k] = w
        if t:
            turn = np.repeat(np.arange(t), d - 1)
            rows = basis.size + len(planes) + np.arange(t * (d - 1))
            table[c, rows, cos + p + turn] = amplitudes[:, :, c].reshape(-1)
            table[c, rows + t * (d - 1), sin + p + turn] = amplitudes[:, :, c].reshape(-1)
    return [scipy.sparse.csr_array(part) for part in table]
