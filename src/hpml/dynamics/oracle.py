"""The field as an update rule sees it: for all starts at once, noisy on demand, with every evaluation counted."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from hpml.games.game import Game, evaluate
from hpml.geometry.arrays import Array, in_double

PRODUCT = 2  # evaluations that a product with the Jacobian counts as: the value comes along with the derivative

Batch = Float[Array, "s d"]


@in_double
def _forward(game: Game, points: Array, vectors: Array) -> Array:
    return jax.vmap(lambda x, v: jax.jvp(game.field, (x,), (v,))[1])(points, vectors)


@in_double
def _reverse(game: Game, points: Array, vectors: Array) -> Array:
    return jax.vmap(lambda x, v: jax.vjp(game.field, x)[1](v)[0])(points, vectors)


class Oracle:
    """Evaluations of a game's field with independent Gaussian noise of standard deviation `noise` in each coordinate.

    Products with the Jacobian are exact. `evaluations` counts for one start: rules are compared by this count.
    """

    def __init__(self, game: Game, noise: float = 0.0, seed: int = 0):
        if not (np.isfinite(noise) and noise >= 0):
            raise ValueError(f"noise must be finite and not negative, got {noise}.")
        self.game, self.noise = game, float(noise)
        self.evaluations = 0
        self._asked = 0
        self._random = np.random.default_rng(seed)
        self._key, self._keys = jax.random.key(seed), 0

    def __call__(self, points: Batch) -> Batch:
        """F at each start's point."""
        self.evaluations += 1
        return self._noisy(evaluate(self.game, points))

    def own(self, points: Batch, agent: int) -> Batch:
        """One agent's own gradient, zero for the others; it counts once every agent has been asked."""
        self._asked += 1
        if self._asked == len(self.game.blocks):
            self._asked, self.evaluations = 0, self.evaluations + 1
        mine = np.repeat(np.arange(len(self.game.blocks)) == agent, self.game.blocks)
        return self._noisy(evaluate(self.game, points)) * mine

    def sample(self, points: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """F at n points of one's own choice, shared by all starts, counted as n evaluations."""
        self.evaluations += len(points)
        return self._noisy(evaluate(self.game, points))

    def around(self, clouds: Float[Array, "s n d"]) -> Float[Array, "s n d"]:
        """F at n points of each start's own, counted as n evaluations."""
        self.evaluations += clouds.shape[1]
        return self._noisy(evaluate(self.game, clouds.reshape(-1, clouds.shape[2]))).reshape(clouds.shape)

    def push(self, points: Batch, vectors: Batch) -> Batch:
        """J v."""
        self.evaluations += PRODUCT
        return _forward(self.game, points, vectors)

    def pull(self, points: Batch, vectors: Batch) -> Batch:
        """J^T v."""
        self.evaluations += PRODUCT
        return _reverse(self.game, points, vectors)

    def turn(self, points: Batch, vectors: Batch) -> Batch:
        """A v = (J v - J^T v) / 2, the antisymmetric part of the Jacobian times v."""
        return (self.push(points, vectors) - self.pull(points, vectors)) / 2

    def key(self) -> Any:
        """A new JAX random key, for what a rule draws: the same ones for the same seed."""
        self._keys += 1
        return jax.random.fold_in(self._key, self._keys)

    def _noisy(self, field: np.ndarray) -> np.ndarray:
        return field + self.noise * self._random.normal(size=field.shape) if self.noise else field
