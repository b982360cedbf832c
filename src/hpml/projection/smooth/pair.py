"""A Gaussian prior over smooth vector fields with a gradient part and a divergence-free part.

F = P + D + noise. P is the gradient of a Gaussian-kernel potential plus a broad affine gradient a + H x, H
symmetric; D is divergence-free. Given samples, the posterior means of P and D follow from one linear system. Their
sum is a smooth fit of the whole field; P alone is a good first guess of the projection, but its split follows the
prior and not the measure, so the kernel projector corrects it (see `gradients.py`). The affine part is given a
large variance because constants and saddles are both curl-free and divergence-free, and they belong to the gradient.

Kernels, with r = |x - y|, k = exp(-r^2 / 2 l^2) and D the ambient dimension, both scaled to the identity at r = 0:
  curl-free        (I - dd^T / l^2) k,   d = x - y, the gradients of k times l^2
  divergence-free  ((D - 1 - r^2 / l^2) I + dd^T / l^2) k / (D - 1)
  affine           c0 I + (c1 / 2) ((x . y) I + y x^T)
Coordinates and field are scaled to unit size before they come here.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Float

from hpml.geometry.arrays import Array

# The affine gradient's prior variance in units of the field's own: broad enough to claim all that is affine and
# symmetric.
AFFINE = 1.0
JITTER = 1e-8


class Hyper(NamedTuple):
    """Length scales, variances of the two parts, and the variance of the noise in one coordinate."""

    length_gradient: float | jax.Array
    length_rotation: float | jax.Array
    gradient: float | jax.Array
    rotation: float | jax.Array
    noise: float | jax.Array


class Parts(NamedTuple):
    """A field in its two parts, and the potential of the first."""

    gradient: Float[jax.Array, "q d"]
    rotation: Float[jax.Array, "q d"]
    potential: Float[jax.Array, " q"]


def _pairs(x, y):
    """Squared distances and inner products of all pairs, by matrix products."""
    dots = x @ y.T
    r2 = (x * x).sum(-1)[:, None] + (y * y).sum(-1)[None] - 2.0 * dots
    return jnp.maximum(r2, 0.0), dots


def apply_pair(x: Array, y: Array, a: Array, hyper: Hyper, ambient: int) -> Parts:
    """The kernels between x (q, d) and y (n, d) times coefficients a (n, d) in O(q n d), never as a (qd, nd) matrix."""
    r2, dots = _pairs(x, y)
    along = x @ a.T - (y * a).sum(-1)[None]  # (x - y) . a

    def outer(weights):  # sum_j weights_ij (x_i - y_j)
        return weights.sum(-1, keepdims=True) * x - weights @ y

    lg, lr = hyper.length_gradient, hyper.length_rotation
    k = hyper.gradient * jnp.exp(-r2 / (2 * lg**2))
    gradient = k @ a - outer(k * along) / lg**2
    potential = (k * along).sum(-1)
    scale = AFFINE * hyper.gradient
    ya = x @ a.T
    gradient = gradient + scale * (a.sum(0) + 0.5 * (dots @ a + ya @ y))
    potential = potential + scale * (x @ a.sum(0) + 0.5 * (dots * ya).sum(-1))
    if ambient < 2:
        return Parts(gradient, jnp.zeros_like(gradient), potential)
    k = hyper.rotation * jnp.exp(-r2 / (2 * lr**2)) / (ambient - 1)
    rotation = (k * (ambient - 1 - r2 / lr**2)) @ a + outer(k * along) / lr**2
    return Parts(gradient, rotation, potential)


def pair_matrices(x: Array, y: Array, hyper: Hyper, ambient: int) -> tuple[jax.Array, jax.Array]:
    """The gradient and rotation kernels as (q d, n d) matrices."""
    q, d = x.shape
    n = y.shape[0]
    r2, dots = _pairs(x, y)
    step = x[:, None] - y[None]
    outer = step[..., :, None] * step[..., None, :]
    eye = jnp.eye(d)

    def flat(blocks):
        return blocks.transpose(0, 2, 1, 3).reshape(q * d, n * d)

    lg, lr = hyper.length_gradient, hyper.length_rotation
    k = jnp.exp(-r2 / (2 * lg**2))[..., None, None]
    affine = eye + 0.5 * (dots[..., None, None] * eye + y[None, :, :, None] * x[:, None, None, :])
    gradient = hyper.gradient * ((eye - outer / lg**2) * k + AFFINE * affine)
    if ambient < 2:
        return flat(gradient), jnp.zeros((q * d, n * d))
    k = jnp.exp(-r2 / (2 * lr**2))[..., None, None] / (ambient - 1)
    rotation = hyper.rotation * ((ambient - 1 - r2 / lr**2)[..., None, None] * eye + outer / lr**2) * k
    return flat(gradient), flat(rotation)


def _system(points, inflation, hyper, ambient):
    gradient, rotation = pair_matrices(points, points, hyper, ambient)
    noise = jnp.repeat(hyper.noise * inflation, points.shape[1])
    return gradient + rotation + jnp.diag(noise + JITTER * (hyper.gradient + hyper.rotation))


@partial(jax.jit, static_argnames="ambient")
def log_system(logs, points, inflation, ambient: int) -> jax.Array:
    """The covariance of the samples, from the logarithms of the hyperparameters."""
    return _system(points, inflation, Hyper(*jnp.exp(logs)), ambient)


@partial(jax.jit, static_argnames="ambient")
def pull_back(logs, points, inflation, ambient: int, cotangent) -> jax.Array:
    """The derivative of <cotangent, covariance> by the logarithms of the hyperparameters."""
    return jax.vjp(lambda t: _system(points, inflation, Hyper(*jnp.exp(t)), ambient), logs)[1](cotangent)[0]


class PairPosterior(eqx.Module):
    """The posterior of a field given samples: coefficients, and the factor of the system for uncertainty."""

    points: Float[jax.Array, "n d"]
    coefficients: Float[jax.Array, "n d"]
    factor: Float[jax.Array, "nd nd"]
    hyper: Hyper
    ambient: int = eqx.field(static=True)

    def parts(self, points: Array) -> Parts:
        """Posterior means at new points."""
        return _apply_pair(points, self.points, self.coefficients, self.hyper, self.ambient)

    def variances(self, points: Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Posterior variances of the potential (q,), of P (q, d) and of D (q, d)."""
        return _variances(self, points)


_apply_pair = jax.jit(apply_pair, static_argnames="ambient")


@partial(jax.jit, static_argnames="ambient")
def condition(points, field, inflation, hyper: Hyper, ambient: int) -> PairPosterior:
    """Condition the prior on samples: one Cholesky factorisation of the (n d, n d) system."""
    L = jnp.linalg.cholesky(_system(points, inflation, hyper, ambient))
    a = cho_solve((L, True), field.reshape(-1)).reshape(points.shape)
    return PairPosterior(points, a, L, hyper, ambient)


@jax.jit
def left_out_residuals(posterior: PairPosterior, rows: Array) -> jax.Array:
    """F_i minus the fit of all other samples, at some rows, without refitting: (K^-1)_ii^-1 (K^-1 F)_i in blocks."""
    n, d = posterior.points.shape
    columns = (rows[:, None] * d + jnp.arange(d)[None]).reshape(-1)
    unit = jnp.zeros((n * d, len(columns))).at[columns, jnp.arange(len(columns))].set(1.0)
    half = solve_triangular(posterior.factor, unit, lower=True).reshape(n * d, len(rows), d)
    blocks = jnp.einsum("aid,aie->ide", half, half)
    return jnp.linalg.solve(blocks, posterior.coefficients[rows][..., None])[..., 0]


@jax.jit
def _variances(posterior: PairPosterior, points: jax.Array):
    x, y, hyper = points, posterior.points, posterior.hyper
    q, d = x.shape
    gradient, rotation = pair_matrices(x, y, hyper, posterior.ambient)

    def explained(cross):
        return (solve_triangular(posterior.factor, cross.T, lower=True) ** 2).sum(0)

    r2, dots = _pairs(x, y)
    k = jnp.exp(-r2 / (2 * hyper.length_gradient**2))
    scale = AFFINE * hyper.gradient
    step = x[:, None] - y[None]
    cross = hyper.gradient * k[..., None] * step + scale * (x[:, None] + 0.5 * dots[..., None] * x[:, None])
    x2 = (x * x).sum(-1)
    potential = hyper.gradient * hyper.length_gradient**2 + scale * (x2 + 0.25 * x2**2)
    prior = hyper.gradient + scale * (1.0 + 0.5 * (x2[:, None] + x * x))
    return (
        jnp.maximum(potential - explained(cross.reshape(q, -1)), 0.0),
        jnp.maximum(prior - explained(gradient).reshape(q, d), 0.0),
        jnp.maximum(hyper.rotation * (posterior.ambient > 1) - explained(rotation).reshape(q, d), 0.0),
    )
