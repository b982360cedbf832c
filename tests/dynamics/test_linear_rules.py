"""On linear fields without bounds every rule is a linear map: each is checked against its own, and its known rates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml.dynamics.rules.consensus import Consensus
from hpml.dynamics.rules.extragradient import Extragradient
from hpml.dynamics.rules.hpml import HPML
from hpml.dynamics.rules.mirror_prox import MirrorProx
from hpml.dynamics.rules.negative_momentum import NegativeMomentum
from hpml.dynamics.rules.optimistic import Optimistic
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.rules.symplectic import Symplectic
from hpml.dynamics.run import run
from hpml.games.families.linear import QUARTER_TURN, Linear
from hpml.geometry.domain import Space

I = np.eye(2)
ETA = 0.3
ROTATION = Linear(-QUARTER_TURN, Space(2))  # R(u, v) = (v, -u)
START = np.array([[1.0, 0.5], [-0.2, 2.0]])


def radii(rule, steps=40):
    return np.linalg.norm(run(ROTATION, rule, START, steps=steps).points, axis=2)


def factor(eigenvalues):
    return np.abs(eigenvalues).max()


def random_field(seed):
    J = np.random.default_rng(seed).normal(size=(3, 3))
    return J, Linear(J, Space(3), blocks=(1, 2)), np.random.default_rng(seed + 1).normal(size=(2, 3))


@pytest.mark.parametrize("eta", [0.05, 0.3, 1.0])
def test_simultaneous_ascent_spirals_out_by_the_exact_factor(eta):
    """`prop:residual_rotation_fp` (ii)."""
    r = radii(Simultaneous(eta))
    np.testing.assert_allclose(r[1:] / r[:-1], np.sqrt(1 + eta**2), rtol=1e-12)


@pytest.mark.parametrize("rule", [Extragradient, MirrorProx])
@pytest.mark.parametrize("eta", [0.05, 0.3, 0.9])
def test_extragradient_contracts_by_the_exact_factor(rule, eta):
    """z + eta A (z + eta A z) with A^2 = -1; Mirror-Prox is the same where there is no simplex."""
    r = radii(rule(eta))
    np.testing.assert_allclose(r[1:] / r[:-1], np.sqrt(1 - eta**2 + eta**4), rtol=1e-12)


@pytest.mark.parametrize("eta", [0.1, 0.3, 0.55, 0.6])
def test_optimistic_ascent_follows_its_characteristic_roots(eta):
    """m^2 - (1 + 2 i eta) m + i eta = 0: inside the unit circle up to eta = 1 / sqrt(3)."""
    roots = np.roots([1.0, -(1 + 2j * eta), 1j * eta])
    z = run(ROTATION, Optimistic(eta), START[:1], steps=60).points[:, 0] @ np.array([1.0, -1.0j])  # R turns by i
    z0, z1 = 1.0 * z[0], (1 + 1j * eta) * z[0]
    a, b = np.linalg.solve(np.array([[1.0, 1.0], roots]), [z0, z1])
    t = np.arange(61)
    np.testing.assert_allclose(z, a * roots[0] ** t + b * roots[1] ** t, rtol=1e-9, atol=1e-12)
    assert (factor(roots) < 1) == (eta < 3**-0.5)


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), strength=st.floats(0.0, 2.0))
def test_symplectic_adjustment_is_its_linear_map(seed, strength):
    """F + lambda A F, Balduzzi's xi + lambda A^T xi with the sign of ascent; HPML's "adjust" is the same."""
    J, game, x = random_field(seed)
    expected = x + ETA * x @ (J + strength * (J - J.T) / 2 @ J).T
    for rule in (Symplectic(ETA, strength), HPML(step=ETA, residual="adjust", adjustment=strength)):
        np.testing.assert_allclose(run(game, rule, x, steps=1).points[1], expected, atol=1e-10)


def test_symplectic_adjustment_makes_the_rotation_contract():
    r = radii(Symplectic(ETA, 1.0))
    np.testing.assert_allclose(r[1:] / r[:-1], np.sqrt((1 - ETA) ** 2 + ETA**2), rtol=1e-12)


def test_alignment_leaves_the_adjustment_off_unstable_points():
    """Weak repulsion with rotation: the aligned sign is minus, and the run leaves the origin faster than unaligned."""
    J = np.array([[3.0, 1.0], [-1.0, 3.0]])
    game, x = Linear(J, Space(2)), np.array([[1.0, 0.0]])
    A = (J - J.T) / 2
    F, pulled = x @ J.T, x @ J.T @ J
    turned = F @ A.T
    assert (F * pulled).sum() * (turned * pulled).sum() / 2 + 0.1 < 0
    step = run(game, Symplectic(ETA, 1.0, align=True), x, steps=1).directions[0]
    np.testing.assert_allclose(step, F - turned, atol=1e-12)
    stable = Linear(-J, Space(2))  # F(x) = -J x: attracted, so the sign is plus
    step = run(stable, Symplectic(ETA, 1.0, align=True), x, steps=1).directions[0]
    np.testing.assert_allclose(step, -F + (-A @ -F[0])[None], atol=1e-12)


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), shrink=st.floats(0.0, 2.0))
def test_consensus_is_its_linear_map(seed, shrink):
    J, game, x = random_field(seed)
    expected = x + ETA * x @ (J - shrink * J.T @ J).T
    np.testing.assert_allclose(run(game, Consensus(ETA, shrink), x, steps=1).points[1], expected, atol=1e-10)


@pytest.mark.parametrize("alternating", [False, True])
@pytest.mark.parametrize("momentum", [-0.5, 0.0, 0.3])
def test_negative_momentum_is_its_linear_map(alternating, momentum):
    J, game, x = random_field(3)
    step = np.eye(3) + ETA * J  # x_+ = step x + momentum (x - x_before)
    turn = momentum * np.eye(3)
    if alternating:  # the second agent (two coordinates) sees the first one's move
        first, second = np.diag([1.0, 0, 0]), np.diag([0.0, 1, 1])
        lead = np.eye(3) + ETA * first @ J
        step = lead + ETA * second @ J @ lead
        turn = momentum * (np.eye(3) + ETA * second @ J @ first)
    path = run(game, NegativeMomentum(ETA, momentum, alternating), x, steps=6).points
    expected = [x, x @ step.T]
    for _ in range(5):
        expected.append(expected[-1] @ step.T + (expected[-1] - expected[-2]) @ turn.T)
    np.testing.assert_allclose(path, expected, atol=1e-9)


def test_negative_momentum_converges_on_the_saddle_only_by_turns():
    """The spectral radii of the two maps, and the runs that follow them (Gidel et al. 2019)."""
    eta, beta, A, O = 0.5, -0.5, -QUARTER_TURN, np.zeros((2, 2))
    at_once = np.block([[(1 + beta) * I + eta * A, -beta * I], [I, O]])
    first, second = np.diag([1.0, 0.0]), np.diag([0.0, 1.0])
    lead = I + eta * first @ A
    turn = beta * (I + eta * second @ A @ first)
    by_turns = np.block([[lead + eta * second @ A @ lead + turn, -turn], [I, O]])
    for alternating, matrix in ((False, at_once), (True, by_turns)):
        radius = factor(np.linalg.eigvals(matrix))
        assert (radius < 1) == alternating
        r = radii(NegativeMomentum(eta, beta, alternating), 200)
        rate = (r[200] / r[100]) ** 0.01
        np.testing.assert_allclose(rate, radius, atol=0.01)
