"""A Gaussian prior over smooth vector fields with a gradient part and a divergence-free part.

F = P + D + noise. P is the gradient of a Gaussian-kernel potential plus an affine gradient a + H x, H symmetric; D is
divergence-free, a Gaussian-kernel field plus S x, S skew. Given samples, the posterior means of P and D follow from
one linear system. Their sum is a smooth fit of the whole field; P alone is a good first guess of the projection, but
its split follows the prior and not the measure, so the kernel projector corrects it (see `gradients.py`). The affine
part is given a large variance because constants and saddles are both curl-free and divergence-free, and they belong
to the gradient.

Kernels, with r = |x - y|, k = exp(-r^2 / 2 l^2) and D the ambient dimension, both scaled to the identity at r = 0:
  curl-free        (I - dd^T / l^2) k,   d = x - y, the gradients of k times l^2
  divergence-free  ((D - 1 - r^2 / l^2) I + dd^T / l^2) k / (D - 1)
  affine           I + ((x . y) I + y x^T) / 2 for a + H x, and ((x . y) I - y x^T) / 2 for S x
Coordinates and field are scaled to unit size before they come here.

Under a metric that varies with the point, what belongs to the potential is not its gradient but C(x) times that, C the
metric's inverse in these coordinates: `stretch` holds C at the samples, and is None where it is the identity. P is the
plain gradient throughout, and the field C P + D. Average products of D with gradients are those of the varying metric
as they are: <C grad psi, D> in it is grad psi . D.
"""

from functools import partial
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Float

from hpml.geometry.arrays import Array

# The affine gradient's prior variance in units of the field's own: broad enough to claim all that is affine and
# symmetric.
AFFINE = 1.0
JITTER = 1e-8
CHUNK = 1 << 23  # at most this many entries of a kernel matrix at a time, beside the factor


class Hyper(NamedTuple):
    """Length scales, variances of the two parts, and the variance of the noise in one coordinate."""

    length_gradient: float | jax.Array
    length_rotation: float | jax.Array
    gradient: float | jax.Array
    rotation: float | jax.Array
    noise: float | jax.Array


Stretch: TypeAlias = Float[Array, "n d d"] | None


class Parts(NamedTuple):
    """A field in its two parts, and the potential of the first."""

    gradient: Float[Array, "q d"]
    rotation: Float[Array, "q d"]
    potential: Float[Array, " q"]

    def field(self, stretch: Stretch = None) -> Array:
        """The whole field, C P + D."""
        return stretched(self.gradient, stretch) + self.rotation


def stretched(gradients: Float[Array, "n d"], stretch: Stretch) -> Array:
    """C_i g_i."""
    return gradients if stretch is None else jnp.einsum("nij,nj->ni", stretch, gradients)


def _dot(left: Array, right: Array) -> jax.Array:
    """A matrix product that stays in float64 under vmap inside a float32 program, where `@` does not."""
    return jax.lax.dot(jnp.asarray(left), jnp.asarray(right))


def _pairs(x, y):
    """Squared distances and inner products of all pairs, by matrix products."""
    dots = _dot(x, y.T)
    r2 = (x * x).sum(-1)[:, None] + (y * y).sum(-1)[None] - 2.0 * dots
    return jnp.maximum(r2, 0.0), dots


class Block(NamedTuple):
    """A kernel between x (q, d) and y (n, d): K_ij = scalar_ij I + cross_ij d d^T + turn y_j x_i^T, d = x_i - y_j."""

    scalar: Float[Array, "q n"]
    cross: Float[Array, "q n"]
    turn: Float[Array, ""] | float


def add_blocks(left: Block, right: Block) -> Block:
    """The kernel of the sum of two independent fields."""
    return Block(left.scalar + right.scalar, left.cross + right.cross, left.turn + right.turn)


def pair_blocks(x: Array, y: Array, hyper: Hyper, ambient: int) -> tuple[Block, Block]:
    """The kernels of P and of D."""
    r2, dots = _pairs(x, y)
    k = hyper.gradient * jnp.exp(-r2 / (2 * hyper.length_gradient**2))
    scale = AFFINE * hyper.gradient
    gradient = Block(k + scale * (1.0 + 0.5 * dots), -k / hyper.length_gradient**2, 0.5 * scale)
    if ambient < 2:
        return gradient, Block(jnp.zeros_like(k), jnp.zeros_like(k), 0.0)
    lr2 = hyper.length_rotation**2
    k = hyper.rotation * jnp.exp(-r2 / (2 * lr2)) / (ambient - 1)
    scale = AFFINE * hyper.rotation
    return gradient, Block(k * (ambient - 1 - r2 / lr2) + 0.5 * scale * dots, k / lr2, -0.5 * scale)


def apply_block(block: Block, x: Array, y: Array, a: Array) -> jax.Array:
    """A kernel times coefficients a (n, d) in O(q n d), never as a (qd, nd) matrix."""
    inner = _dot(x, a.T)
    weights = block.cross * (inner - (y * a).sum(-1)[None])
    return _dot(block.scalar, a) + weights.sum(-1, keepdims=True) * x + _dot(block.turn * inner - weights, y)


def apply_pair(x: Array, y: Array, a: Array, hyper: Hyper, ambient: int, stretch: Stretch = None) -> Parts:
    """P, D and the potential of P at x, from coefficients a at y, where the stretch is."""
    gradient, rotation = pair_blocks(x, y, hyper, ambient)
    r2, dots = _pairs(x, y)
    b = stretched(a, stretch)
    inner = _dot(x, b.T)
    waves = jnp.exp(-r2 / (2 * hyper.length_gradient**2)) * (inner - (y * b).sum(-1)[None])
    potential = hyper.gradient * (waves + AFFINE * (1.0 + 0.5 * dots) * inner).sum(-1)
    return Parts(apply_block(gradient, x, y, b), apply_block(rotation, x, y, a), potential)


def pair_matrices(x: Array, y: Array, hyper: Hyper, ambient: int) -> tuple[jax.Array, jax.Array]:
    """The gradient and rotation kernels as (q d, n d) matrices."""
    q, d = x.shape
    step = x[:, None] - y[None]
    outer = step[..., :, None] * step[..., None, :]
    turned = y[None, :, :, None] * x[:, None, None, :]

    def flat(block):
        full = block.scalar[..., None, None] * jnp.eye(d) + block.cross[..., None, None] * outer + block.turn * turned
        return full.transpose(0, 2, 1, 3).reshape(q * d, -1)

    gradient, rotation = pair_blocks(x, y, hyper, ambient)
    return flat(gradient), flat(rotation)


def _system(points, inflation, hyper, ambient, stretch):
    gradient, rotation = pair_matrices(points, points, hyper, ambient)
    gradient = _from_right(_from_right(gradient, stretch).T, stretch)
    noise = jnp.repeat(hyper.noise * inflation, points.shape[1])
    return gradient + rotation + jnp.diag(noise + JITTER * (hyper.gradient + hyper.rotation))


def _from_right(rows: Float[Array, "r nd"], stretch: Stretch) -> Array:
    """Rows times the block diagonal of C."""
    if stretch is None:
        return rows
    n, d, _ = stretch.shape
    return jnp.einsum("rni,nij->rnj", rows.reshape(-1, n, d), stretch).reshape(-1, n * d)


@partial(jax.jit, static_argnames="ambient")
def log_system(logs, points, inflation, ambient: int, stretch: Stretch = None) -> jax.Array:
    """The covariance of the samples, from the logarithms of the hyperparameters."""
    return _system(points, inflation, Hyper(*jnp.exp(logs)), ambient, stretch)


@partial(jax.jit, static_argnames="ambient")
def pull_back(logs, points, inflation, ambient: int, cotangent, stretch: Stretch = None) -> jax.Array:
    """The derivative of <cotangent, covariance> by the logarithms of the hyperparameters."""
    system = lambda t: _system(points, inflation, Hyper(*jnp.exp(t)), ambient, stretch)  # noqa: E731
    return jax.vjp(system, logs)[1](cotangent)[0]


class PairPosterior(eqx.Module):
    """The posterior of a field given samples: coefficients, and the factor of the system for uncertainty."""

    points: Float[jax.Array, "n d"]
    coefficients: Float[jax.Array, "n d"]
    moved: Float[jax.Array, "n d"] | None  # coefficients of a gradient that was taken from D and given to P
    factor: Float[jax.Array, "nd nd"]
    hyper: Hyper
    stretch: Stretch
    ambient: int = eqx.field(static=True)

    def parts(self, points: Array, stretch: Stretch = None) -> Parts:
        """Posterior means at new points, where the stretch is this."""
        return _parts(self, points, stretch)

    def rotation_moments(self, points: Array, fields: Float[Array, "m d k"]) -> tuple[np.ndarray, np.ndarray]:
        """The posterior covariance of sum_i <field_i, D_i>, and what observing them moves (`balance.py`).

        Column k of the second is the coefficients of Cov(P, moment k).
        """
        m, d, k = fields.shape
        prior, cross = np.zeros((k, k)), np.zeros((self.coefficients.size, k))
        rows = max(1, CHUNK // max(m * d * d, self.coefficients.size * d))
        flat = fields.reshape(m * d, k)
        for start in range(0, m, rows):
            some, part = points[start : start + rows], flat[start * d : (start + rows) * d]
            prior += part.T @ np.asarray(_rotation(some, points, self.hyper, self.ambient) @ flat)
            cross += np.asarray(_rotation(self.points, some, self.hyper, self.ambient) @ part)
        half = scipy.linalg.solve_triangular(np.asarray(self.factor), cross, lower=True)
        covariance = prior - half.T @ half
        return covariance, -scipy.linalg.solve_triangular(np.asarray(self.factor), half, lower=True, trans=1)

    def moved_by(self, step: Float[Array, " nd"]) -> "PairPosterior":
        """The same posterior of the whole field, with a gradient of these coefficients moved from D to P."""
        coefficients = jnp.asarray(step).reshape(self.points.shape)
        return eqx.tree_at(lambda p: p.moved, self, coefficients, is_leaf=lambda leaf: leaf is None)

    def variances(self, points: Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Posterior variances of the potential (q,), of P (q, d) and of D (q, d)."""
        return _variances(self, points)


@jax.jit
def _parts(posterior: PairPosterior, x, stretch):
    y, hyper, ambient = posterior.points, posterior.hyper, posterior.ambient
    parts = apply_pair(x, y, posterior.coefficients, hyper, ambient, posterior.stretch)
    if posterior.moved is None:
        return parts
    moved = apply_pair(x, y, posterior.moved, hyper, ambient, posterior.stretch)
    rotation = parts.rotation - stretched(moved.gradient, stretch)
    return Parts(parts.gradient + moved.gradient, rotation, parts.potential + moved.potential)


@partial(jax.jit, static_argnames="ambient")
def _rotation(x, y, hyper: Hyper, ambient: int):
    return pair_matrices(x, y, hyper, ambient)[1]


@partial(jax.jit, static_argnames="ambient")
def condition(points, field, inflation, hyper: Hyper, ambient: int, stretch: Stretch = None) -> PairPosterior:
    """Condition the prior on samples: one Cholesky factorisation of the (n d, n d) system."""
    L = jnp.linalg.cholesky(_system(points, inflation, hyper, ambient, stretch))
    a = cho_solve((L, True), field.reshape(-1)).reshape(points.shape)
    return PairPosterior(points, a, None, L, hyper, stretch, ambient)


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
    turning = hyper.rotation * (1.0 + 0.5 * AFFINE * (x2[:, None] - x * x))
    return (
        jnp.maximum(potential - explained(_from_right(cross.reshape(q, -1), posterior.stretch)), 0.0),
        jnp.maximum(prior - explained(_from_right(gradient, posterior.stretch)).reshape(q, d), 0.0),
        jnp.maximum(turning * (posterior.ambient > 1) - explained(rotation).reshape(q, d), 0.0),
    )
