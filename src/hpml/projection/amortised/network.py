"""The potential network Phi_theta, its loss and its descent (`eq:nn-proj-loss`)."""

import functools
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float, PRNGKeyArray

from hpml.geometry.arrays import Array


class Recipe(NamedTuple):
    """How a network is trained: the numbers of `NeuralProjector` that the compiled loops depend on."""

    rate: float
    gauge: float
    weight_decay: float
    steps: int
    batch: int
    patience: int
    interval: int


def whole_products(function: Callable) -> Callable:
    """Products of float32 with all its digits: a GPU's own keep ten bits, and training amplifies what they lose."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        with jax.default_matmul_precision("highest"):
            return function(*args, **kwargs)

    return wrapped


class PotentialNetwork(eqx.Module):
    """phi(z) = slope . z + z^T curvature z / 2 + a tanh network of z; arrays only, so that a scan may carry it.

    The network's last layer starts at zero: training begins at the bowl that the other two terms hold.
    """

    slope: Float[Array, " d"]
    curvature: Float[Array, "d d"]
    weights: tuple[Float[Array, "_ _"], ...]
    biases: tuple[Float[Array, " _"], ...]

    def __init__(self, dimension: int, width: int, depth: int, key: PRNGKeyArray):
        self.slope = jnp.zeros(dimension, jnp.float32)
        self.curvature = jnp.zeros((dimension, dimension), jnp.float32)
        weights, biases = [], []
        for layer, (fan_in, fan_out) in enumerate(pairwise([dimension, *[width] * depth])):
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


@whole_products
def value_and_gradient(
    network: PotentialNetwork, z: Float[Array, "n d"]
) -> tuple[Float[Array, " n"], Float[Array, "n d"]]:
    """phi and grad phi at each row."""
    return jax.vmap(jax.value_and_grad(lambda point: network(point)))(z)


def predict(network: PotentialNetwork, z, maps=None):
    """phi and its gradient; `maps` (n, d, d), the factors W^-T of a metric that varies, whiten the gradient."""
    phi, gradient = value_and_gradient(network, z)
    return phi, gradient if maps is None else jnp.einsum("nj,njk->nk", gradient, maps)


def projection_loss(recipe: Recipe, network: PotentialNetwork, z, U, w, maps=None) -> Float[Array, ""]:
    """`eq:nn-proj-loss` of the whitened field U = W F: |W F - W^-T grad Phi| is the M-norm. The weights w sum to one.

    Biases are free, as the bowl is: they say where a unit bends, not how much.
    """
    phi, predicted = predict(network, z, maps)
    decay = sum((weight**2).sum() for weight in network.weights)
    return w @ ((U - predicted) ** 2).sum(-1) + recipe.gauge * (w @ phi) ** 2 + recipe.weight_decay * decay


def optimiser(recipe: Recipe) -> optax.GradientTransformation:
    """Adam."""
    return optax.adam(recipe.rate)


@whole_products
def descend(recipe: Recipe, network: PotentialNetwork, moments: Any, z, U, w, count: int):
    """`count` steps on all rows from a carried network and optimiser; shapes stay, so it scans and vmaps."""
    adam = optimiser(recipe)

    def step(carry, _):
        network, moments = carry
        gradient = jax.grad(lambda net: projection_loss(recipe, net, z, U, w))(network)
        changes, moments = adam.update(gradient, moments)
        return (optax.apply_updates(network, changes), moments), None

    return jax.lax.scan(step, (network, moments), None, length=count)[0]


def least_squares_bowl(z, h, w, ridge: float):
    """Slope and curvature of the linear and quadratic terms by weighted least squares of covectors h.

    In coordinates where C = E[z z^T] is diagonal, K_ij = Q_ij / (c_i + c_j) solves the normal equations
    sym(E[(h - K z) z^T]) = 0, the affine oracle's Lyapunov equation. The ridge, a share of the mean variance, is on
    the difference from the best common curvature t I: few samples tell one curvature from another badly.
    """
    xp = np if isinstance(z, np.ndarray) else jnp
    mean, middle = w @ h, w @ z
    centred = z - middle
    Q = ((h - mean) * w[:, None]).T @ centred
    c, V = xp.linalg.eigh(centred.T @ (centred * w[:, None]))
    common = xp.trace(Q) / (xp.sum(c) + 1e-12)
    rest = V.T @ Q @ V - common * xp.diag(c)
    rest = (rest + rest.T) / (c[:, None] + c[None] + (2.0 * ridge + 1e-5) * xp.mean(c) + 1e-12)
    K = V @ rest @ V.T + common * xp.eye(len(c), dtype=z.dtype)
    return mean - middle @ K, 0.5 * (K + K.T)
