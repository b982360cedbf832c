"""Upper bounds of the pair's posterior variances at a point, for more samples and coordinates than can be factored.

To know less can only raise a variance, so a bound needs few numbers of few samples: of the nearest ones their own
coordinate, and for the potential their component along what the potential says of them.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.projection.smooth.pair import AFFINE, Hyper, add_blocks, pair_blocks

NEAR = 128  # samples that a bound goes by


def variance_bounds(
    points: Float[Array, "n d"], hyper: Hyper, ambient: int, u: Float[Array, " d"]
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Bounds at one point u for the potential (), for P (d,) and for D (d,), given noisy samples at the points."""
    near = jax.lax.top_k(-((points - u) ** 2).sum(1), min(len(points), NEAR))[1]
    x = jnp.asarray(points)[near]
    gradient, rotation = pair_blocks(x, x, hyper, ambient)
    both = add_blocks(gradient, rotation)
    own = hyper.noise * jnp.eye(len(x), dtype=x.dtype)

    def left(prior: Array, covariance: Array, system: Array) -> jax.Array:
        half = jnp.linalg.solve(system + own, covariance)
        return jnp.maximum(prior - covariance @ half, 0.0)

    to, here = pair_blocks(u[None], x, hyper, ambient), pair_blocks(u[None], u[None], hyper, ambient)

    def coordinate(at: tuple[Array, Array]) -> tuple[jax.Array, jax.Array]:
        u_i, x_i = at
        step = x_i[:, None] - x_i[None]
        system = both.scalar + both.cross * step**2 + both.turn * x_i[:, None] * x_i[None]
        return tuple(
            left(
                (prior.scalar + prior.turn * u_i**2)[0, 0],
                (block.scalar + block.cross * (u_i - x_i) ** 2 + block.turn * u_i * x_i)[0],
                system,
            )
            for block, prior in zip(to, here, strict=True)
        )  # type: ignore[return-value]

    P, D = jax.lax.map(coordinate, (u, x.T))
    # Cov(Phi(u), F(x_j)), from `apply_pair`; each sample is asked for its component along that.
    step = u[None] - x
    k = jnp.exp(-(step**2).sum(1) / (2 * hyper.length_gradient**2))
    towards = hyper.gradient * (k[:, None] * step + AFFINE * (1.0 + 0.5 * x @ u)[:, None] * u[None])
    size = jnp.sqrt((towards**2).sum(1))
    e = towards / jnp.where(size > 0, size, 1.0)[:, None]
    ahead, behind = (e * x).sum(1)[:, None] - e @ x.T, x @ e.T - (e * x).sum(1)[None]
    # e_i K_ij e_j with K_ij = s I + c d d^T + t x_j x_i^T, d = x_i - x_j
    system = both.scalar * (e @ e.T) + both.cross * ahead * behind + both.turn * (e @ x.T) * (x @ e.T)
    x2 = (u * u).sum()
    prior = hyper.gradient * (hyper.length_gradient**2 + AFFINE * (x2 + 0.25 * x2**2))
    return left(prior, size, system), P, D
