"""Circulation of known fields around known loops, its quadrature, its bound, and its small-loop limit."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.diagnostics.circulation import Smooth, circulation, local_circulation, parallelogram
from hpml.diagnostics.jacobian import split_jacobian
from hpml.geometry.metric import Dense, Diagonal
from hpml.projection.affine import affine_projection

TURN = np.array([[0.0, -1.0], [1.0, 0.0]])
SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])


def circle(t):
    return jnp.stack([jnp.cos(2 * jnp.pi * t), jnp.sin(2 * jnp.pi * t)])


def rotate(X):
    return X @ TURN.T


def test_a_rotation_circulates_twice_the_area_it_encloses():
    assert circulation(rotate, SQUARE).value == pytest.approx(2.0, abs=1e-12)
    assert circulation(rotate, SQUARE[::-1]).value == pytest.approx(-2.0, abs=1e-12)
    assert circulation(rotate, Smooth(circle)).value == pytest.approx(2 * np.pi, abs=1e-9)
    # M = diag(m) weighs the velocity: int m_2 x dy - m_1 y dx = (m_1 + m_2) area.
    assert circulation(rotate, SQUARE, Diagonal(np.array([3.0, 5.0]))).value == pytest.approx(8.0, abs=1e-12)


def test_a_gradient_does_not_circulate():
    def gradient(X):
        return np.stack([np.cos(X[:, 0]) * X[:, 1], np.sin(X[:, 0]) + X[:, 1] ** 3], 1)

    loop = circulation(gradient, np.array([[0.0, 0.0], [2.0, -1.0], [1.5, 3.0]]))
    assert abs(loop.value) <= 1e-9
    assert loop.bound > 1.0  # F in place of R


def test_the_quadrature_keeps_its_tolerance_on_a_field_with_a_sharp_bend():
    def bent(X):  # on the unit square's loop only the edge y = 0 sees it
        return np.stack([np.where(X[:, 1] < 0.5, 1e-3 / ((X[:, 0] - 0.3) ** 2 + 1e-6), 0.0), 0 * X[:, 0]], 1)

    exact = np.arctan(0.7 / 1e-3) + np.arctan(0.3 / 1e-3)
    loop = circulation(bent, SQUARE, tolerance=1e-9)
    assert loop.value == pytest.approx(exact, abs=1e-6)
    coarse = circulation(bent, SQUARE, tolerance=1.0)
    assert abs(coarse.value - exact) > 1e-3


def test_the_bound_is_tight_on_the_circle_and_uses_the_norm_of_the_proof():
    loop = circulation(rotate, Smooth(circle), Dense(4.0 * np.eye(2)))
    assert loop.value == pytest.approx(8 * np.pi, rel=1e-9)
    assert loop.bound == pytest.approx(8 * np.pi, rel=1e-9)
    assert loop.holds


@given(seed=st.integers(0, 2**32 - 1))
def test_the_residual_of_any_gradient_bounds_the_circulation(seed):
    rng = np.random.default_rng(seed)
    J, root = rng.normal(size=(2, 3, 3))
    M = root @ root.T + 0.1 * np.eye(3)
    H = rng.normal(size=(3, 3))
    G = np.linalg.inv(M) @ (H + H.T)  # a metric gradient, not the closest
    loop = circulation(lambda X: X @ J.T, rng.normal(size=(5, 3)), Dense(M), residual=lambda X: X @ (J - G).T)
    assert loop.holds
    assert abs(loop.value) > 0


def test_a_projection_leaves_the_circulation_to_its_residual():
    p = affine_projection(TURN - np.eye(2), covariance=np.diag([2.0, 1.0]))
    around = Smooth(lambda t: 0.5 * circle(t))
    whole = circulation(lambda x: rotate(x) - x, around, residual=p.residual)
    assert whole.value == pytest.approx(np.pi / 2, abs=1e-9)
    assert circulation(p.residual, around).value == pytest.approx(np.pi / 2, abs=1e-9)
    assert abs(circulation(p.direction, around).value) < 1e-9
    assert whole.holds
    assert whole.bound < circulation(lambda x: rotate(x) - x, around).bound


def wavy(x):
    return jnp.stack([jnp.sin(x[1]) + x[2] ** 2, x[0] * x[2], jnp.exp(x[0]) - x[1]])


@pytest.mark.parametrize("metric", [None, Diagonal(np.array([1.0, 2.0, 5.0]))])
def test_small_parallelograms_circulate_by_the_antisymmetric_part(metric):
    """`rem:residual_quantitative`: 2 eps^2 <B u, v> + o(eps^2), from u to v."""
    rng = np.random.default_rng(4)
    x, u, v = rng.normal(size=(3, 3))
    limit = local_circulation(wavy, x[None], u, v, metric)[0]
    B = split_jacobian(wavy, x[None], metric).antisymmetric[0]
    assert limit == pytest.approx(2 * (B @ u) @ v, rel=1e-12)

    def field(X):
        return np.stack([np.sin(X[:, 1]) + X[:, 2] ** 2, X[:, 0] * X[:, 2], np.exp(X[:, 0]) - X[:, 1]], 1)

    errors = [
        abs(circulation(field, parallelogram(x, u, v, size), metric, tolerance=1e-13).value / size**2 - limit)
        for size in (0.1, 0.05, 0.025)
    ]
    assert errors[2] < 0.1 * abs(limit)
    assert errors[0] > 1.7 * errors[1] > 2.8 * errors[2]  # the next order is linear in the size


def test_the_two_agent_form_turns_the_other_way():
    """The remark's h^T (d_2 g_1 - d_1 g_2^T) k is the loop that starts along agent 2's k."""
    cross, back = 3.0, 0.5

    def field(x):
        return jnp.stack([cross * x[1], back * x[0]])

    h, k = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert local_circulation(field, np.zeros((1, 2)), k, h)[0] == pytest.approx(cross - back)
    assert local_circulation(field, np.zeros((1, 2)), h, k)[0] == pytest.approx(back - cross)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: circulation(rotate, np.zeros((1, 2))), "at least two vertices"),
        (lambda: circulation(rotate, np.ones((3, 2))), "all one point"),
        (lambda: circulation(rotate, Smooth(lambda t: jnp.stack([t, t]))), "not closed"),
        (lambda: circulation(lambda X: X[:, :1], SQUARE), "one vector a point"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()
