"""Training an ensemble of potential networks on samples, with early stopping on held-out rows (`eq:nn-proj-loss`).

Circulation looks like noise to a potential, and strong circulation like strong noise, so the danger is overfitting.
The weight decay starts high and falls: the network is stiff at first and bends more and more. Each member trains on its
own share of the rows; all stop together, where the mean of the members that have not seen a row is closest to its
field. A stop for each member alone would rest on fewer rows, and on a noisier answer than their mean. They leave the
bowls that they start at only for a gain beyond its own error, so that linear fields get the least-squares answer.
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
    whole_products,
)

LARGEST_HELD_OUT = 4096  # rows that judge a checkpoint; more would cost more than the training
FEWEST_TO_HOLD_OUT = 8  # below this every row trains and judges
# For the bowl that training starts at: the last ridge leaves it round. No bowl at all is tried as well.
RIDGES = (0.0, 1e-3, 1e-2, 1e-1, 1.0, 1e6)
# Where the decay starts, times the recipe's: high tells circulation from bends, but flattens fine bends for good. On
# fifteen fields (2 seeds) both gave 3 % less error than the first alone, a third start, 30, 1 % less again.
STARTS = (10.0, 1.0)
FALL = 100.0  # what the decay is divided by in the end, where 1,000 rows without circulation are fitted to 0.002
AVERAGE = 0.02  # weight of the newest parameters in the running average; without it 4 % more error on twelve fields
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
    """The members, stacked, and the ensemble's held-out losses (evaluations, STARTS), nan after the stop."""
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

    size = _padded(n)
    interval = min(recipe.interval, recipe.steps)
    recipe = recipe._replace(interval=interval, batch=size if recipe.batch >= n else recipe.batch)
    arrays = [None if part is None else _pad(part, size) for part in (z, U, maps)]
    train = np.stack([_pad(_without(w, fold), size) for fold in folds])
    length = _padded(folds.shape[1])
    held, votes = (_pad(part.T, length).T for part in (folds, np.ones(folds.shape)))
    # Rows that also train are no judge apart: any gain on them counts.
    care = np.float32(0.0 if n < FEWEST_TO_HOLD_OUT else 1.0)
    # Half the compile time at the same speed: the loop's work is in matrix products.
    options: Any = {"xla_backend_optimization_level": 1} if jax.default_backend() == "cpu" else None
    run = jax.jit(_train, static_argnums=0, compiler_options=options)
    networks, history = run(recipe, networks, keys, held.astype(np.int32), votes, _pad(w, size), train, care, *arrays)
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

    bowls = [least_squares_bowl(z, h, train, ridge) for ridge in RIDGES]
    return min([*bowls, (0.0 * bowls[0][0], 0.0 * bowls[0][1])], key=score)


@whole_products
def _train(recipe: Recipe, networks, keys, held, votes, judge, trains, care, z, U, maps):
    """All members from all starts; the networks of the best start and step, and every start's losses.

    They leave their bowls for a gain on unseen rows of more than `care` times its own standard error.

    `votes` (members, rows held out) and the weights are zero where rows pad the shapes.
    """
    n = len(z)
    rounds = recipe.steps // recipe.interval
    adam = optimiser(recipe)
    voters = jnp.zeros(n).at[held].add(votes)
    judge = judge * (voters > 0)
    judge = judge / judge.sum()

    def held_out_losses(networks):
        """At each row, of the mean over the members that have not seen it."""

        def member(network, rows):
            return predict(network, z[rows], None if maps is None else maps[rows])[1]

        total = jnp.zeros(U.shape).at[held].add(votes[..., None] * jax.vmap(member)(networks, held))
        mean = total / jnp.maximum(voters, 1.0)[:, None]
        return ((U - mean) ** 2).sum(-1)

    def batch_loss(network, key, train, cumulative, decay):
        now = recipe._replace(weight_decay=decay)
        if recipe.batch >= n:
            return projection_loss(now, network, z, U, train, maps)
        rows = jnp.searchsorted(cumulative, jax.random.uniform(key, (recipe.batch,)) * cumulative[-1])
        rows = jnp.minimum(rows, n - 1)
        even = jnp.full(recipe.batch, 1.0 / recipe.batch)
        return projection_loss(now, network, z[rows], U[rows], even, None if maps is None else maps[rows])

    def member_steps(carry, key, train, decays):
        cumulative = jnp.cumsum(train)

        def step(carry, now):
            network, average, moments = carry
            slopes = jax.grad(batch_loss)(network, now[0], train, cumulative, now[1])
            changes, moments = adam.update(slopes, moments)
            network = optax.apply_updates(network, changes)
            return (network, optax.incremental_update(network, average, AVERAGE), moments), None

        return jax.lax.scan(step, carry, (jax.random.split(key, recipe.interval), decays))[0]

    all_steps = jax.vmap(jax.vmap(member_steps, (0, 0, 0, None)), (0, None, None, 0))

    def evaluate(carry):
        count, waited, trained, best, best_loss, history = carry
        fallen = (count + jnp.arange(recipe.interval) / recipe.interval) / rounds
        decays = recipe.weight_decay * jnp.array(STARTS)[:, None] * FALL**-fallen
        trained = all_steps(trained, jax.vmap(jax.random.fold_in, (0, None))(keys, count), trains, decays)
        rows = jax.vmap(held_out_losses)(trained[1])
        losses = rows @ judge
        ahead = jnp.argmin(losses)
        gain = bowl - rows[ahead]
        # The sum of squared weights stands for one over the number of rows (Kish).
        error = jnp.sqrt(judge @ (gain - judge @ gain) ** 2 * (judge @ judge))
        better = (losses[ahead] < best_loss) & (judge @ gain > care * error)
        best = jax.tree.map(lambda new, old: jnp.where(better, new[ahead], old), trained[1], best)
        best_loss = jnp.where(better, losses[ahead], best_loss)
        history = history.at[count].set(losses.astype(history.dtype))
        return count + 1, jnp.where(better, 0, waited + 1), trained, best, best_loss, history

    def going(carry):
        return (carry[0] < rounds) & (carry[1] < recipe.patience)

    bowl = held_out_losses(networks)
    zero = jnp.zeros((), jnp.int32)
    copies = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(STARTS)), networks)
    trained = (copies, copies, jax.vmap(jax.vmap(adam.init))(copies))
    history = jnp.full((rounds, len(STARTS)), jnp.nan, jnp.float32)
    carry = jax.lax.while_loop(going, evaluate, (zero, zero, trained, networks, judge @ bowl, history))
    return carry[3], carry[5]


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
