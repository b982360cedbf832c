"""The constants of `ass:smooth` and `ass:residual`: exact where they can be, otherwise the largest that was seen.

Every estimate includes the run's own points, and L the run's own steps. The proofs use the constants only there: on a
run that follows the theorem's update the bounds hold with these estimates as they do with the true constants, which can
only be larger.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from hpml.certificates.certificate import Constant
from hpml.certificates.potential import Potential
from hpml.geometry.arrays import Array, in_double
from hpml.geometry.domain import Domain

Points = Float[np.ndarray, "n d"]

KEEP, TRIES, ROUNDS = 8, 32, 12  # best points kept, proposals around each, halvings of their distance
POWER = 8  # rounds of power iteration, each with two gradients a point
HESSIANS = 256  # points where curvature is measured


@in_double
def retract(domain: Domain, points: Array) -> Array:
    """The domain's retraction in float64."""
    return domain.retract(points)


def largest(
    function: Callable[[Points], Float[np.ndarray, " n"]], seen: float, domain: Domain, points: Points, seed: int
) -> float:
    """The largest value seen on a run, at the points, and in a shrinking random search around the best of them."""
    if not len(points):
        return seen
    rng = np.random.default_rng(seed)
    values = function(points)
    best, top = points, values
    reach = domain.diameter / 2
    for _ in range(ROUNDS):
        order = np.argsort(-top)[:KEEP]
        best, top = best[order], top[order]
        steps = rng.normal(size=(TRIES, *best.shape)) * reach / np.sqrt(domain.dimension)
        tries = retract(domain, (best + steps).reshape(-1, best.shape[1]))
        best, top = np.concatenate([best, tries]), np.concatenate([top, function(tries)])
        reach /= 2
    return float(max(seen, top.max()))


def smoothness(
    potential: Potential, domain: Domain, points: Points, path: Float[np.ndarray, "m d"], on_path: float, seed: int
) -> Constant:
    """L: the potential's own where it knows it, otherwise the largest curvature seen; `on_path` is the run's own.

    A quotient |grad Phi(x) - grad Phi(y)| / |x - y| never exceeds L; power iteration turns y - x towards the direction
    in which it is largest.
    """
    known = potential.smoothness(points[:HESSIANS] if len(points) else path[:HESSIANS])
    if known is not None and known.source != "estimated":
        return known
    if known is not None:
        how = f"the largest of {known.how} and along the run"
        return Constant(max(known.value, on_path), "estimated", how)
    if not len(points):
        return Constant(on_path, "estimated", "the largest along the run")
    rng = np.random.default_rng(seed)
    X = points[rng.permutation(len(points))[:HESSIANS]]
    size = 1e-3 * domain.diameter
    U = rng.normal(size=X.shape)
    G, top = potential.gradient(X), 0.0
    for _ in range(POWER):
        Y = retract(domain, X + size * U / np.maximum(np.linalg.norm(U, axis=1, keepdims=True), 1e-300))
        length = np.linalg.norm(Y - X, axis=1)
        U = potential.gradient(Y) - G
        far = length > 0.1 * size  # a step against the boundary leaves nothing but rounding
        if far.any():
            top = max(top, float((np.linalg.norm(U, axis=1)[far] / length[far]).max()))
        U = np.where(np.linalg.norm(U, axis=1, keepdims=True) > 0, U, rng.normal(size=X.shape))
        U[~far] = rng.normal(size=U[~far].shape)
    how = f"the largest quotient of gradient differences at {len(X)} points and along the run"
    return Constant(max(top, on_path), "estimated", how)
