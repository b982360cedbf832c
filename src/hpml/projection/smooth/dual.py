"""The same split in dual form for many coordinates and few samples: kernels applied, never formed, and conjugate
gradients.

One coefficient vector a sample; a product with the kernel costs O(n^2 d). Everything has fixed shapes and a mask,
so the plug-in runs it inside a compiled step. The noise, and with it how much is believed, is chosen by the loss at
rows that were left out; so is the penalty of the second step, which moves into the potential what a gradient
explains of the rotation part under the samples' own measure (`def:proj`).
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.projection.smooth.pair import Hyper, add_blocks, apply_block, apply_pair, pair_blocks

# In units of the samples' radius and the field's size. Less noise than the least would take too many iterations.
NOISES = (1e-2, 0.1, 0.5)
PENALTIES = (0.1, 1.0)
ROTATION = 0.1  # prior variance of the rotation part beside 1 for the gradient: what fits both counts as gradient


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


def _hyper(length) -> Hyper:
    return Hyper(length, length, 1.0, ROTATION, 0.0)


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

    def whole(a):
        return apply_block(both, x, x, a)

    def gradients(a):
        return apply_block(gradient, x, x, a)

    # Every third row judges the candidates that the others fit.
    judge = mask * (jnp.arange(len(mask)) % 3 == 1)
    learn = mask - judge
    even = jnp.ones_like(mask)
    share = even if weights is None else weights * count / jnp.maximum((weights * mask).sum(), 1e-30)

    def choose(operator, target, candidates, share):
        """The candidate with the smallest loss at the judging rows, and that loss."""

        def loss(noise):
            fitted = operator(_solve(operator, target, noise, learn * share**0.5, iterations))
            return ((judge * share)[:, None] * (target - fitted) ** 2).sum()

        losses = jnp.stack([loss(noise) for noise in candidates])
        least = losses.min()
        return jnp.where(losses == least, candidates, 0.0).max(), least

    noise, _ = choose(whole, f, jnp.asarray(NOISES, x.dtype), even)
    a = _solve(whole, f, noise, mask, iterations)
    turning = apply_block(rotation, x, x, a) * mask[:, None]
    penalty, loss = choose(gradients, turning, jnp.asarray(PENALTIES, x.dtype), share)
    b = _solve(gradients, turning, penalty, mask * share**0.5, iterations)
    nothing = ((judge * share)[:, None] * turning**2).sum()
    b = jnp.where(loss < nothing, b, 0.0)
    keep = jnp.where(enough, 1.0, 0.0)
    return DualFit(x, a * keep, b * keep, centre, scale, size * keep, jnp.asarray(length, x.dtype), noise, ambient)


def _solve(operator, target, noise, mask, iterations: int):
    """a = m c with (m K m + noise) c = m target by conjugate gradients, m the mask or the roots of weights.

    They run until they have converged: an iterate on the way there turns rounding into visible differences.
    """
    rows = mask[:, None]

    def unfinished(carry):
        count, _, _, _, rr = carry
        return (count < iterations) & (rr > 1e-11 * whole)

    def step(carry):
        count, a, r, p, rr = carry
        q = rows * operator(rows * p) + noise * p
        alpha = rr / jnp.maximum((p * q).sum(), 1e-30)
        a, r = a + alpha * p, r - alpha * q
        new = (r * r).sum()
        return count + jnp.int32(1), a, r, r + new / jnp.maximum(rr, 1e-30) * p, new

    start = rows * target
    whole = (start * start).sum()
    return rows * jax.lax.while_loop(unfinished, step, (jnp.int32(0), jnp.zeros_like(start), start, start, whole))[1]
