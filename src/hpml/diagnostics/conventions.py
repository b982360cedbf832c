"""Conventions: recurring joint behaviours, and the flow between them (`rem:convention_graph`).

Samples are grouped by the user's labels, by the nearest pure joint strategy, or by k-means. The convention graph has a
node for each group, at the mean of its samples. The flow from a to b is the mean potential's rise plus the trapezoid
rule on the mean residual (`eq:edge_flow`): a gradient field then has no cyclic part between conventions, however few.
"""

import string
from collections import Counter
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int
from scipy.cluster.vq import kmeans2

from hpml.diagnostics.cycles import Loop, find_loops
from hpml.geometry.arrays import Array, as_finite, as_matrix
from hpml.geometry.metric import Euclidean, Metric
from hpml.projection.discrete.flow import EdgeFlow, split_flow
from hpml.projection.discrete.graph import edge_weights, make_graph, weigh_samples
from hpml.projection.discrete.poisson import solve_poisson

FEWEST, MOST = 3, 12  # conventions looked for: a loop needs three, and nobody reads more than a dozen
EACH = 5  # samples that a convention must have on average
ENOUGH = 4000  # samples that the centres are found on
AXES = 16  # principal coordinates that samples are grouped in
SIMILAR = 0.02  # of two numbers of conventions whose scores differ by less, the smaller is taken
CLUSTERED = 0.6  # a score below this is that of a cloud without gaps: a uniform disc has about 0.5
LABELS = 24  # more labels than this are not conventions
NAMED = 64  # with more coordinates than this, one of them does not name a convention


class Conventions(eqx.Module):
    """Groups of samples.

    - `names` (k): the user's labels, or what is typical of the group.
    - `member` (n,): each sample's group. `centres` (k, d), `mass` (k,): means and shares of the samples.
    - `score` in [0, 1]: how well separated the groups are, the mean of 1 - (distance to the own centre) / (distance to
      the next); `clustered` says whether they are more than regions of one cloud.
    - `origin`: "labels", "strategies" or "clusters".
    """

    names: tuple[str, ...] = eqx.field(static=True)
    member: Int[Array, " n"]
    centres: Float[Array, "k d"]
    mass: Float[Array, " k"]
    score: float
    origin: str = eqx.field(static=True)

    @property
    def count(self) -> int:
        """The number k of conventions."""
        return len(self.names)

    @property
    def clustered(self) -> bool:
        """Whether the samples gather around the centres."""
        return self.score >= CLUSTERED

    def mean(self, values: Float[Array, "n ..."], weights: Float[Array, " n"]) -> Float[np.ndarray, "k ..."]:
        """The weighted mean over each group."""
        flat = np.asarray(values, np.float64).reshape(len(self.member), -1)
        total = np.zeros((self.count, flat.shape[1]))
        np.add.at(total, np.asarray(self.member), flat * weights[:, None])
        out = total / np.bincount(self.member, weights, self.count)[:, None]
        return out.reshape(self.count, *np.shape(values)[1:])


class ConventionGraph(eqx.Module):
    """The flow between conventions: `flow` has .edges, .weights, .omega, .potential and .cyclic, its nodes are the
    conventions, named by `names` and placed at `centres`."""

    names: tuple[str, ...] = eqx.field(static=True)
    centres: Float[Array, "k d"]
    flow: EdgeFlow

    @property
    def nonpotentiality(self) -> float:
        """The share of the flow between conventions that only cycles among them explain (`def:disc_nonpot`)."""
        return self.flow.nonpotentiality


def find_conventions(
    points: Any,
    labels: Any = None,
    count: int | None = None,
    weights: Any = None,
    names: Any = None,
    metric: Metric | None = None,
    seed: int = 0,
) -> Conventions:
    """Group samples by their labels, or by k-means where there are none.

    - `labels`: one for each sample; each distinct label is a convention. More than 24 name the groups of k-means, each
      by its commonest.
    - `count`: how many conventions; chosen from the data between 3 and 12 unless given, by the score of `Conventions`.
    - `names`: the coordinates' names, for conventions that are named by what is typical of them.
    """
    X = as_matrix(points, "points")
    n = len(X)
    w = np.full(n, 1.0 / n) if weights is None else as_finite(weights, "weights")
    metric = Euclidean() if metric is None else metric
    Y = principal_coordinates(np.asarray(metric.whiten(X)) if metric.constant else X, AXES)
    if labels is not None:
        if len(labels) != n:
            raise ValueError(f"labels must have one entry for each of the {n} points, got {len(labels)}.")
        texts = [str(label) for label in labels]
        order = {name: a for a, name in enumerate(dict.fromkeys(texts))}
        if len(order) <= LABELS:
            return _gather(tuple(order), np.array([order[text] for text in texts]), X, Y, w, "labels")
    if count is not None and not 1 <= count <= n:
        raise ValueError(f"count must be between 1 and the {n} points, got {count}.")
    member = _cluster(Y, w, count, np.random.default_rng(seed))
    grouped = _gather(tuple(str(a) for a in range(int(member.max()) + 1)), member, X, Y, w, "clusters")
    typical = typical_names(grouped.centres, X, w, names) if labels is None else _commonest(member, texts)
    return Conventions(typical, member, grouped.centres, grouped.mass, grouped.score, "clusters")


def joint_conventions(points: Any, strategies: Sequence[Any], labels: Any, weights: Any = None) -> Conventions:
    """Group samples of a game by their nearest pure joint strategy: what each agent mostly plays.

    `strategies` has one array (n, actions) an agent, `labels` the actions' names. One agent's conventions are named
    "rock", those of several "rock, paper". Their graph joins those in which one agent alone plays something else.
    """
    X = as_matrix(points, "points")
    played = np.stack([np.argmax(as_matrix(p, "strategies"), 1) for p in strategies], 1)
    if len(played) != len(X):
        raise ValueError(f"strategies must have a row for each of the {len(X)} points, got {len(played)}.")
    w = np.full(len(X), 1.0 / len(X)) if weights is None else as_finite(weights, "weights")
    profiles, member = np.unique(played, axis=0, return_inverse=True)
    names = tuple(", ".join(str(labels[i][a]) for i, a in enumerate(profile)) for profile in profiles)
    return _gather(names, member.reshape(-1), X, principal_coordinates(X, AXES), w, "strategies")


def convention_graph(
    conventions: Conventions,
    points: Any,
    field: Any,
    potential: Any = None,
    weights: Any = None,
    metric: Metric | None = None,
    edges: Any = None,
) -> ConventionGraph:
    """The flow between conventions, split into a potential and a cyclic part.

    - `field` (n, d): the whole field; or the residual alone where `potential` (n,) is given, as `hpml.project` finds
      both: the flow is then the rise of the mean potential plus that of the residual.
    - `edges` (m, 2): which conventions are joined; neighbours unless given.
    """
    X, F = as_matrix(points, "points"), as_matrix(field, "field")
    metric = Euclidean() if metric is None else metric
    w = np.full(len(X), 1.0 / len(X)) if weights is None else as_finite(weights, "weights")
    H = conventions.mean(np.asarray(metric.lower(F, X)), w)
    C = np.asarray(conventions.centres)
    E = neighbouring(conventions, metric) if edges is None else np.sort(np.asarray(edges, int).reshape(-1, 2), axis=1)
    i, j = E.T
    lengths = np.asarray(metric.distance(C[i], C[j]))
    graph = make_graph(E, edge_weights(lengths, "inverse_square") if len(E) else np.empty(0), conventions.count)
    graph = weigh_samples(graph, np.asarray(conventions.mass))
    omega = 0.5 * np.einsum("ed,ed->e", H[i] + H[j], C[j] - C[i])
    if potential is not None:
        phi = conventions.mean(as_finite(potential, "potential"), w)
        omega = omega + phi[j] - phi[i]
    solution = solve_poisson(graph, omega) if len(E) else None
    nodes = np.zeros(conventions.count) if solution is None else np.asarray(solution.potential)
    return ConventionGraph(conventions.names, C, split_flow(graph, omega, nodes))


def convention_loops(
    conventions: Conventions,
    graph: ConventionGraph,
    points: Any,
    residual: Any,
    weights: Any = None,
    metric: Metric | None = None,
    limit: int | None = None,
) -> tuple[Loop, ...]:
    """The loops of a convention graph, each with the sampling error of its circulation.

    The circulation is linear in the groups' mean residuals, sum_a <R_a, v_a> with v_a half the step from the node
    before a to the node after it; the variance of a mean is that of its samples over their number.
    """
    X, R = as_matrix(points, "points"), as_matrix(residual, "residual")
    metric = Euclidean() if metric is None else metric
    w = np.full(len(X), 1.0 / len(X)) if weights is None else as_finite(weights, "weights")
    H, member = np.asarray(metric.lower(R, X)), np.asarray(conventions.member)
    loops = []
    for loop in find_loops(graph.flow, graph.names, limit):
        C = np.asarray(graph.centres)[list(loop.nodes)]
        half = 0.5 * (np.roll(C, -1, 0) - np.roll(C, 1, 0))
        variance = 0.0
        for node, v in zip(loop.nodes, half, strict=True):
            inside = member == node
            share = w[inside] / w[inside].sum()
            work = H[inside] @ v
            spread = float(share @ (work - share @ work) ** 2)
            size = 1.0 / float((share**2).sum())  # the effective number of samples
            variance += spread / (size - 1.0) if size > 1.5 else float("inf")
        error = float(np.sqrt(variance))
        loops.append(Loop(loop.nodes, loop.names, loop.share, loop.strength, loop.circulation, error))
    return tuple(loops)


def neighbouring(conventions: Conventions, metric: Metric | None = None) -> Int[np.ndarray, "m 2"]:
    """Which conventions are joined: pure joint strategies in which one agent differs; otherwise those with no third
    centre in the ball between them (Gabriel's graph), and all of three."""
    k = conventions.count
    i, j = np.triu_indices(k, 1)
    if conventions.origin == "strategies":
        actions = np.array([name.split(", ") for name in conventions.names])
        alone = (actions[i] != actions[j]).sum(1) == 1
        return np.stack([i[alone], j[alone]], 1)
    metric = Euclidean() if metric is None else metric
    C = np.asarray(conventions.centres)
    squares = np.stack([np.asarray(metric.distance(np.broadcast_to(c, C.shape), C)) ** 2 for c in C])
    through = squares[i] + squares[j]
    through[np.arange(len(i)), i] = through[np.arange(len(i)), j] = np.inf
    free = (through.min(1) > (1.0 + 1e-9) * squares[i, j]) if k > 3 else np.ones(len(i), bool)
    return np.stack([i[free], j[free]], 1)


def typical_names(
    centres: Float[Array, "k d"], points: Float[Array, "n d"], weights: Float[Array, " n"], names: Any = None
) -> tuple[str, ...]:
    """Names such as "x2 high, x5 low" from the coordinates that set a centre apart; letters where there are too many.

    A coordinate is high or low where the centre lies more than half a standard deviation of all samples from the mean.
    """
    k, d = np.shape(centres)
    letters = [string.ascii_uppercase[a] if k <= 26 else str(a + 1) for a in range(k)]
    if d > NAMED:
        return tuple(letters)
    titles = [f"x{c + 1}" for c in range(d)] if names is None else [str(name) for name in names]
    share = np.asarray(weights) / np.sum(weights)
    mean = share @ points
    scale = np.sqrt(share @ (points - mean) ** 2)
    z = (np.asarray(centres) - mean) / np.where(scale > 0, scale, 1.0)

    def name(row: np.ndarray, most: int) -> str:
        order = [c for c in np.argsort(-np.abs(row), kind="stable")[:most] if abs(row[c]) > 0.5]
        return ", ".join(f"{titles[c]} {'high' if row[c] > 0 else 'low'}" for c in order) or "middle"

    found = [name(row, 1) for row in z]
    found = [short if found.count(short) == 1 else name(row, 2) for short, row in zip(found, z, strict=True)]
    return tuple(long if found.count(long) == 1 else f"{long} ({letters[a]})" for a, long in enumerate(found))


def _commonest(member: np.ndarray, texts: list[str]) -> tuple[str, ...]:
    """Each group's commonest label, numbered where groups share one."""
    counts = [Counter[str]() for _ in range(int(member.max()) + 1)]
    for a, text in zip(member, texts, strict=True):
        counts[a][text] += 1
    found = [count.most_common(1)[0][0] for count in counts]
    return tuple(name if found.count(name) == 1 else f"{name} ({a + 1})" for a, name in enumerate(found))


def principal_coordinates(points: Float[Array, "n d"], limit: int) -> Float[np.ndarray, "n r"]:
    """At most `limit` leading principal coordinates of the points, centred."""
    Y = np.asarray(points) - np.mean(points, 0)
    return Y if Y.shape[1] <= limit else Y @ leading_axes(Y, limit).T


def leading_axes(centred: Float[Array, "n d"], limit: int) -> Float[np.ndarray, "r d"]:
    """At most `limit` leading principal axes of centred points, by the smaller of the two Gram matrices."""
    n, d = centred.shape
    if d <= n:
        return np.linalg.eigh(centred.T @ centred)[1][:, ::-1][:, :limit].T
    _, vectors = np.linalg.eigh(centred @ centred.T)
    rows = vectors[:, ::-1][:, :limit].T @ centred
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)


def _gather(names: tuple[str, ...], member: np.ndarray, X: np.ndarray, Y: np.ndarray, w: np.ndarray, origin: str):
    k = len(names)
    mass = np.bincount(member, w, k)
    if not (mass > 0).all():
        raise ValueError(f"No sample of {names[int(np.argmin(mass))]!r} has a weight: leave its samples out.")
    plain = Conventions(names, member, np.empty((k, 0)), mass / mass.sum(), 0.0, origin)
    inner = plain.mean(Y, w)
    distance = _distances(Y, inner)
    own = distance[np.arange(len(Y)), member]
    distance[np.arange(len(Y)), member] = np.inf
    return Conventions(names, member, plain.mean(X, w), plain.mass, _score(own, distance.min(1), w), origin)


def _score(own: np.ndarray, other: np.ndarray, w: np.ndarray) -> float:
    """The mean of 1 - own / other, cut at 0: the silhouette with centres in place of all pairs."""
    away = np.where(np.isfinite(other) & (other > 0), other, np.inf)
    return float(np.average(np.clip(1.0 - own / away, 0.0, 1.0), weights=w)) if np.isfinite(away).any() else 0.0


def _distances(Y: np.ndarray, centres: np.ndarray) -> np.ndarray:
    squares = (Y**2).sum(1)[:, None] + (centres**2).sum(1) - 2.0 * Y @ centres.T
    return np.sqrt(np.maximum(squares, 0.0))


def _cluster(Y: np.ndarray, w: np.ndarray, count: int | None, rng: np.random.Generator) -> np.ndarray:
    """Each sample's cluster; the number with the best score unless given."""
    n = len(Y)
    distinct = len(np.unique(Y, axis=0)) if n <= ENOUGH else ENOUGH
    some = Y[rng.choice(n, min(n, ENOUGH), replace=False, p=w / w.sum())] if n > ENOUGH else Y
    most = min(MOST, max(FEWEST, n // EACH), distinct)
    tried = [min(count, distinct)] if count is not None else list(range(min(FEWEST, distinct), most + 1))
    found = []
    for k in tried:
        centres = _centres(some, k, rng)
        distance = np.sort(_distances(some, centres), axis=1)
        second = distance[:, 1] if k > 1 else np.full(len(some), np.inf)
        found.append((_score(distance[:, 0], second, np.ones(len(some))), centres))
    best = max(score for score, _ in found)
    centres = next(centres for score, centres in found if score >= best - SIMILAR)
    member = np.argmin(_distances(Y, centres), 1)
    return np.unique(member, return_inverse=True)[1].reshape(-1)  # a cluster may have lost all samples


def _centres(Y: np.ndarray, k: int, rng: np.random.Generator, starts: int = 4) -> np.ndarray:
    if k == 1:
        return Y.mean(0, keepdims=True)
    best, least = Y[:k], np.inf
    for _ in range(starts):
        centres, _ = kmeans2(Y, k, iter=25, minit="++", rng=rng, missing="warn")
        centres = centres[np.isfinite(centres).all(1)]
        cost = float((_distances(Y, centres).min(1) ** 2).sum())
        if cost < least:
            best, least = centres, cost
    return best
