"""Fields whose projection is known: potentials and swirls are non-linear, so that an affine fit cannot pass.

The potential is a bowl with waves along the axes of a frame that every seed turns otherwise. On balls and Gaussians the
swirl rho s(|z|) S z, S skew, is orthogonal to every gradient, so the exact projection is the potential part. On the box
nothing is, and the exact projection is a polynomial Galerkin solution of `def:proj`.

Under a metric that varies with the point the potential part is M(x)^-1 grad Phi, and <M^-1 grad psi, R>_M is the plain
product of grad psi and R: a swirl that is orthogonal to gradients without a metric is so under any. On the simplex such
a swirl follows the level lines of a function that is 0 on the boundary, as replicators in rock-paper-scissors follow
those of the product of the three probabilities.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import hpml
from hpml.geometry.metric import Metric

EUCLIDEAN = hpml.Euclidean()


class Problem(NamedTuple):
    """A field, its measure, and its exact projection."""

    dimension: int
    sample: Callable[[np.random.Generator, int], np.ndarray]
    field: Callable[[np.ndarray], np.ndarray]
    direction: Callable[[np.ndarray], np.ndarray]
    measure: object
    metric: Metric = EUCLIDEAN


def skew(dimension: int, rng: np.random.Generator) -> np.ndarray:
    """A random skew matrix of spectral norm 1."""
    A = rng.normal(size=(dimension, dimension))
    A = A - A.T
    return A / np.linalg.norm(A, 2)


class Waves(NamedTuple):
    """The gradient of -|z|^2 / 2 + (height / number) sum_i sin(number q_i . z), with orthonormal rows q_i."""

    number: float
    height: float
    frame: np.ndarray

    def __call__(self, z: np.ndarray) -> np.ndarray:
        """At points, (n, d)."""
        return -z + self.height * np.cos(self.number * (z @ self.frame.T)) @ self.frame


def waves(dimension: int, number: float, height: float, seed: int) -> Waves:
    """Waves in a random frame."""
    return Waves(number, height, np.linalg.qr(np.random.default_rng([seed, 2]).normal(size=(dimension, dimension)))[0])


def swirl(z: np.ndarray, S: np.ndarray, rho: float, pace: float = 1.0) -> np.ndarray:
    """rho s(|z|) S z with s(r) = 2 / (1 + pace r^2)."""
    return rho * 2.0 / (1.0 + pace * (z**2).sum(-1, keepdims=True)) * (z @ S.T)


def ball(dimension: int, rho: float, seed: int, number: float = 2.5, height: float = 1.0) -> Problem:
    """Uniform in the unit ball."""
    gradient = waves(dimension, number, height, seed)
    S = skew(dimension, np.random.default_rng([seed, 1]))

    def sample(rng, n):
        z = rng.normal(size=(n, dimension))
        return z / np.linalg.norm(z, axis=1, keepdims=True) * rng.uniform(size=(n, 1)) ** (1 / dimension)

    def field(z):
        return gradient(z) + swirl(z, S, rho)

    return Problem(dimension, sample, field, gradient, hpml.Ball(np.zeros(dimension), 1.0))


def gaussian(
    deviations: tuple[float, ...],
    rho: float,
    seed: int,
    number: float = 1.0,
    height: float = 1.0,
    gain: float = 1.0,
    linear: bool = False,
) -> Problem:
    """Gaussian points with these standard deviations; the swirl, `gain` times s, turns along their ellipsoids."""
    c = np.array(deviations)
    S = skew(len(c), np.random.default_rng([seed, 1]))
    pace = 0.0 if linear else 1.0 / len(c)
    gradient = (lambda z: -z) if linear else waves(len(c), number, height, seed)

    def field(z):
        turn = swirl(z / c, S, 0.5 * rho if linear else gain * rho, pace) * c
        return gradient(z) + turn

    return Problem(
        len(c),
        lambda rng, n: rng.normal(size=(n, len(c))) * c,
        field,
        gradient,
        lambda key, n: np.random.default_rng(7).normal(size=(n, len(c))) * c,
    )


def box(rho: float, seed: int, number: float = 2.5, height: float = 1.0, degree: int = 24) -> Problem:
    """Uniform in [-1, 1]^2, where the swirl crosses the boundary; exact by Galerkin in Legendre polynomials."""
    gradient = waves(2, number, height, seed)
    J = np.array([[0.0, -1.0], [1.0, 0.0]])

    def field(z):
        return gradient(z) + swirl(z, J, rho)

    nodes, weights = np.polynomial.legendre.leggauss(2 * degree)
    x, y = (a.ravel() for a in np.meshgrid(nodes, nodes, indexing="ij"))
    w = np.sqrt(np.outer(weights, weights).ravel())
    eye = np.eye(degree + 1)
    powers = [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i) if i + j > 0]

    def gradients(z):
        value = np.stack([np.polynomial.legendre.legval(z, e) for e in eye])  # (degree + 1, 2 or n, ...)
        slope = np.stack([np.polynomial.legendre.legval(z, np.polynomial.legendre.legder(e)) for e in eye])
        gx = np.stack([slope[i, :, 0] * value[j, :, 1] for i, j in powers], 1)
        gy = np.stack([value[i, :, 0] * slope[j, :, 1] for i, j in powers], 1)
        return gx, gy

    grid = np.stack([x, y], 1)
    gx, gy = gradients(grid)
    target = field(grid)
    rows = np.concatenate([gx * w[:, None], gy * w[:, None]])
    coefficients = np.linalg.lstsq(rows, np.concatenate([target[:, 0] * w, target[:, 1] * w]), rcond=None)[0]

    def direction(z):
        gx, gy = gradients(z)
        return np.stack([gx @ coefficients, gy @ coefficients], 1)

    return Problem(
        2, lambda rng, n: rng.uniform(-1, 1, size=(n, 2)), field, direction, hpml.Box(-np.ones(2), np.ones(2))
    )


def disc(rho: float, seed: int, number: float = 2.5, height: float = 1.0) -> Problem:
    """Uniform in the unit disc, under M(x) = diag(1 + 3 x_0^2, 1)."""
    gradient = waves(2, number, height, seed)
    metric = hpml.Varying(lambda x: hpml.Diagonal(1.0 + 3.0 * x[0] ** 2 * np.array([1.0, 0.0])))
    sample, direction = ball(2, 0.0, seed).sample, lambda z: metric.raise_index(gradient(z), z)
    field = lambda z: direction(z) + swirl(z, skew(2, np.random.default_rng([seed, 1])), rho)  # noqa: E731
    return Problem(2, sample, field, direction, hpml.Ball(np.zeros(2)), metric)


def simplex(rho: float, seed: int, number: float = 2.5, height: float = 1.0) -> Problem:
    """Uniform on the simplex of three probabilities, under the Shahshahani metric."""
    gradient = waves(2, number, height, seed)
    metric = hpml.Shahshahani(3)
    way = np.random.default_rng([seed, 1]).normal(size=2)
    way = 6.0 * way / np.linalg.norm(way)

    def direction(z):
        return metric.raise_index(gradient(3.0 * z - 1.0), z)

    def field(z):
        x, y = z.T
        last = 1.0 - x - y
        product, slope = x * y * last, np.stack([y * (last - x), x * (last - y)], 1)
        wave = 1.0 + 0.5 * np.cos(z @ way)
        up = wave[:, None] * slope - 0.5 * (product * np.sin(z @ way))[:, None] * way
        return direction(z) + rho * np.stack([-up[:, 1], up[:, 0]], 1)

    return Problem(2, lambda rng, n: rng.dirichlet(np.ones(3), n)[:, :2], field, direction, hpml.Simplices(3), metric)


def relative_error(
    found: np.ndarray, exact: np.ndarray, metric: Metric = EUCLIDEAN, at: np.ndarray | None = None
) -> float:
    """|found - exact| / |exact| in L2 over the points, in the metric."""
    energy = lambda vectors: float(np.sum(metric.inner(vectors, vectors, at)))  # noqa: E731
    return (energy(found - exact) / energy(exact)) ** 0.5


def affine_error(problem: Problem, rng: np.random.Generator, count: int = 20_000) -> float:
    """The relative error of the best affine gradient b + H z, H symmetric: what many samples leave of an affine fit."""
    z = problem.sample(rng, count)
    exact = problem.direction(z)
    d = problem.dimension
    i, j = np.triu_indices(d)
    columns = np.zeros((count, d, d + len(i)))
    columns[:, np.arange(d), np.arange(d)] = 1.0
    pairs = d + np.arange(len(i))
    columns[:, i, pairs] = z[:, j]
    columns[:, j, pairs] = z[:, i]
    covectors = np.moveaxis(columns, -1, 0)
    rows = np.moveaxis(problem.metric.whiten_covector(covectors, z), 0, -1).reshape(count * d, -1)
    best = np.linalg.lstsq(rows, problem.metric.whiten(problem.field(z), z).reshape(-1), rcond=None)[0]
    return relative_error(problem.metric.raise_index(columns @ best, z), exact, problem.metric, z)


def exact_nonpotentiality(problem: Problem, rng: np.random.Generator, count: int = 200_000) -> float:
    """E|R|^2 / E|F|^2 by many points of the measure."""
    z = problem.sample(rng, count)
    F, G = problem.field(z), problem.direction(z)
    energy = lambda vectors: float(np.sum(problem.metric.inner(vectors, vectors, z)))  # noqa: E731
    return energy(F - G) / energy(F)
