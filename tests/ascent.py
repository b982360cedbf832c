"""Runs of projected ascent on random potentials with a residual, for the tests of the gap section."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from hpml.certificates.constants import retract
from hpml.certificates.potential import Differentiable, Potential, Quadratic
from hpml.diagnostics.gaps import linear_gap
from hpml.dynamics.rule import Rule, Step
from hpml.dynamics.run import run
from hpml.games.families.linear import Linear
from hpml.games.families.normal_form import NormalForm
from hpml.games.game import Game, evaluate
from hpml.geometry.domain import Ball, Box, Simplices

STEPS, STARTS, SAMPLES = 40, 3, 100


class Ascent(Rule):
    """x <- P(x + sign eta (grad Phi(x) + e)) with random errors e of length `error`; it records what it followed."""

    potential: Potential
    step: float
    sign: float = 1.0
    error: float = 0.0

    def update(self, oracle, move, points, state):
        g = self.potential.gradient(points)
        e = np.random.default_rng(int(1e6 * np.abs(points).sum()) % 2**31).normal(size=g.shape)
        g = self.sign * (g + self.error * e / np.linalg.norm(e, axis=1, keepdims=True))
        return Step(move(points, self.step * g), g)


class Affine(Game):
    """U(x) = J x + a on any domain."""

    linear: Linear
    offset: np.ndarray

    @property
    def domain(self):
        return self.linear.domain

    @property
    def blocks(self):
        return self.linear.blocks

    def field(self, point):
        return self.linear.field(point) + self.offset


class Common(eqx.Module):
    """The expected common payoff of mixed strategies in simplex coordinates."""

    payoff: np.ndarray
    simplices: Simplices

    def __call__(self, x):
        worth = jnp.asarray(self.payoff)
        for p in reversed(self.simplices.complete(x)):
            worth = worth @ p
        return worth


def domain_of(kind, rng):
    if kind == "box":
        low = rng.uniform(-2, 1, size=3)
        return Box(low, low + rng.uniform(0.1, 3, size=3))
    return Ball(rng.normal(size=3)) if kind == "ball" else Simplices((2, 3), "orthonormal")


def random_quadratic(kind, rng):
    """A game whose field is a quadratic potential's gradient plus a rotation and a constant push."""
    domain = domain_of(kind, rng)
    d = domain.dimension
    root, turn = rng.normal(size=(2, d, d)) * rng.choice([0.1, 1.0, 10.0])
    H = (root + root.T) / 2 * rng.choice([0.3, 1.0]) - rng.choice([0.0, 0.0, 2.0]) * np.eye(d)
    h = rng.normal(size=d) * rng.choice([0.0, 1.0])
    A = (turn - turn.T) * rng.choice([0.0, 0.1, 1.0])
    push = rng.normal(size=d) * rng.choice([0.0, 0.3])
    return Affine(Linear(H + A, domain), h + push), Quadratic(H, h)


def random_normal_form(rng):
    """Three agents with one common payoff and private ones besides; the common one is the potential."""
    common, private = rng.normal(size=(2, 3, 2)), rng.normal(size=(3, 2, 3, 2)) * rng.choice([0.0, 0.2, 1.0])
    game = NormalForm(common + private)
    return game, Differentiable(Common(common, game.simplices))


def starts_of(game, rng, count=STARTS):
    """Points of the domain, many of them on its boundary."""
    domain = game.domain
    middle = domain.centre if isinstance(domain, Ball) else 0.0
    return retract(domain, middle + rng.normal(size=(count, domain.dimension)) * 2)


def ascend(game, potential, step, rng, sign=1.0, error=0.0, steps=STEPS):
    rule = Ascent(potential, float(step), sign, float(error))
    return run(game, rule, starts_of(game, rng), steps)


class Trace(eqx.Module):
    """What the theorems are about, written out from a run: at x_0 .. x_{T-1}, but for `heights`, which have x_T too."""

    heights: np.ndarray
    slopes: np.ndarray
    moves: np.ndarray
    mapping: np.ndarray
    residual: np.ndarray
    gap: np.ndarray
    potential_gap: np.ndarray


def trace(path, potential):
    X, domain = path.points, path.game.domain
    flat = X[:-1].reshape(-1, X.shape[-1])
    slopes, U = potential.gradient(flat), evaluate(path.game, flat)
    moves = np.diff(X, axis=0)
    per_point = [np.linalg.norm(slopes - U, axis=1), linear_gap(domain, flat, U), linear_gap(domain, flat, slopes)]
    heights = potential.value(X.reshape(-1, X.shape[-1])).reshape(X.shape[:2])
    mapping = np.linalg.norm(moves, axis=-1) / path.rule.step
    return Trace(heights, slopes.reshape(moves.shape), moves, mapping, *(v.reshape(mapping.shape) for v in per_point))
