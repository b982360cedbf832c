"""Least squares onto gradients under a measure, with a penalty chosen by cross-validation.

This is the projection of `def:proj` restricted to a finite class of potentials: polynomials of degree two and
random Fourier features of a Gaussian kernel. What no gradient explains acts as noise, and n points with any field
are interpolated by some smooth gradient, so the class and its penalty are chosen by the loss at points that were
left out: the held-out loss is E|T - grad Phi|^2 = E|R|^2 + E|grad Phi* - grad Phi|^2, smallest at the projection
itself. A gradient that the left-out field does not go along with, beyond chance, is not taken: a field with nothing to
project stays untouched.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jaxtyping import Float

from hpml.geometry.arrays import Array

PENALTIES = np.logspace(-7, 3, 21)
# Standard errors by which the left-out field must go along with a gradient: chance alone does once in twenty. Asking it
# of the gain in the loss, which counts the gradient's own error, rejected more true gradients on a box with noise.
SIGNIFICANCE = 1.645
SETTLE = 8  # numbers of the field for each quadratic potential; fewer settled none of them with 40 points, d = 36
FEW = 528  # quadratic potentials, of 32 coordinates, that are tried with any number of points
NUMBERS = 1 << 25  # at most this many feature values at a time, 256 MB


class Potentials(eqx.Module):
    """A basis of potentials on scaled coordinates: u_i, u_i u_j, and cos, sin of (frequency . u).

    Each is scaled so that its gradient has about unit size for u of unit variance, the Fourier ones together.
    """

    frequencies: Float[Array, "p d"]
    scale: float
    quadratic: bool = eqx.field(static=True)

    @property
    def size(self) -> int:
        """The number of potentials."""
        p, d = self.frequencies.shape
        return d + (d * (d + 1) // 2 if self.quadratic else 0) + 2 * p

    def values(self, u: Float[Array, "q d"]) -> Float[Array, "q k"]:
        """The potentials at points."""
        d = u.shape[1]
        u = jnp.asarray(u)
        parts = [u]
        if self.quadratic:
            i, j = np.triu_indices(d)
            parts.append(u[:, i] * u[:, j] / np.where(i == j, 2.0, np.sqrt(2.0)))
        phase = u @ self.frequencies.T
        parts += [self.scale * jnp.cos(phase), self.scale * jnp.sin(phase)]
        return jnp.concatenate(parts, axis=1)

    def gradients(self, u: Float[Array, "q d"]) -> Float[Array, "q d k"]:
        """Their gradients, one column a potential."""
        u = jnp.asarray(u)
        q, d = u.shape
        eye = jnp.eye(d)
        parts = [jnp.broadcast_to(eye[None], (q, d, d))]
        if self.quadratic:
            i, j = np.triu_indices(d)
            norm = np.where(i == j, 2.0, np.sqrt(2.0))
            parts.append((eye[:, i][None] * u[:, None, j] + eye[:, j][None] * u[:, None, i]) / norm)
        phase = u @ self.frequencies.T
        w = jnp.asarray(self.scale * self.frequencies.T)[None]
        parts += [-w * jnp.sin(phase)[:, None], w * jnp.cos(phase)[:, None]]
        return jnp.concatenate(parts, axis=2)


def potentials(dimension: int, length: float | None, frequencies: int, seed: int = 0, count: int = 0) -> Potentials:
    """Polynomials of degree two, and Fourier features of the Gaussian kernel of this length (None: no features).

    For `count` points that are too few to settle the d^2/2 monomials, those of degree one alone.
    """
    monomials = dimension * (dimension + 1) // 2
    quadratic = dimension <= 64 and (not count or monomials <= max(count * dimension // SETTLE, FEW))
    if length is None or frequencies == 0:
        return Potentials(np.zeros((0, dimension)), 1.0, quadratic)
    if dimension <= 1024:  # quasi-random frequencies fill the spectrum more evenly
        uniform = scipy.stats.qmc.Sobol(dimension, seed=seed).random_base2(int(np.ceil(np.log2(frequencies))))
        uniform = uniform[:frequencies]
        normal = scipy.stats.norm.ppf(np.clip(uniform, 1e-9, 1 - 1e-9))
    else:
        normal = np.random.default_rng(seed).normal(size=(frequencies, dimension))
    return Potentials(normal / length, length / np.sqrt(frequencies), quadratic)


class GradientFit(eqx.Module):
    """Coefficients on a basis of potentials; `covariance` is theirs when the residual acts as noise.

    `left_out` is the gradient at the samples from fits that had not seen them, `loss` the weighted square of what it
    leaves.
    """

    basis: Potentials
    coefficients: Float[Array, " k"]
    covariance: Float[Array, "k k"]
    left_out: Float[Array, "n d"]
    loss: float

    def potential(self, u: Float[Array, "q d"]) -> Float[Array, " q"]:
        """The fitted potential."""
        return _in_chunks(lambda v: _values(self.basis, v) @ self.coefficients, u)

    def gradient(self, u: Float[Array, "q d"]) -> Float[Array, "q d"]:
        """Its gradient."""
        return _gradient_of(self.basis, self.coefficients, u)

    def variances(self, u: Float[Array, "q d"]) -> tuple[np.ndarray, np.ndarray]:
        """Variances of the potential (q,) and of the gradient (q, d)."""

        def spread(features):
            return jnp.einsum("...k,kl,...l->...", features, self.covariance, features)

        potential = _in_chunks(lambda v: spread(_values(self.basis, v)), u)
        gradient = _in_chunks(lambda v: spread(_gradients(self.basis, v)), u, _rows_at_once(self.basis, 4096))
        return np.maximum(potential, 0.0), np.maximum(gradient, 0.0)


_values = jax.jit(lambda basis, u: basis.values(u))
_gradients = jax.jit(lambda basis, u: basis.gradients(u))


def _rows_at_once(basis: Potentials, most: int) -> int:
    return int(np.clip(NUMBERS // (basis.size * basis.frequencies.shape[1]), 64, most))


def _in_chunks(function: Callable, u: Array, size: int = 4096) -> np.ndarray:
    parts = [np.asarray(function(u[start : start + size])) for start in range(0, len(u), size)]
    return np.concatenate(parts) if parts else np.asarray(function(u))


def _gradient_of(basis: Potentials, coefficients: Array, u: Array) -> np.ndarray:
    return _in_chunks(lambda v: _gradients(basis, v) @ coefficients, u, _rows_at_once(basis, 4096))


@jax.jit
def _moments(basis, u, target, factors, weights):
    """G = sum w (C grad)^T (C grad), b = sum w (C grad)^T T and c = sum w |T|^2."""
    features = basis.gradients(u)
    if factors is not None:
        features = jnp.einsum("nij,njk->nik", factors, features)
    flat = features.reshape(-1, features.shape[-1])
    scaled = flat * jnp.repeat(weights, u.shape[1])[:, None]
    return scaled.T @ flat, scaled.T @ target.reshape(-1), (weights[:, None] * target**2).sum()


def _fold_moments(basis, u, target, factors, weights, rows, chunk):
    """The moments of one fold, in chunks of one shape: missing rows weigh nothing."""
    size = min(_rows_at_once(basis, chunk), -(-len(rows) // 64) * 64)
    total = None
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        index = np.concatenate([part, np.zeros(size - len(part), int)])
        w = np.concatenate([weights[part], np.zeros(size - len(part))])
        found = _moments(basis, u[index], target[index], None if factors is None else factors[index], w)
        total = found if total is None else tuple(map(jnp.add, total, found))
    return total


@jax.jit
def _held_out_losses(grams, sides, energies, penalties):
    """The loss at each left-out fold, summed, for every penalty: one eigendecomposition a fold."""
    total_gram, total_side = grams.sum(0), sides.sum(0)

    def one(fold):
        gram, side, energy = fold
        values, vectors = jnp.linalg.eigh(total_gram - gram)
        projected = vectors.T @ (total_side - side)
        rotated_gram, rotated_side = vectors.T @ gram @ vectors, vectors.T @ side
        z = projected[None] / (jnp.maximum(values, 0.0)[None] + penalties[:, None])
        return energy - 2 * z @ rotated_side + jnp.einsum("lk,kj,lj->l", z, rotated_gram, z)

    return jax.lax.map(one, (grams, sides, energies)).sum(0)


def regress_gradients(
    u: Float[Array, "n d"],
    target: Float[Array, "n d"],
    weights: Float[Array, " n"],
    lengths: tuple[float | None, ...],
    frequencies: int,
    factors: Float[Array, "n d d"] | None = None,
    folds: int = 5,
    seed: int = 0,
    chunk: int = 16384,
) -> GradientFit:
    """The gradient closest to `target` in the weighted sum of squares, its class and penalty cross-validated.

    `factors` are C_i = W_i^-T where the metric varies: the loss is then |T_i - C_i grad Phi|^2 with T_i = W_i F_i.
    """
    n, d = u.shape
    folds = max(2, min(folds, n // 2))
    fold = np.random.default_rng(seed).permutation(n) % folds
    zero = float((weights[:, None] * target**2).sum())
    best: tuple | None = None
    for length in lengths:
        basis = potentials(d, length, frequencies, seed, n)
        found = [
            _fold_moments(basis, u, target, factors, weights, np.flatnonzero(fold == number), chunk)
            for number in range(folds)
        ]
        grams, sides, energies = (jnp.stack(parts) for parts in zip(*found, strict=True))
        losses = np.asarray(_held_out_losses(grams, sides, energies, jnp.asarray(PENALTIES)))
        i = int(np.argmin(losses))
        if best is None or losses[i] < best[0]:
            best = (losses[i], basis, PENALTIES[i], np.asarray(grams), np.asarray(sides))
    assert best is not None
    loss, basis, penalty, grams, sides = best
    k = basis.size
    system = grams.sum(0) + penalty * np.eye(k)
    side = sides.sum(0)
    there = np.zeros_like(target)
    for number in range(folds):
        rows = np.flatnonzero(fold == number)
        left = np.linalg.solve(system - grams[number], side - sides[number])
        there[rows] = _gradient_of(basis, left, u[rows])
    agreement = (target * (there if factors is None else np.einsum("nij,nj->ni", factors, there))).sum(1)
    mean = weights @ agreement
    # Where there is no gradient, the agreement is a sum over pairs of rows, each of which counts for both: twice the
    # variance of a sum over rows. Each row is compared with the mean of the others: a heavy one proves nothing. Nor is
    # it a disproof where it lies near a hill's top and the gradient is short: by chance the mean is zero as well.
    apart = (agreement - mean) / np.maximum(1.0 - weights, 1e-12)
    variance = 2.0 * min(weights**2 @ apart**2, weights**2 @ agreement**2)
    found_something = mean > SIGNIFICANCE * np.sqrt(variance)
    loss, there = (loss, there) if found_something else (zero, np.zeros_like(there))
    inverse = np.linalg.inv(system)
    # Where the answer is nothing, the candidate that lost still says how far off nothing may be.
    coefficients = np.linalg.solve(system, side) if found_something else np.zeros(k)
    # n equal weights sum to one, so a sum over samples is n times the weighted one: the covariance carries
    # 1/n_effective.
    effective = 1.0 / float((weights**2).sum())
    covariance = inverse * float(loss) / d / effective
    return GradientFit(basis, coefficients, covariance, there, float(loss))
