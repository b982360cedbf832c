"""`prop:grad_symm`: gradients have symmetric Jacobians, and symmetric ones on simply connected sets are gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hpml
from hpml.diagnostics.jacobian import split_jacobian

POINTS = np.random.default_rng(0).normal(size=(20, 3))
METRIC = np.array([[2.0, 0.3, 0.0], [0.3, 1.0, -0.2], [0.0, -0.2, 0.5]])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(40)
NODES, WEIGHTS = 0.5 * (NODES + 1), 0.5 * WEIGHTS


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def antisymmetric(field, points):
    J = jax.vmap(jax.jacfwd(field))(jnp.asarray(points))
    return 0.5 * (J - jnp.swapaxes(J, 1, 2))


def line_potential(field):
    """phi(x) = int_0^1 F(t x) . x dt, the potential that the proof of (ii) builds."""
    return lambda x: jnp.sum(jax.vmap(lambda t, w: w * field(t * x) @ x)(jnp.asarray(NODES), jnp.asarray(WEIGHTS)))


def written_out(x):
    """A gradient field written without its potential x y^2 + sin(x z) + e^z."""
    a, b, c = x
    return jnp.stack([b**2 + c * jnp.cos(a * c), 2 * a * b, a * jnp.cos(a * c) + jnp.exp(c)])


def swirl(x):
    return jnp.stack([-x[1], x[0], 0.0 * x[2]])


def test_a_gradient_has_no_antisymmetric_energy():
    def phi(x):
        return jnp.sin(x[0]) * x[1] + jnp.exp(-jnp.sum(x**2) / 4) + x[2] ** 3 * x[0]

    A = antisymmetric(jax.grad(phi), POINTS)
    assert float(jnp.abs(A).max()) < 1e-12
    metric = hpml.Dense(METRIC)
    assert split_jacobian(jax.grad(phi), POINTS).energy.max() < 1e-24
    assert split_jacobian(lambda x: metric.raise_index(jax.grad(phi)(x)), POINTS, metric).energy.max() < 1e-24
    assert split_jacobian(jax.grad(phi), POINTS, metric).energy.min() > 1e-3  # a gradient, but not in this metric


def test_a_symmetric_jacobian_has_a_potential_by_the_line_integral():
    assert float(jnp.abs(antisymmetric(written_out, POINTS)).max()) < 1e-12
    recovered = jax.vmap(jax.grad(line_potential(written_out)))(jnp.asarray(POINTS))
    np.testing.assert_allclose(recovered, jax.vmap(written_out)(jnp.asarray(POINTS)), atol=1e-9)


def test_with_rotation_the_line_integral_is_no_potential():
    def field(x):
        return written_out(x) + swirl(x)

    A = antisymmetric(field, POINTS)
    np.testing.assert_allclose(jnp.sum(A**2, (1, 2)), 2.0, atol=1e-10)  # R(x) of the unit rotation
    np.testing.assert_allclose(split_jacobian(field, POINTS).antisymmetric, A, atol=1e-12)
    recovered = jax.vmap(jax.grad(line_potential(field)))(jnp.asarray(POINTS))
    assert float(jnp.abs(recovered - jax.vmap(field)(jnp.asarray(POINTS))).max()) > 0.1


def test_a_hole_breaks_the_converse():
    """The angle's gradient is symmetric off the origin, yet it circulates: the set must be simply connected."""

    def angle_gradient(x):
        return jnp.stack([-x[1], x[0]]) / jnp.sum(x**2)

    ring = np.stack([np.cos(np.arange(0, 2 * np.pi, 0.1)), np.sin(np.arange(0, 2 * np.pi, 0.1))], 1)
    assert float(jnp.abs(antisymmetric(angle_gradient, ring)).max()) < 1e-12
    t = 2 * np.pi * np.arange(64) / 64
    circle, velocity = np.stack([np.cos(t), np.sin(t)], 1), np.stack([-np.sin(t), np.cos(t)], 1)
    circulation = 2 * np.pi * np.mean(np.sum(np.asarray(jax.vmap(angle_gradient)(jnp.asarray(circle))) * velocity, 1))
    assert circulation == pytest.approx(2 * np.pi, rel=1e-12)


def test_the_projected_field_has_a_symmetric_jacobian():
    """M J is symmetric for what `hpml.project` returns anywhere in the space, though it is not for the field."""
    metric, rng = hpml.Dense(METRIC), np.random.default_rng(1)
    X, Q = rng.normal(size=(80, 3)), rng.normal(size=(10, 3))

    def field(points):
        return np.asarray(jax.vmap(lambda x: written_out(x) + 2.0 * swirl(x))(jnp.asarray(points)))

    projected = hpml.project(X, field(X), hpml.KernelProjector(), metric).at

    def turn(function):
        """The share of M J, by central differences, that is antisymmetric."""
        K = np.stack([metric.lower((function(Q + h) - function(Q - h)) / 2e-4) for h in 1e-4 * np.eye(3)], axis=2)
        return np.linalg.norm(K - np.swapaxes(K, 1, 2)) / np.linalg.norm(K + np.swapaxes(K, 1, 2))

    assert turn(field) > 0.1
    assert turn(projected) < 1e-6
