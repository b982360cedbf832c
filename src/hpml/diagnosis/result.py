"""`Diagnosis`: everything that `hpml diagnose` found, as plain numbers, arrays and sentences (`def:nonpot`)."""

from dataclasses import dataclass

from jaxtyping import Float, Int

from hpml.diagnostics.conventions import ConventionGraph, Conventions
from hpml.diagnostics.cycles import Loop
from hpml.diagnostics.disc import DiscPlanes
from hpml.geometry.arrays import Array
from hpml.projection.nonpotentiality import NonPotentiality
from hpml.projection.projector import Energy


@dataclass(frozen=True)
class BlockShare:
    """What one agent's coordinates have of the field and of the residual.

    - `size`: how many coordinates; `start` the first of them.
    - `field`, `residual`: shares of the whole field's and the whole residual's energy, each summing to 1 over blocks.
    - `nonpotentiality`: the residual's energy over the field's, inside the block; above 1 where the projected field is
      larger than the field itself.
    """

    name: str
    start: int
    size: int
    field: float
    residual: float
    nonpotentiality: float


@dataclass(frozen=True)
class CoordinateShare:
    """One coordinate's share of the residual's energy and of the field's."""

    name: str
    residual: float
    field: float


@dataclass(frozen=True)
class Plane:
    """Two coordinates to draw the samples in: the leading principal axes of the points.

    - `points` (n, 2), and the parts of the vectors that lie in the plane: field = direction + residual.
    - `axes` (2, d) orthonormal (in the metric), `centre` (d,); `explained` (2,) the share of the points' variance along
      each axis; `names` what to write at the axes.
    """

    points: Float[Array, "n 2"]
    field: Float[Array, "n 2"]
    direction: Float[Array, "n 2"]
    residual: Float[Array, "n 2"]
    centre: Float[Array, " d"]
    axes: Float[Array, "2 d"]
    explained: Float[Array, " 2"]
    names: tuple[str, str]


@dataclass(frozen=True)
class Diagnosis:
    """How much of a sampled field circulates, where, around which loops, and what the samples cannot tell.

    What was read
    - `source`: the file, or "arrays"; `given`: samples in it; `count`: samples used; `dimension`: coordinates.
    - `spread_dimension`: in how many directions the points spread, at most `dimension`.
    - `estimates`: 1, or 2 where the field came as two independent estimates.
    - `rows` (n,): which of the given samples are used; `labels`: the user's label of each, or None.
    - `names`: the coordinates' names; `notes`: what was done to the data (a subsample, a sketch), a sentence each.

    How much
    - `headline`: the answer in one sentence.
    - `nonpotentiality`: `.estimate`, `.low`, `.high` held out at `level`, `.noise`, `.identifiable`, `.in_sample`;
      its `.warning` is not empty where the samples do not settle the share.
    - `energy`: `.potential`, `.circulation`, `.noise`, which add up to the field's mean energy.
    - `method`: the estimator.

    Where (all with one row a used sample)
    - `residual_share` (n,): |R|^2 over the mean of |F|^2; `potential` (n,); `plane`: two coordinates to draw in.
    - `blocks`: a share for each agent; `coordinates`: the coordinates with the largest residual first, at most 12.

    Which loops
    - `conventions`: the clusters; `graph`: their graph with the edge flow; `loops`: the strongest first.
    - `disc`: rotation planes of the antisymmetric part; `disc_points` (n, p, 2): the samples in them.

    What next
    - `limits`: what these samples cannot tell; `advice`: what to do, a sentence each.
    """

    source: str
    given: int
    count: int
    dimension: int
    spread_dimension: float
    estimates: int
    rows: Int[Array, " n"]
    labels: tuple[str, ...] | None
    names: tuple[str, ...]
    notes: tuple[str, ...]

    headline: str
    nonpotentiality: NonPotentiality
    level: float
    energy: Energy
    method: str

    residual_share: Float[Array, " n"]
    potential: Float[Array, " n"]
    plane: Plane
    blocks: tuple[BlockShare, ...]
    coordinates: tuple[CoordinateShare, ...]

    conventions: Conventions
    graph: ConventionGraph
    loops: tuple[Loop, ...]
    disc: DiscPlanes
    disc_points: Float[Array, "n p 2"]

    limits: tuple[str, ...]
    advice: tuple[str, ...]
