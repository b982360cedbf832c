"""What is done with the residual R = F - P of a projection P: dropped as in `alg:hpml`, or treated.

- "drop": follow P alone. Its fixed points are those of P, not those of F.
- "extragradient": P(x) + R(y) at the point y that one step along F leads to. Looking ahead along F, and not along R
  alone, is what keeps the fixed points of F: there y = x.
- "optimistic": P(x_t) + 2 R(x_t) - R(x_{t-1}).
- "adjust": F + lambda A F with A the antisymmetric part of the Jacobian. It needs no projection.
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float

from hpml.dynamics.oracle import Oracle
from hpml.dynamics.rule import Batch, Move, Rate
from hpml.geometry.arrays import Array

RESIDUALS = ("drop", "extragradient", "optimistic", "adjust")

Projected = Callable[[Batch], Float[Array, "s d"]]  # P at each start's point


def treat(
    kind: str,
    oracle: Oracle,
    move: Move,
    points: Batch,
    step: Rate,
    projected: Projected | None,
    previous: Batch | None = None,
    adjustment: float = 1.0,
    field: Batch | None = None,
) -> tuple[Any, Any]:
    """The direction to follow, and the residual to remember as `previous` (None where none is needed).

    `field` is F at the points where it has been evaluated already.
    """
    if projected is None:
        F = oracle(points)
        return F + adjustment * oracle.turn(points, F), None
    P = projected(points)
    if kind == "drop":
        return P, None
    F = oracle(points) if field is None else field
    if kind == "optimistic":
        R = F - P
        return P + 2.0 * R - (R if previous is None else previous), R
    ahead = move(points, step * F)
    return P + oracle(ahead) - projected(ahead), None


def check_residual(kind: str) -> None:
    """A `ValueError` where there is no such treatment."""
    if kind not in RESIDUALS:
        raise ValueError(f"residual must be one of {', '.join(RESIDUALS)}; got {kind!r}.")
