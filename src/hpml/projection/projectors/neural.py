"""The amortised projector: a potential network fitted by gradient descent (`eq:nn-proj-loss`, `alg:neural-hpml`).

The potential is a linear term, a quadratic term and a small smooth network. Constant metrics enter through x -> W x,
where the metric gradient is a plain one; a metric that varies through W at the samples' mean, and one factor for each
sample. One length serves all axes, as the metric has it, so that a long axis has room for more bends than a short one.

`rem:neural_practical_app`: the `periodic` schedule trains anew at every refresh, the `online` schedule takes a few
steps from the carried parameters.
"""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PRNGKeyArray

from hpml.geometry.arrays import Array
from hpml.geometry.metric import Euclidean, Metric
from hpml.geometry.samples import Measure, Samples
from hpml.projection.amortised.history import HistoryState, fit_history, history_residual, init_history
from hpml.projection.amortised.network import PotentialNetwork, Recipe, descend, optimiser, value_and_gradient
from hpml.projection.amortised.train import Rows, train_members
from hpml.projection.measure import measure_weights
from hpml.projection.projector import Energy, Fit, LocalSamples, Projector
from hpml.projection.scaling import Scaling, anchor_of

TRACK = 0.1  # online: how fast the standardisation follows the batches


class NeuralFit(Fit):
    """An ensemble of potential networks; their mean is the potential.

    `history` (evaluations, starts) holds the ensemble's held-out losses for a field of unit energy, one column for each
    weight decay that training started with, nan after the stop; `weights` the share of the measure that each sample
    stands for.
    """

    networks: PotentialNetwork
    scaling: Scaling
    gauge: float
    samples: Samples
    weights: Float[Array, " n"]
    history: Float[Array, "evaluations starts"]
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
        return self.scaling.metric_gradient(self._evaluate(X)[1], X)

    def energy(self):
        """See `Fit.energy`; circulation is what the fit leaves at the samples beyond their known noise."""
        w, X, F = self.samples.weights, self.samples.points, self.samples.field
        R = F - self.direction(X)
        energy = np.asarray(self.scaling.metric.inner(F, F, X))
        total, whole = float(w @ energy), float(self.weights @ energy)
        left = float(self.weights @ np.asarray(self.scaling.metric.inner(R, R, X)))
        left = total * min(left / whole, 1.0) if whole > 0 else 0.0
        noise = min(self.samples.noise or 0.0, left)
        return Energy(total - left, left - noise, noise)

    def _evaluate(self, points) -> tuple[np.ndarray, np.ndarray]:
        z = self.scaling.points(np.asarray(points, np.float64))
        phi, gradient = _mean_of_members(self.networks, jnp.asarray(z, jnp.float32))
        return np.asarray(phi, np.float64) * self.scaling.energy - self.gauge, np.asarray(gradient, np.float64)


class NeuralState(eqx.Module):
    """What `alg:neural-hpml` carries: the network, its optimiser, the metric and the standardisation it works in."""

    network: PotentialNetwork
    moments: Any
    centre: Float[Array, " d"]
    scale: Float[Array, ""]
    strength: Float[Array, ""]
    updates: Float[Array, ""]
    metric: Metric


class NeuralProjector(Projector):
    """Fit a potential network to the field.

    - `width`, `depth`: the hidden layers, tanh.
    - `rate`, `steps`, `batch`: Adam's rate, the most steps, the rows in a step.
    - `gauge`, `weight_decay`: lambda_g and lambda_wd of `eq:nn-proj-loss`, for a field of unit energy. The decay is on
      the layers' weights; biases, the linear and the quadratic term are free. In `fit` it starts at ten times this, and
      a second time at this, and falls to a hundredth; the held-out rows choose.
    - `held_out`, `members`, `patience`, `interval`: the share that each member does not see, the number of members, and
      how many evaluations, one each `interval` steps, may pass without a gain of the ensemble.
    - `schedule`, `inner_steps`: "periodic" trains anew, "online" takes `inner_steps` steps from the carried network.
    - `local_steps`, `local_weight_decay`: the steps of a periodic refresh inside the plug-in, and lambda_wd there: a
      history has few rows and none to hold out, and the network would explain its circulation away.
    - `seed`: for the first weights and the folds where no key is given.

    `fit` knows the field at the samples alone, so a given `measure` becomes sample weights: the share of it that is
    closest to each sample.
    """

    width: int = eqx.field(static=True, default=32)
    depth: int = eqx.field(static=True, default=2)
    rate: float = eqx.field(static=True, default=3e-3)
    steps: int = eqx.field(static=True, default=1500)
    batch: int = eqx.field(static=True, default=128)
    gauge: float = eqx.field(static=True, default=1e-3)
    weight_decay: float = eqx.field(static=True, default=1e-3)
    held_out: float = eqx.field(static=True, default=0.25)
    members: int = eqx.field(static=True, default=8)
    patience: int = eqx.field(static=True, default=40)
    interval: int = eqx.field(static=True, default=20)
    schedule: Literal["periodic", "online"] = eqx.field(static=True, default="periodic")
    inner_steps: int = eqx.field(static=True, default=2)
    local_steps: int = eqx.field(static=True, default=100)
    local_weight_decay: float = eqx.field(static=True, default=1e-2)
    seed: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        counts = ("width", "depth", "steps", "batch", "members", "patience", "interval", "inner_steps", "local_steps")
        for name in counts:
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value}.")
        if not 0 < self.rate < np.inf:
            raise ValueError(f"rate must be positive and finite, got {self.rate}.")
        for name in ("gauge", "weight_decay", "local_weight_decay"):
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be finite and not negative, got {getattr(self, name)}.")
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out is a share between 0 and 1, got {self.held_out}.")
        if self.schedule not in ("periodic", "online"):
            raise ValueError(f'schedule must be "periodic" or "online", got {self.schedule!r}.')

    @staticmethod
    def paper() -> "NeuralProjector":
        """The paper's settings: Adam at 1e-3, two inner steps each outer iteration."""
        return NeuralProjector(rate=1e-3, inner_steps=2, schedule="online")

    @property
    def recipe(self) -> Recipe:
        """The numbers that the training loops depend on."""
        return Recipe(self.rate, self.gauge, self.weight_decay, self.steps, self.batch, self.patience, self.interval)

    def fit(self, samples: Samples, metric: Metric, measure: Measure = None, key: Any = None) -> NeuralFit:
        """See `Projector.fit`."""
        X, F = (np.asarray(part, np.float64) for part in (samples.points, samples.field))
        w = np.asarray(measure_weights(samples, metric, measure, key), np.float64)
        scaling = Scaling(metric, anchor_of(X, w, metric), np.zeros(samples.dimension), 1.0, 1.0)
        y = scaling.points(X)
        centre = w @ y
        U = np.asarray(metric.whiten(F, X))
        strength = float(np.sqrt(w @ (U**2).sum(1))) or 1.0
        h, maps = U, None
        if not metric.constant:
            maps = np.asarray(scaling.factors(X)).swapaxes(1, 2)
            h = np.asarray(metric.whiten_covector(metric.lower(F, X), scaling.anchor))
        scaling = Scaling(metric, scaling.anchor, centre, _shortest_spread(y - centre, w), strength)
        rows = Rows(scaling.points(X), U / strength, h / strength, w, maps)
        key = jax.random.key(self.seed) if key is None else key
        networks, history = train_members(self.recipe, rows, self.width, self.depth, self.members, self.held_out, key)
        fit = NeuralFit(networks, scaling, 0.0, samples, w, history)
        return eqx.tree_at(lambda f: f.gauge, fit, float(samples.weights @ fit.potential(X)))

    # alg:neural-hpml, for a caller who keeps the loop

    def init(self, dimension: int, key: PRNGKeyArray, metric: Metric | None = None) -> NeuralState:
        """An untrained network for `update`; the metric must be constant."""
        metric = Euclidean() if metric is None else metric
        _need_constant(metric)
        network = PotentialNetwork(dimension, self.width, self.depth, key)
        one = jnp.ones((), jnp.float32)
        centre = jnp.zeros(dimension, jnp.float32)
        return NeuralState(network, optimiser(self.recipe).init(network), centre, one, one, 0.0 * one, metric)

    def update(self, state: NeuralState, points: Any, field: Any, metric: Metric | None = None) -> NeuralState:
        """`inner_steps` optimiser steps on a batch of the buffer; runs under jit.

        The metric is the state's unless given. The network lives in standardised coordinates that follow the batches.
        """
        metric = state.metric if metric is None else metric
        _need_constant(metric)
        y = jnp.asarray(metric.whiten(jnp.asarray(points, jnp.float32)), jnp.float32)
        U = jnp.asarray(metric.whiten(jnp.asarray(field, jnp.float32)), jnp.float32)
        track = jnp.maximum(TRACK, 1.0 / (1.0 + state.updates))
        centre = state.centre + track * (y.mean(0) - state.centre)
        scale = state.scale + track * (_length(y - y.mean(0), state.scale) - state.scale)
        strength = state.strength + track * (_length(U, state.strength) - state.strength)
        w = jnp.full(len(y), 1.0 / len(y))
        network, moments = descend(
            self.recipe, state.network, state.moments, (y - centre) / scale, U / strength, w, self.inner_steps
        )
        return NeuralState(network, moments, centre, scale, strength, state.updates + 1.0, metric)

    def direction(self, state: NeuralState, points: Any) -> Float[Array, "q d"]:
        """g_theta = M^-1 grad Phi_theta at points."""
        y = jnp.asarray(state.metric.whiten(jnp.asarray(points, jnp.float32)), jnp.float32)
        gradient = value_and_gradient(state.network, (y - state.centre) / state.scale)[1]
        return state.metric.unwhiten(gradient * state.strength)

    # The plug-in's history

    def local_init(self, count: int, rank: int, key: jax.Array) -> HistoryState:
        """See `Projector.local_init`."""
        return init_history(self.recipe, count, rank, self.width, self.depth, key)

    def local_fit(self, state: HistoryState, samples: LocalSamples) -> HistoryState:
        """See `Projector.local_fit`."""
        online = self.schedule == "online"
        recipe = self.recipe._replace(weight_decay=self.local_weight_decay)
        return fit_history(recipe, online, self.inner_steps if online else self.local_steps, state, samples)

    def local_residual(self, state: HistoryState, point, field) -> Float[Array, " r"]:
        """See `Projector.local_residual`; zero outside the span and the reach of the history."""
        return history_residual(state, point, field)


def _shortest_spread(steps: np.ndarray, w: np.ndarray) -> float:
    """The least standard deviation along any axis, at least a tenth of the largest."""
    s = np.linalg.svd(np.sqrt(w)[:, None] * steps, compute_uv=False)
    return float(max(s[-1], 0.1 * s[0])) or 1.0


@jax.jit
def _mean_of_members(networks, z):
    phi, gradient = jax.vmap(value_and_gradient, in_axes=(0, None))(networks, z)
    return phi.mean(0), gradient.mean(0)


def _length(rows, fallback):
    value = jnp.sqrt(jnp.mean(jnp.sum(rows**2, -1)))
    return jnp.where(value > 0, value, fallback)


def _need_constant(metric: Metric) -> None:
    if not metric.constant:
        raise ValueError("The online schedule needs a constant metric: with one that varies, call fit on the buffer.")
