"""Training an ensemble of potential networks on samples, with early stopping on held-out rows (`eq:nn-proj-loss`).

Circulation looks like noise to a potential, and strong circulation like strong noise, so the danger is overfitting.
Each member trains on its own share of the rows and keeps the last parameters that lowered its held-out loss by more
than that difference's standard error; the mean of the members is the answer.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from hpml.projection.amortised.network import (
    PotentialNetwork,
    Recipe,
    least_squares_bowl,
    optimiser,
    predict,
    projection_loss,
)

LARGEST_HELD_OUT = 4096  # rows that judge a checkpoint; more would cost more than the training
FEWEST_TO_HOLD_OUT = 8  # below this every row trains and judges
RIDGES = (0.0, 1e-3, 1e-2, 1e-1, 1.0, 1e6)  # for the bowl that training starts at; the last one leaves it round
STEEPNESS = 2.0  # of the units at the start; steeper ones find finer bends, and explain more noise away


class Rows(NamedTuple):
    """Samples of order one in float64: points z, whitened field U, covectors h = M F, weights, and `predict`'s maps."""

    z: np.ndarray
    U: np.ndarray
    h: np.ndarray
    w: np.ndarray
    maps: np.ndarray | None


def train_members(
    recipe: Recipe, rows: Rows, width: int, depth: int, members: int, held_out: float, key: Any
) -> tuple[PotentialNetwork, np.ndarray]:
    """The members, stacked, and their held-out losses (evaluations, members), nan after a member has stopped."""
    z, U, _, w, maps = rows
    n, d = z.shape
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel())
    folds = _folds(n, members, held_out, random)
    keys = jax.random.split(key, members)
    networks = jax.vmap(lambda k: PotentialNetwork(d, width, depth, k))(keys)
    networks = _among_samples(networks, z[random.choice(n, (members, width), p=w / w.sum())])
    bowls = [_best_bowl(rows, held) for held in folds]
    slopes, curvatures = (np.stack(part).astype(np.float32) for part in zip(*bowls, strict=True))
    networks = eqx.tree_at(lambda net: (net.slope, net.curvature), networks, (slopes, curvatures))

    arrays = [None if part is None else _pad(part, _padded(n)) for part in (z, U, maps)]
    train = np.stack([_pad(_without(w, held), _padded(n)) for held in folds])
    judge = _pad((w[folds] / w[folds].sum(1, keepdims=True)).T, _padded(folds.shape[1])).T
    held = _pad(folds.T, judge.shape[1]).T.astype(np.int32)
    # Rows that also train are no judge apart: any gain on them counts.
    care = np.float32(0.0 if n < FEWEST_TO_HOLD_OUT else 1.0)
    # Half the compile time at the same speed: the loop's work is in matrix products.
    options: Any = {"xla_backend_optimization_level": 1} if jax.default_backend() == "cpu" else None
    run = jax.jit(_train, static_argnums=0, compiler_options=options)
    networks, history = run(recipe, networks, keys, held, judge, train, care, *arrays)
    return networks, np.asarray(history, np.float64)


def _folds(n: int, members: int, held_out: float, random: np.random.Generator) -> np.ndarray:
    """The held-out rows of each member, rotating over one shuffle; few rows are held out by nobody."""
    if n < FEWEST_TO_HOLD_OUT:
        return np.tile(np.arange(n), (members, 1))
    count = max(1, min(round(held_out * n), LARGEST_HELD_OUT, n - 2))
    order = random.permutation(n)
    return np.stack([order[(np.arange(count) + k * n // members) % n] for k in range(members)])


def _among_samples(networks: PotentialNetwork, places: np.ndarray) -> PotentialNetwork:
    """Steeper units in the first layer, each bending where a sample lies."""
    steep = STEEPNESS * networks.weights[0]
    biases = -jnp.einsum("mud,mud->mu", steep, places.astype(np.float32))
    return eqx.tree_at(lambda net: (net.weights[0], net.biases[0]), networks, (steep, biases))


def _best_bowl(rows: Rows, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope and curvature by least squares on the other rows, with the ridge that does best on the held-out ones."""
    z, U, h, w, maps = rows
    train = _without(w, held)

    def score(bowl):
        gradient = bowl[0] + z[held] @ bowl[1]
        if maps is not None:
            gradient = np.einsum("nj,njk->nk", gradient, maps[held])
        return w[held] @ ((U[held] - gradient) ** 2).sum(-1)

    return min((least_squares_bowl(z, h, train, ridge) for ridge in RIDGES), key=score)


def _train(recipe: Recipe, networks, keys, held_rows, judges, trains, care, z, U, maps):
    """All members at once; each stops on its own held-out rows. Rows of weight zero pad the shapes and do not count."""
    n = len(z)
    rounds = -(-recipe.steps // recipe.interval)
    adam = optimiser(recipe, rounds * recipe.interval)

    def member(network, key, held, judge, train):
        cumulative = jnp.cumsum(train)

        def held_losses(network):
            _, predicted = predict(network, z[held], None if maps is None else maps[held])
            return ((U[held] - predicted) ** 2).sum(-1)

        def batch_loss(network, key):
            if recipe.batch >= n:
                return projection_loss(recipe, network, z, U, train, maps)
            rows = jnp.searchsorted(cumulative, jax.random.uniform(key, (recipe.batch,)) * cumulative[-1])
            rows = jnp.minimum(rows, n - 1)
            even = jnp.full(recipe.batch, 1.0 / recipe.batch)
            return projection_loss(recipe, network, z[rows], U[rows], even, None if maps is None else maps[rows])

        def step(carry, key):
            network, moments = carry
            changes, moments = adam.update(jax.grad(batch_loss)(network, key), moments)
            return (optax.apply_updates(network, changes), moments), None

        def evaluate(carry):
            count, waited, network, moments, best, best_losses, history = carry
            keys = jax.random.split(jax.random.fold_in(key, count), recipe.interval)
            (network, moments), _ = jax.lax.scan(step, (network, moments), keys)
            losses = held_losses(network)
            gain = best_losses - losses
            mean = judge @ gain
            # The sum of squared weights stands for one over the number of rows (Kish).
            error = jnp.sqrt(judge @ (gain - mean) ** 2 * (judge @ judge))
            better = mean > care * error
            best = jax.tree.map(lambda new, old: jnp.where(better, new, old), network, best)
            best_losses = jnp.where(better, losses, best_losses)
            history = history.at[count].set(judge @ losses)
            return count + 1, jnp.where(better, 0, waited + 1), network, moments, best, best_losses, history

        def going(carry):
            return (carry[0] < rounds) & (carry[1] < recipe.patience)

        zero = jnp.zeros((), jnp.int32)
        start = (zero, zero, network, adam.init(network), network, held_losses(network))
        carry = jax.lax.while_loop(going, evaluate, (*start, jnp.full(rounds, jnp.nan, jnp.float32)))
        return carry[4], carry[6]

    networks, history = jax.vmap(member)(networks, keys, held_rows, judges, trains)
    return networks, history.T


def _without(w: np.ndarray, held: np.ndarray) -> np.ndarray:
    """The weights with the held-out rows at zero, unless those are all of them; they sum to one again."""
    train = w.copy()
    if len(held) < len(w):
        train[held] = 0.0
    return train / train.sum()


def _padded(count: int) -> int:
    """The next of 8, 12, 16, 24, 32, 48, ...: sample sets of like sizes share one compilation."""
    size = 8
    while size < count:
        size *= 2
    return size * 3 // 4 if size > 8 and size * 3 // 4 >= count else size


def _pad(rows: np.ndarray, count: int) -> np.ndarray:
    return np.concatenate([rows, np.zeros((count - len(rows), *rows.shape[1:]))]).astype(np.float32)
