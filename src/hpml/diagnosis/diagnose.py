"""`diagnose`: from samples to a `Diagnosis` (`def:nonpot`, `rem:convention_graph`)."""

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from hpml.diagnosis.result import Diagnosis
from hpml.diagnosis.split import LEVEL, TESTED, fitted_count, split_samples
from hpml.diagnosis.where import (
    block_shares,
    coordinate_energies,
    coordinate_shares,
    drawing_plane,
    residual_shares,
    spread_dimension,
)
from hpml.diagnosis.words import advise, enough, headline, identified, limits_of
from hpml.diagnostics.conventions import convention_graph, convention_loops, find_conventions
from hpml.diagnostics.disc import witness_planes
from hpml.geometry.metric import Euclidean, Metric
from hpml.geometry.samples import Measure, gather_samples
from hpml.projection.projector import Projector
from hpml.record.files import read_samples
from hpml.record.samples import LIMIT, SampleData, make_samples, take

NUMBERS, FEWEST = 20_000_000, 200  # numbers n d that are used at all, if that leaves so many samples
LISTED = 12  # loops that are listed
SMALL_LOOP = 0.01  # loops with less than this share are not listed
NEGLIGIBLE = 0.002  # where less of the flow between conventions than this is cyclic, its loops are the fit's error


def diagnose(
    points: Any,
    field: Any = None,
    *,
    labels: Any = None,
    weights: Any = None,
    blocks: Any = None,
    names: Any = None,
    projector: Projector | None = None,
    metric: Metric | None = None,
    measure: Measure = None,
    conventions: int | None = None,
    limit: int = LIMIT,
    key: Any = None,
    progress: Callable[[str], None] | None = None,
) -> Diagnosis:
    """How much of a sampled field circulates, where, around which loops, and what to do.

    - `points`, `field`: arrays as in `hpml.project`; or `points` alone: a file's path (`read_samples`) or `SampleData`.
    - `labels` (n,): what the agents do at each sample; loops are named by it. `weights` (n,).
    - `blocks`: each agent's number of coordinates, in order, with or without a name. `names`: the coordinates'.
    - `projector`, `metric`, `measure`, `key`: as in `hpml.project`.
    - `conventions`: how many groups of samples are looked for; chosen from the data unless given.
    - `limit`: the most samples that are used, chosen uniformly at random; `notes` of the answer says so.
    - `progress`: called with a word or two before each part.
    """
    say = progress or (lambda _: None)
    data = _data(points, field, labels, weights, blocks, names, limit, projector)
    metric = Euclidean() if metric is None else metric
    n, d = data.points.shape
    X, F = data.points, data.field.mean(0) if data.field.ndim == 3 else data.field
    w = np.full(n, 1.0 / n) if data.weights is None else data.weights / data.weights.sum()
    samples = gather_samples(X, data.field, data.weights, metric)

    say("how much circulates")
    split = split_samples(data, samples, metric, projector, measure, key)
    share, R = split.share, F - split.direction

    say("where, and around which loops")
    found = find_conventions(X, data.labels, conventions, w, data.names, metric)
    graph = convention_graph(found, X, R, split.potential, w, metric)
    loops = convention_loops(found, graph, X, R, w, metric) if graph.nonpotentiality >= NEGLIGIBLE else ()
    loops = tuple(loop for loop in loops if loop.share >= SMALL_LOOP)[:LISTED]
    planes = witness_planes(share.witness, samples.weights @ samples.points)
    of_field, of_residual = coordinate_energies(data, F, split.direction, w, metric)
    result = Diagnosis(
        source=data.source,
        given=data.given,
        count=n,
        dimension=d,
        spread_dimension=spread_dimension(X),
        estimates=2 if data.field.ndim == 3 else 1,
        rows=data.rows,
        labels=data.labels,
        names=data.names,
        notes=data.notes + split.notes,
        headline="",
        nonpotentiality=share,
        level=LEVEL,
        energy=split.energy,
        method=split.method,
        residual_share=residual_shares(R, F, X, w, metric),
        potential=split.potential,
        plane=drawing_plane(X, F, split.direction, metric, data.names),
        blocks=block_shares(data, of_field, of_residual),
        coordinates=coordinate_shares(data, of_field, of_residual),
        conventions=found,
        graph=graph,
        loops=loops,
        disc=planes,
        disc_points=planes.embed(X),
        limits=(),
        advice=(),
    )
    known = samples.noise is not None
    answer, limits, advice = headline(result), limits_of(result, known), advise(result, known)
    if identified(result) and not enough(result):
        share = replace(share, warning=answer)
    return replace(result, nonpotentiality=share, headline=answer, limits=limits, advice=advice)


def _data(points, field, labels, weights, blocks, names, limit: int, projector: Projector | None) -> SampleData:
    """The samples that are used; what the caller says about them goes before what the file says."""
    said = {"labels": labels, "weights": weights, "blocks": blocks, "names": names}
    if isinstance(points, str | PathLike | SampleData):
        read = points if isinstance(points, SampleData) else read_samples(points, field, limit)
        more = make_samples(read.points, read.field, **said)
        read = replace(read, **{name: getattr(more, name) for name, value in said.items() if value is not None})
    elif field is None:
        raise ValueError("field is missing: give the update at each point, or a file that has both.")
    else:
        read = make_samples(points, field, **said, limit=limit)
    n, d = read.points.shape
    rows = np.arange(n) if read.weights is None else np.flatnonzero(read.weights > 0)
    fitted = fitted_count(len(rows), d, projector)
    most = min(max(FEWEST, NUMBERS // d), fitted + (TESTED if fitted < len(rows) else 0))
    if len(rows) > most:
        read = replace(read, notes=(*read.notes, f"Of {len(rows):,} samples {most:,} are enough, chosen at random."))
        rows = np.sort(np.random.default_rng(0).choice(rows, most, replace=False))
    return read if len(rows) == n else take(read, rows)
