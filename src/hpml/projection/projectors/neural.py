"""The amortised projector: a potential network fitted by gradient descent (`eq:nn-proj-loss`, `alg:neural-hpml`).

The potential is a linear term, a quadratic term and a small smooth network, in standardised coordinates. The first two start
at their least-squares values and the network at zero, so that training begins at the best bowl and adds only what pays.

Circulation looks like noise to a potential, and strong circulation like strong noise, so the danger is overfitting. Several
members train on rotating folds; each keeps the last parameters that lowered its own held-out loss by more than that
difference's standard error, and the answer is their mean.

`rem:neural_practical_app`: the `periodic` schedule trains anew at every refresh, the `online` schedule takes `inner_steps`
steps from the carried parameters. Constant metrics enter through x -> W x, where the metric gradient is a plain one; a
metric that varies enters through one factor for each sample.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Float, PRNGKeyArray

from hpml.geometry.arrays import Array, as_matrix
from hpml.geometry.metric import Euclidean, Metric
from hpml.geometry.samples import Measure, Samples
from hpml.projection.projector import Energy, Fit, LocalSamples, Projector

LARGEST_HELD_OUT = 4096  # rows that judge a checkpoint; more would cost more than the training
FEWEST_TO_HOLD_OUT = 8  # below this every row trains and judges
RIDGES = (0.0, 1e-3, 1e-2, 1e-1, 1.0, 1e6)  # the quadratic term's start, the last one is none
TRACK = 0.1  # online: how fast the standardisation follows the points


class PotentialNetwork(eqx.Module):
    """phi(z) = slope . z + z^T curvature z / 2 + a tanh network of z, arrays only, so that it may be carried by a scan."""

    slope: Float[Array, " d"]
    curvature: Float[Array, "d d"]
    weights: tuple[Float[Array, "out in"], ...]
    biases: tuple[Float[Array, " out"], ...]

    def __init__(self, dimension: int, width: int, depth: int, key: PRNGKeyArray):
        self.slope = jnp.zeros(dimension, jnp.float32)
        self.curvature = jnp.zeros((dimension, dimension), jnp.float32)
        sizes = [dimension, *[width] * depth]
        weights, biases = [], []
        for layer, (fan_in, fan_out) in enumerate(zip(sizes, sizes[1:], strict=False)):
            weight_key, bias_key = jax.random.split(jax.random.fold_in(key, layer))
            bound = fan_in**-0.5
            weights.append(jax.random.uniform(weight_key, (fan_out, fan_in), jnp.float32, -bound, bound))
            biases.append(jax.random.uniform(bias_key, (fan_out,), jnp.float32, -bound, bound))
        self.weights = (*weights, jnp.zeros((1, width), jnp.float32))
        self.biases = (*biases, jnp.zeros(1, jnp.float32))

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, ""]:
        """The potential at one standardised point."""
        hidden = z
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            hidden = jnp.tanh(weight @ hidden + bias)
        # Only the symmetric part of the curvature enters, so that it needs no constraint.
        return self.slope @ z + 0.5 * z @ self.curvature @ z + (self.weights[-1] @ hidden + self.biases[-1])[0]


def value_and_gradient(
    network: PotentialNetwork, z: Float[Array, "n d"]
) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
    """phi and grad phi at each row."""
    return jax.vmap(jax.value_and_grad(lambda point: network(point)))(z)


class NeuralFit(Fit):
    """An ensemble of potential networks; their mean is the potential.

    `history` (evaluations, members) holds the held-out loss, relative to the field's energy, nan after a member stopped.
    """

    networks: PotentialNetwork
    centre: Float[Array, " d"]
    transform: Float[Array, "r d"]
    gain: float
    gauge: float
    metric: Metric
    samples: Samples
    history: Float[Array, "evaluations members"]
    method: str = eqx.field(static=True, default="neural")

    def at_samples(self):
        """See `Fit.at_samples`."""
        return self.potential(self.samples.points), self.direction(self.samples.points)

    def potential(self, points):
        """See `Fit.potential`."""
        return self._evaluate(points)[0]

    def direction(self, points):
        """See `Fit.direction`."""
        X = np.asarray(points, np.float64)
        gradient = self._evaluate(X)[1]
        turn = self.metric.unwhiten if self.metric.constant else self.metric.raise_index
        return np.asarray(turn(gradient, X))

    def energy(self):
        """See `Fit.energy`; circulation is what the fit leaves at the samples beyond their known noise."""
        w, X, F = self.samples.weights, self.samples.points, self.samples.field
        R = F - self.direction(X)
        total = float(w @ np.asarray(self.metric.inner(F, F, X)))
        left = min(float(w @ np.asarray(self.metric.inner(R, R, X))), total)
        noise = min(self.samples.noise or 0.0, left)
        return Energy(total - left, left - noise, noise)

    def _evaluate(self, points) -> tuple[np.ndarray, np.ndarray]:
        X = np.asarray(points, np.float64)
        y = np.asarray(self.metric.whiten(X)) if self.metric.constant else X
        z = (y - self.centre) @ self.transform.T
        phi, gradient = _evaluate_members(self.networks, jnp.asarray(z, jnp.float32))
        return (
            np.asarray(phi, np.float64) * self.gain - self.gauge,
            np.asarray(gradient, np.float64) @ self.transform * self.gain,
        )


class NeuralState(eqx.Module):
    """What `alg:neural-hpml` carries: the network, its optimiser, and the standardisation it works in."""

    network: PotentialNetwork
    moments: Any
    centre: Float[Array, " d"]
    scale: Float[Array, ""]
    strength: Float[Array, ""]
    updates: Float[Array, ""]
    metric: Metric


class LocalState(eqx.Module):
    """The network of a history inside its chart.

    Network coordinates are z = frame (x - centre) / scale. `seen` holds the directions in which the points spread, as a matrix
    that keeps them and removes the others; `points` are the last refresh's, to find how the chart has turned since.
    """

    network: PotentialNetwork
    moments: Any
    frame: Float[Array, "r r"]
    centre: Float[Array, " r"]
    scale: Float[Array, ""]
    strength: Float[Array, ""]
    seen: Float[Array, "r r"]
    radius: Float[Array, ""]
    points: Float[Array, "n r"]
    mask: Bool[Array, " n"]


class NeuralProjector(Projector):
    """Fit a potential network to the field.

    - `width`, `depth`: the hidden layers, tanh.
    - `rate`, `steps`, `batch`: Adam's rate (cosine to zero when periodic), the most steps, the rows a step.
    - `gauge`, `weight_decay`: lambda_g and lambda_wd of `eq:nn-proj-loss`, for a field of unit energy. The decay is on the
      network's weights; the linear and quadratic terms are left free.
    - `held_out`, `members`, `patience`: the share that each member is judged on, the number of members, and how many
      evaluations, one each `interval` steps, may pass without a gain.
    - `schedule`, `inner_steps`: "periodic" trains anew, "online" takes `inner_steps` steps from the carried parameters.
    - `local_steps`: the steps of a periodic refresh inside the plug-in.
    - `seed`: for the initial weights and folds where no key is given.

    `fit` knows the field at the samples alone, so a given `measure` does not enter: the split is orthogonal in the
    samples' own law. The kernel projector can project under another one.
    """

    width: int = eqx.field(static=True, default=32)
    depth: int = eqx.field(static=True, default=2)
    rate: float = eqx.field(static=True, default=3e-3)
    steps: int = eqx.field(static=True, default=1500)
    batch: int = eqx.field(static=True, default=256)
    gauge: float = eqx.field(static=True, default=1e-3)
    weight_decay: float = eqx.field(static=True, default=1e-4)
    held_out: float = eqx.field(static=True, default=0.25)
    members: int = eqx.field(static=True, default=4)
    patience: int = eqx.field(static=True, default=20)
    interval: int = eqx.field(static=True, default=20)
    schedule: Literal["periodic", "online"] = eqx.field(static=True, default="periodic")
    inner_steps: int = eqx.field(static=True, default=2)
    local_steps: int = eqx.field(static=True, default=100)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        counts = ("width", "depth", "steps", "batch", "members", "patience", "interval", "inner_steps", "local_steps")
        for name in counts:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if not self.rate > 0 or self.gauge < 0 or self.weight_decay < 0:
            raise ValueError("rate must be positive, gauge and weight_decay must not be negative.")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out is a share between 0 and 1, got {self.held_out}.")
        if self.schedule not in ("periodic", "online"):
            raise ValueError(f'schedule must be "periodic" or "online", got {self.schedule!r}.')

    @staticmethod
    def paper() -> "NeuralProjector":
        """The paper's settings: Adam at 1e-3, two inner steps each outer iteration."""
        return NeuralProjector(rate=1e-3, inner_steps=2, schedule="online")

    def fit(self, samples: Samples, metric: Metric, measure: Measure = None, key: Any = None) -> NeuralFit:
        """See `Projector.fit`; `measure` does not enter (see the class)."""
        del measure
        w, X, F = samples.weights, np.asarray(samples.points), np.asarray(samples.field)
        y = np.asarray(metric.whiten(X)) if metric.constant else X
        centre = w @ y
        transform, length = _standardise(y - centre, w)
        z = (y - centre) @ transform.T
        U = np.asarray(metric.whiten(F, X))
        strength = float(np.sqrt(w @ (U**2).sum(1))) or 1.0
        if metric.constant:
            maps, h = None, U
        else:  # W^-T at every sample, one (d, d) factor each
            eye = np.eye(samples.dimension)
            maps = np.stack([np.asarray(metric.whiten_covector(eye, np.broadcast_to(x, eye.shape))) for x in X])
            h = np.asarray(metric.lower(F, X))
        key = jax.random.key(self.seed) if key is None else key
        push = transform * length
        held = self._folds(samples.count, key)
        starts = [self._best_start(z, U / strength, h / strength, maps, w, push, rows) for rows in held]
        keys = jax.random.split(key, self.members)
        networks = jax.vmap(lambda k: PotentialNetwork(z.shape[1], self.width, self.depth, k))(keys)
        slopes, curvatures = (np.stack(part).astype(np.float32) for part in zip(*starts, strict=True))
        networks = eqx.tree_at(lambda net: (net.slope, net.curvature), networks, (slopes, curvatures))
        cast = [None if part is None else jnp.asarray(part, jnp.float32) for part in (z, U / strength, maps, w, push)]
        # Half the compile time at the same speed: the loop's work is in matrix products.
        options = {"xla_backend_optimization_level": 1} if jax.default_backend() == "cpu" else None
        train = jax.jit(_train, static_argnums=0, compiler_options=options)
        networks, history = train(self, networks, jnp.asarray(held), keys, *cast)
        fit = NeuralFit(
            networks, centre, transform, strength * length, 0.0, metric, samples, np.asarray(history, np.float64)
        )
        return eqx.tree_at(lambda f: f.gauge, fit, float(w @ fit.potential(X)))

    def _folds(self, n: int, key) -> np.ndarray:
        """The held-out rows of each member, rotating over one shuffle; with few rows each is judged on all."""
        if n < FEWEST_TO_HOLD_OUT:
            return np.tile(np.arange(n), (self.members, 1))
        count = max(1, min(round(self.held_out * n), LARGEST_HELD_OUT))
        order = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel()).permutation(n)
        return np.stack([order[(np.arange(count) + k * n // self.members) % n] for k in range(self.members)])

    def _best_start(self, z, U, h, maps, w, push, held) -> tuple[np.ndarray, np.ndarray]:
        """Slope and curvature by least squares on the other rows, with the ridge that does best on the held-out ones."""
        train = _without(w, held)
        candidates = [_bowl(z, h, train, ridge, push) for ridge in RIDGES]

        def score(bowl):
            gradient = (bowl[0] + z[held] @ bowl[1]) @ push
            if maps is not None:
                gradient = np.einsum("nj,njk->nk", gradient, maps[held])
            return w[held] @ ((U[held] - gradient) ** 2).sum(-1)

        return min(candidates, key=score)

    # alg:neural-hpml, for a caller who keeps the loop

    def init(self, dimension: int, key: PRNGKeyArray, metric: Metric | None = None) -> NeuralState:
        """An untrained network for `update`."""
        network = PotentialNetwork(dimension, self.width, self.depth, key)
        moments = self._adam().init(network)
        one = jnp.ones((), jnp.float32)
        metric = Euclidean() if metric is None else metric
        _need_constant(metric)
        return NeuralState(network, moments, jnp.zeros(dimension, jnp.float32), one, one, 0.0 * one, metric)

    def update(self, state: NeuralState, points: Any, field: Any, metric: Metric | None = None) -> NeuralState:
        """`inner_steps` optimiser steps on a batch of the buffer; runs under jit.

        The metric is the state's unless given. The network lives in standardised coordinates that follow the batches slowly.
        """
        metric = state.metric if metric is None else metric
        _need_constant(metric)
        y = jnp.asarray(metric.whiten(jnp.asarray(points, jnp.float32)), jnp.float32)
        U = jnp.asarray(metric.whiten(jnp.asarray(field, jnp.float32)), jnp.float32)
        track = jnp.maximum(TRACK, 1.0 / (1.0 + state.updates))
        centre = state.centre + track * (y.mean(0) - state.centre)
        scale = state.scale + track * (_rms(y - y.mean(0), state.scale) - state.scale)
        strength = state.strength + track * (_rms(U, state.strength) - state.strength)
        weights = jnp.full(len(y), 1.0 / len(y))
        network, moments = self._descend(
            state.network, state.moments, (y - centre) / scale, U / strength, weights, self.inner_steps
        )
        return NeuralState(network, moments, centre, scale, strength, state.updates + 1.0, metric)

    def direction(self, state: NeuralState, points: Any) -> Float[Array, "q d"]:
        """g_theta = M^-1 grad Phi_theta at points."""
        y = jnp.asarray(state.metric.whiten(jnp.asarray(points, jnp.float32)), jnp.float32)
        gradient = value_and_gradient(state.network, (y - state.centre) / state.scale)[1]
        return state.metric.unwhiten(gradient * state.strength)

    # The plug-in's history

    def local_init(self, count: int, rank: int, key: jax.Array) -> LocalState:
        """See `Projector.local_init`."""
        network = PotentialNetwork(rank, self.width, self.depth, key)
        moments = self._adam().init(network)
        one, eye = jnp.ones((), jnp.float32), jnp.eye(rank, dtype=jnp.float32)
        return LocalState(
            network,
            moments,
            eye,
            jnp.zeros(rank, jnp.float32),
            one,
            one,
            0.0 * eye,
            one,
            jnp.zeros((count, rank), jnp.float32),
            jnp.zeros(count, bool),
        )

    def local_fit(self, state: LocalState, samples: LocalSamples) -> LocalState:
        """See `Projector.local_fit`.

        A refresh may turn the chart; the online network is kept in its own frame, found by orthogonal Procrustes on the rows that
        are still the same points. With fewer than two valid rows nothing is seen and the residual is zero.
        """
        mask = samples.mask
        x = jnp.where(mask[:, None], jnp.asarray(samples.points, jnp.float32), 0.0)
        F = jnp.where(mask[:, None], jnp.asarray(samples.field, jnp.float32), 0.0)
        n = mask.sum()
        w = mask / jnp.maximum(n, 1)
        centre = w @ x
        steps = jnp.where(mask[:, None], x - centre, 0.0)
        scale = _weighted_rms(steps, w)
        strength = _weighted_rms(F, w)
        C = (steps * w[:, None]).T @ steps / scale**2
        enough = (n >= 2) & (jnp.trace(C) > 0.5)  # the trace is 1, or 0 where all rows are equal

        if self.schedule == "online":
            frame = _turn(state, x, mask)
            network, moments, count = state.network, state.moments, self.inner_steps
        else:
            frame = jnp.eye(x.shape[1], dtype=jnp.float32)
            # The last layer starts at zero, so the carried hidden weights serve as fresh random features.
            network = eqx.tree_at(
                lambda net: (net.weights[-1], net.biases[-1]), state.network, replace_fn=jnp.zeros_like
            )
            bowl = _bowl(steps / scale, F / strength, w, 0.1)
            network = eqx.tree_at(lambda net: (net.slope, net.curvature), network, bowl)
            moments = jax.tree.map(jnp.zeros_like, state.moments)
            count = self.local_steps
        z, U = steps / scale @ frame.T, F / strength @ frame.T
        trained, new_moments = self._descend(network, moments, z, U, w, count)
        fine = enough & jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(trained)]))

        def keep(new, old):
            return jax.tree.map(lambda a, b: jnp.where(fine, a, b), new, old)

        # C / (C + 0.01 trace / rank of the spread): directions with hardly any spread count for little.
        floor = 0.01 * jnp.trace(C @ C) / jnp.maximum(jnp.trace(C), 1e-12) + 1e-12
        seen = jnp.linalg.solve(C + floor * jnp.eye(len(C)), C)
        radius = jnp.max(jnp.linalg.norm(steps, axis=1)) / scale
        new = LocalState(trained, new_moments, frame, centre, scale, strength, seen, radius, x, mask)
        out = keep(new, eqx.tree_at(lambda s: s.seen, state, jnp.zeros_like(state.seen)))
        return jax.tree.map(lambda a, b: a.astype(b.dtype), out, state)

    def local_residual(
        self, state: LocalState, point: Float[Array, " r"], field: Float[Array, " r"]
    ) -> Float[Array, " r"]:
        """See `Projector.local_residual`.

        Field minus direction, kept only in the directions in which the history spreads, and fading as a Gaussian where the point lies
        further from the history's centre than any of its rows: the network says nothing there.
        """
        x, F = jnp.asarray(point, jnp.float32), jnp.asarray(field, jnp.float32)
        z = state.frame @ (x - state.centre) / state.scale
        direction = state.frame.T @ jax.grad(lambda at: state.network(at))(z) * state.strength
        excess = jnp.maximum(jnp.linalg.norm(z) / jnp.maximum(state.radius, 1e-6) - 1.0, 0.0)
        residual = jnp.exp(-4.0 * excess**2) * (state.seen @ (F - direction))
        return jnp.where(jnp.isfinite(residual), residual, 0.0).astype(jnp.asarray(field).dtype)

    def _adam(self, decay_over: int = 0) -> optax.GradientTransformation:
        return optax.adam(optax.cosine_decay_schedule(self.rate, decay_over) if decay_over else self.rate)

    def _loss(self, network: PotentialNetwork, z, U, w, push=None, maps=None) -> Float[Array, ""]:
        """`eq:nn-proj-loss` in whitened coordinates, for weights that sum to one."""
        phi, predicted = _predict(network, z, push, maps)
        decay = sum((leaf**2).sum() for leaf in (*network.weights, *network.biases))
        fit = w @ ((U - predicted) ** 2).sum(-1)
        return fit + self.gauge * (w @ phi) ** 2 + self.weight_decay * decay

    def _descend(self, network, moments, z, U, w, count: int):
        """Full-batch steps; shapes and structure stay, so it scans and vmaps."""
        adam = self._adam()

        def step(carry, _):
            network, moments = carry
            changes, moments = adam.update(jax.grad(self._loss)(network, z, U, w), moments)
            return (optax.apply_updates(network, changes), moments), None

        return jax.lax.scan(step, (network, moments), None, length=count)[0]


def _predict(network, z, push=None, maps=None):
    """phi, and its gradient in the coordinates that the loss is taken in."""
    phi, gradient = value_and_gradient(network, z)
    if push is not None:
        gradient = gradient @ push
    if maps is not None:
        gradient = jnp.einsum("nj,njk->nk", gradient, maps)
    return phi, gradient


def _train(projector: NeuralProjector, networks, held_rows, keys, z, U, maps, w, push):
    """All members at once; each stops on its own held-out rows."""
    p = projector
    n = len(z)
    few = n < FEWEST_TO_HOLD_OUT
    rounds = -(-p.steps // p.interval)
    adam = p._adam(rounds * p.interval)

    def member(network, held, key):
        train = _without(w, held)
        judge = w[held] / w[held].sum()
        cumulative = jnp.cumsum(train)

        def held_losses(network):
            _, predicted = _predict(network, z[held], push, None if maps is None else maps[held])
            return ((U[held] - predicted) ** 2).sum(-1)

        def batch_loss(network, key):
            if p.batch >= n:
                return p._loss(network, z, U, train, push, maps)
            rows = jnp.searchsorted(cumulative, jax.random.uniform(key, (p.batch,)) * cumulative[-1])
            rows = jnp.minimum(rows, n - 1)
            even = jnp.full(p.batch, 1.0 / p.batch)
            return p._loss(network, z[rows], U[rows], even, push, None if maps is None else maps[rows])

        def step(carry, key):
            network, moments = carry
            changes, moments = adam.update(jax.grad(batch_loss)(network, key), moments)
            return (optax.apply_updates(network, changes), moments), None

        def round_(carry):
            count, waited, network, moments, best, best_losses, history = carry
            keys = jax.random.split(jax.random.fold_in(key, count), p.interval)
            (network, moments), _ = jax.lax.scan(step, (network, moments), keys)
            losses = held_losses(network)
            gain = best_losses - losses
            mean = judge @ gain
            # Kish's effective number of rows; with few rows there is no judge apart, and any gain counts.
            error = jnp.sqrt(judge @ (gain - mean) ** 2 * (judge @ judge))
            better = mean > (0.0 if few else error)
            best = jax.tree.map(lambda new, old: jnp.where(better, new, old), network, best)
            best_losses = jnp.where(better, losses, best_losses)
            history = history.at[count].set(judge @ losses)
            return count + 1, jnp.where(better, 0, waited + 1), network, moments, best, best_losses, history

        def going(carry):
            return (carry[0] < rounds) & (carry[1] < p.patience)

        zero = jnp.zeros((), jnp.int32)
        start = (zero, zero, network, adam.init(network), network, held_losses(network))
        carry = jax.lax.while_loop(going, round_, (*start, jnp.full(rounds, jnp.nan, jnp.float32)))
        return carry[4], carry[6]

    networks, history = jax.vmap(member)(networks, held_rows, keys)
    return networks, history.T


def _without(w, held):
    """The weights with the held-out rows at zero, unless those are all of them; they sum to one again."""
    if held.shape[0] == w.shape[0]:
        return w / w.sum()
    if isinstance(w, np.ndarray):
        train = w.copy()
        train[held] = 0.0
    else:
        train = w.at[held].set(0.0)
    return train / train.sum()


def _bowl(z, h, w, ridge, push=None):
    """Slope and curvature of the linear and quadratic terms by weighted least squares of covectors h.

    In coordinates where C = E[z z^T] is diagonal, K_ij = Q_ij / (c_i + c_j) solves the normal equations
    sym(E[(h - K z) z^T]) = 0, the affine oracle's Lyapunov equation. The ridge is a share of the mean variance.

    The gradient in network coordinates becomes h = (slope + K z) push, with push = D V^T, D diagonal and V orthogonal.
    """
    xp = np if isinstance(z, np.ndarray) else jnp
    d = z.shape[1]
    D = xp.ones(d, z.dtype) if push is None else xp.linalg.norm(push, axis=1)
    turned = h if push is None else h @ (push / D[:, None]).T
    q = z / D  # h = D (slope + K D q), so that D K D is symmetric in q
    mean, middle = w @ turned, w @ q
    centred = q - middle
    Q = ((turned - mean) * w[:, None]).T @ centred
    c, V = xp.linalg.eigh(centred.T @ (centred * w[:, None]))
    Q = V.T @ Q @ V
    B = V @ ((Q + Q.T) / (c[:, None] + c[None] + (2.0 * ridge + 1e-5) * xp.mean(c) + 1e-12)) @ V.T
    slope = (mean - middle @ B) / D
    return slope, 0.5 * (B + B.T) / D[:, None] / D[None]


def _standardise(steps: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, float]:
    """z = transform (y - centre): principal axes at unit variance, and the length that undoes the scale on average.

    Axes with less than a tenth of the largest spread keep that floor, so that noise is not blown up; axes with no spread are
    kept too, since the field may have a constant part along them.
    """
    _, s, Vt = np.linalg.svd(np.sqrt(w)[:, None] * steps, full_matrices=len(steps) < steps.shape[1])
    s = np.concatenate([s, np.zeros(len(Vt) - len(s))])
    top = s[0] if s[0] > 0 else 1.0
    s = np.maximum(s, 0.1 * top)
    return Vt / s[:, None], float(np.sqrt(np.mean(s**2)))


def _turn(state: LocalState, x, mask):
    """The frame that carries new chart coordinates onto the old network coordinates (orthogonal Procrustes).

    Rows replaced since would pull at it: after a first fit, rows that miss by more than twice the median are left out.
    """
    both = (mask & state.mask).astype(jnp.float32)
    old = state.points @ state.frame.T

    def procrustes(w):
        total = jnp.maximum(w.sum(), 1.0)
        a, b = x - w @ x / total, old - w @ old / total
        # The small identity settles directions without rows, and keeps the first frame at the identity.
        U, _, Vt = jnp.linalg.svd(
            (b * w[:, None]).T @ a + 1e-6 * (1e-12 + jnp.sum(a * a)) / len(x) * jnp.eye(x.shape[1])
        )
        turn = U @ Vt
        return turn, jnp.linalg.norm((a @ turn.T - b) * w[:, None], axis=1)

    turn, miss = procrustes(both)
    typical = jnp.nanmedian(jnp.where(both > 0, miss, jnp.nan))
    kept = both * (miss <= 2.0 * jnp.nan_to_num(typical) + 1e-12)
    again, _ = procrustes(kept)
    turn = jnp.where(kept.sum() >= 2, again, turn)
    return jnp.where(both.sum() >= 2, turn, state.frame)


@eqx.filter_jit
def _evaluate_members(networks, z):
    phi, gradient = jax.vmap(value_and_gradient, in_axes=(0, None))(networks, z)
    return phi.mean(0), gradient.mean(0)


def _rms(rows, fallback):
    value = jnp.sqrt(jnp.mean(jnp.sum(rows**2, -1)))
    return jnp.where(value > 0, value, fallback)


def _weighted_rms(rows, w):
    value = jnp.sqrt(w @ jnp.sum(rows**2, -1))
    return jnp.where(value > 0, value, 1.0)


def _need_constant(metric: Metric) -> None:
    if not metric.constant:
        raise ValueError("The online schedule needs a constant metric: with one that varies, call fit on the buffer.")
