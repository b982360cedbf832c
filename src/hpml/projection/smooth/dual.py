"""The same split in dual form for many coordinates and few samples: kernels applied, never formed, and conjugate
gradients.

One coefficient vector a sample; a product with the kernel costs O(n^3), because beside a scalar matrix the kernel acts
in the span of the points alone. Everything has fixed shapes and a mask, so the plug-in runs it inside a compiled step.
The noise, and with it how much is believed, is chosen by the loss at rows that were left out; so is the penalty of the
second step, which moves into the potential what a gradient explains of the rotation part under the samples' own measure
(`def:proj`).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.projection.smooth.bounds import variance_bounds
from hpml.projection.smooth.pair import Block, Hyper, add_blocks, apply_block, apply_pair, pair_blocks

# In units of the samples' radius and the field's size. Less noise than the least would take too many iterations.
NOISES = (1e-2, 0.1, 0.5)
PENALTIES = (0.1, 1.0)
ROTATION = 0.1  # prior variance of the rotation part beside 1 for the gradient: what fits both counts as gradient

# Errors of a solution, beside its length, as conjugate gradients estimate them: to choose between candidates takes
# fewer digits than to use one.
FINE = 1e-6
ROUGH = 1e-4

# Up to so many rows the small matrices are factored by XLA's own loops: LAPACK's threads made a fit of 64 rows take
# 150 ms instead of 15 on a busy machine.
SMALL = 256


class DualFit(eqx.Module):
    """Coefficients a of the whole field and b of the second step, on scaled points."""

    points: Float[Array, "n d"]
    first: Float[Array, "n d"]
    second: Float[Array, "n d"]
    centre: Float[Array, " d"]
    scale: Float[Array, ""]
    size: Float[Array, ""]
    length: Float[Array, ""]
    noise: Float[Array, ""]
    ambient: int = eqx.field(static=True)

    def parts(self, points: Float[Array, "q d"]) -> tuple[Array, Array, Array]:
        """Potential (q,), projected field (q, d) and residual (q, d) at points in the caller's coordinates."""
        u = (points - self.centre) / self.scale
        one = apply_pair(u, self.points, self.first, _hyper(self.length), self.ambient)
        two = apply_pair(u, self.points, self.second, _hyper(self.length), self.ambient)
        potential = (one.potential + two.potential) * self.size * self.scale
        return potential, (one.gradient + two.gradient) * self.size, (one.rotation - two.gradient) * self.size

    def variances(self, points: Float[Array, "q d"]) -> tuple[Array, Array, Array]:
        """Upper bounds of the first step's posterior variances (`bounds.py`): potential (q,), P (q, d) and D (q, d).

        The prior's variance is 1 in the field's size: see `evidence`.
        """
        u = (points - self.centre) / self.scale
        bounds = lambda one: variance_bounds(self.points, _hyper(self.length, self.noise), self.ambient, one)  # noqa: E731
        potential, gradient, rotation = jax.lax.map(bounds, u)
        return potential * (self.size * self.scale) ** 2, gradient * self.size**2, rotation * self.size**2

    def evidence(self, field: Float[Array, "n d"]) -> jax.Array:
        """The variance, in units of the prior's, under which the samples are likeliest: <f, K^-1 f> / (n d)."""
        size = jnp.where(self.size > 0, self.size, 1.0)  # 0 where the fit says nothing
        return jnp.maximum((field / size * self.first).sum() / field.size, 0.0)


def _hyper(length, noise=0.0) -> Hyper:
    return Hyper(length, length, 1.0, ROTATION, noise)


def empty_dual(count: int, dimension: int, ambient: int, dtype) -> DualFit:
    """A fit that says nothing anywhere."""
    rows = jnp.zeros((count, dimension), dtype)
    one = jnp.ones((), dtype)
    return DualFit(rows, rows, rows, jnp.zeros(dimension, dtype), one, jnp.zeros((), dtype), one, one, ambient)


def fit_dual(
    points: Float[Array, "n d"],
    field: Float[Array, "n d"],
    mask: Float[Array, " n"],
    ambient: int,
    length: float = 2.0,
    iterations: int = 64,
    weights: Float[Array, " n"] | None = None,
) -> DualFit:
    """Split the rows that count. All under jit; with fewer than two of them the fit says nothing.

    `weights` say how much of the measure each row carries in the second step.
    """
    count = jnp.maximum(mask.sum(), 1.0)
    centre = (points * mask[:, None]).sum(0) / count
    x = (points - centre) * mask[:, None]
    scale = jnp.sqrt((x * x).sum() / count)
    size = jnp.sqrt(((field * mask[:, None]) ** 2).sum() / count)
    enough = (mask.sum() >= 2) & (scale > 0) & (size > 0)
    scale, size = jnp.where(enough, scale, 1.0), jnp.where(enough, size, 1.0)
    x, f = x / scale, field * mask[:, None] / size
    hyper = _hyper(jnp.asarray(length, x.dtype))

    gradient, rotation = pair_blocks(x, x, hyper, ambient)
    both = add_blocks(gradient, rotation)

    # Every third row judges the candidates that the others fit.
    place = np.arange(len(mask))
    judge, learn = place[place % 3 == 1], place[place % 3 != 1]
    even = jnp.ones_like(mask)
    share = even if weights is None else weights * count / jnp.maximum((weights * mask).sum(), 1e-30)

    def choose(block, target, candidates, share):
        """The candidate with the smallest loss at the judging rows, and that loss; and the loss of nothing."""
        known, asked = _sub_block(block, learn, learn), _sub_block(block, judge, learn)
        believed, counted = (mask * share**0.5)[learn], (mask * share)[judge, None]

        def loss(noise):
            rough = _solve(known, x[learn], target[learn], noise, believed, iterations, ROUGH)
            return (counted * (target[judge] - apply_block(asked, x[judge], x[learn], rough)) ** 2).sum()

        losses = jnp.stack([loss(noise) for noise in candidates])
        least = losses.min()
        return jnp.where(losses == least, candidates, 0.0).max(), least, (counted * target[judge] ** 2).sum()

    noise, *_ = choose(both, f, jnp.asarray(NOISES, x.dtype), even)
    a = _solve(both, x, f, noise, mask, iterations)
    turning = apply_block(rotation, x, x, a) * mask[:, None]
    penalty, loss, nothing = choose(gradient, turning, jnp.asarray(PENALTIES, x.dtype), share)
    b = _solve(gradient, x, turning, penalty, mask * share**0.5, iterations)
    b = jnp.where(loss < nothing, b, 0.0)
    keep = jnp.where(enough, 1.0, 0.0)
    return DualFit(x, a * keep, b * keep, centre, scale, size * keep, jnp.asarray(length, x.dtype), noise, ambient)


def _sub_block(block: Block, rows: np.ndarray, columns: np.ndarray) -> Block:
    """The kernel between some of the points."""
    return Block(block.scalar[rows][:, columns], block.cross[rows][:, columns], block.turn)


def _solve(block: Block, x, target, noise, mask, iterations: int, tolerance: float = FINE):
    """a = m c with (m K m + noise) c = m target, m the mask or the roots of weights.

    K is a scalar matrix S on every coordinate plus a rest that stays in the span of the points. P = (m S m + noise)^-1
    is the answer across the span and preconditions conjugate gradients inside it: some 20 iterations instead of 50 to
    300 without. What is inside is a combination B x of the points, never formed: iterates are their B, inner products
    are those of B x, and an iteration is two products of (n, n) matrices, since (m S m + noise) z is r where z = P r.
    It runs until it has converged: an iterate on the way there turns rounding into visible differences.
    """
    rows = mask[:, None]
    P = _inverse(rows * block.scalar * mask + noise * jnp.eye(len(mask), dtype=x.dtype))
    G = _dot(x, x.T)
    start = rows * target
    across = _dot(P, start)

    def rest(inner):
        """The kernel without S on coefficients with inner[j, i] = <c_j, x_i>, as B."""
        inner = rows * inner
        weights = block.cross.T * (inner - jnp.diagonal(inner)[:, None])
        return rows * ((block.turn * inner - weights).T + jnp.diag(weights.sum(0)))

    def unfinished(carry):
        count, *_, rz = carry
        return (count < iterations) & (rz > bound)

    def step(carry):
        count, B, r, p, Sp, pG, rz = carry
        q = Sp + rest(pG)
        alpha = rz / jnp.maximum((q * pG).sum(), 1e-30)
        B, r = B + alpha * p, r - alpha * q
        z, zG, new = weighed(r)
        beta = new / jnp.maximum(rz, 1e-30)
        return count + jnp.int32(1), B, r, z + beta * p, r + beta * Sp, zG + beta * pG, new

    def weighed(r):
        z = _dot(P, r)
        zG = _dot(z, G)
        return z, zG, (r * zG).sum()

    bound = tolerance**2 * (start * across).sum()
    r = -rest(_dot(across, x.T))
    z, zG, rz = weighed(r)
    carry = (jnp.int32(0), jnp.zeros_like(r), r, z, r, zG, rz)
    B = jax.lax.while_loop(unfinished, step, carry)[1]
    return rows * (across + _dot(B, x))


def _inverse(A: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The inverse of a positive definite matrix, by Gauss-Jordan sweeps."""
    n = len(A)
    if n > SMALL:
        return cho_solve(cho_factor(A), jnp.eye(n, dtype=A.dtype))

    def sweep(k, A):
        own = jnp.arange(n, dtype=jnp.int32) == k
        row = _row(A, k)
        pivot = 1.0 / _row(row, k)
        row = jnp.where(own, 0.0, row)  # and the column; the swept part stays symmetric up to its sign
        column = jnp.where(own, 0.0, _row(A.T, k))
        A = A - column[:, None] * (row * pivot)
        A = jnp.where(own[:, None], row * pivot, jnp.where(own, -column[:, None] * pivot, A))
        return jnp.where(own[:, None] & own, pivot, A)

    return jax.lax.fori_loop(jnp.int32(0), jnp.int32(n), sweep, A)


def _row(values: Array, k: Array) -> jax.Array:
    return jax.lax.dynamic_index_in_dim(values, k, 0, keepdims=False)


def _dot(left: Array, right: Array) -> jax.Array:
    # Not `@`: it asks for a result type, which vmap of a conditional would turn back into float32.
    return jax.lax.dot(jnp.asarray(left), jnp.asarray(right))
