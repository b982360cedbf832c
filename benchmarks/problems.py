"""Fields whose projection is known: potentials and swirls are non-linear, so that an affine fit cannot pass.

The potential is a bowl with waves along the axes of a frame that every seed turns otherwise. On balls and Gaussians the
swirl rho s(|z|) S z, S skew, is orthogonal to every gradient, so the exact projection is the potential part. On the box
nothing is, and the exact projection is a polynomial Galerkin solution of `def:proj`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import hpml


class Problem(NamedTuple):
    """A field, its measure, and its exact projection."""

    dimension: int
    sample: Callable[[np.random.Generator, int], np.ndarray]
    field: Callable[[np.ndarray], np.ndarray]
    direction: Callable[[np.ndarray], np.ndarray]
    measure: object


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


def relative_error(found: np.ndarray, exact: np.ndarray) -> float:
    """|found - exact| / |exact| in L2 over the points."""
    return float(np.sqrt(((found - exact) ** 2).sum() / (exact**2).sum()))


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
    columns = columns.reshape(count * d, -1)
    best = np.linalg.lstsq(columns, problem.field(z).reshape(-1), rcond=None)[0]
    return relative_error((columns @ best).reshape(count, d), exact)


def exact_nonpotentiality(problem: Problem, rng: np.random.Generator, count: int = 200_000) -> float:
    """E|R|^2 / E|F|^2 by many points of the measure."""
    z = problem.sample(rng, count)
    F, G = problem.field(z), problem.direction(z)
    return float(((F - G) ** 2).sum() / (F**2).sum())
