"""`prop:residual_rotation_fp`: the residual alone keeps its distance in continuous time and leaves in discrete time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from hpml.diagnostics.orbits import distance_to, orbit_diameter
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import run
from hpml.games.families.linear import rotation
from hpml.games.game import evaluate

STARTS = np.array([[0.3, 0.0], [-0.2, 0.7], [1e-8, 0.0]])


def test_continuous_time_keeps_every_circle():
    """(i) u^2 + v^2 is constant and the orbit is the circle, run through clockwise in time 2 pi."""
    for start in STARTS:
        flow = solve_ivp(
            lambda _, z: evaluate(rotation(), z[None])[0], (0, 2 * np.pi), start, rtol=1e-9, atol=1e-15, max_step=0.2
        )
        np.testing.assert_allclose(np.linalg.norm(flow.y, axis=0), np.linalg.norm(start), rtol=1e-6)
        np.testing.assert_allclose(flow.y[:, -1], start, atol=1e-6 * np.linalg.norm(start))
        quarter = np.array([start[1], -start[0]])
        assert np.linalg.norm(flow.y - quarter[:, None], axis=0).min() < 0.2 * np.linalg.norm(start)


@settings(max_examples=8)
@given(step=st.floats(1e-3, 1.5))
def test_discrete_time_grows_by_the_exact_factor(step):
    """(ii) |z_t| = (1 + eta^2)^(t/2) |z_0| for every step size, however small."""
    path = run(rotation(), Simultaneous(step), STARTS, 30, retraction="identity")
    radius = distance_to(path.points, np.zeros(2))
    np.testing.assert_allclose(radius[1:] ** 2, (1 + step**2) * radius[:-1] ** 2, rtol=1e-12)
    np.testing.assert_allclose(radius[-1], (1 + step**2) ** 15 * radius[0], rtol=1e-12)
    assert (np.diff(radius, axis=0) > 0).all()


def test_on_the_disc_the_orbit_ends_on_the_boundary_and_stays_wide():
    path = run(rotation(), Simultaneous(0.3), STARTS, 600)
    np.testing.assert_allclose(np.linalg.norm(path.points[-1], axis=-1), 1.0, rtol=1e-9)
    assert (orbit_diameter(path.points, 100) > 1.9).all()


def test_implicit_steps_would_come_closer():
    """The growth is the explicit update's: the same field by backward Euler shrinks by the same factor."""
    step = 0.5
    back = np.linalg.inv(np.eye(2) - step * rotation().matrix)
    z = STARTS[0]
    assert np.linalg.norm(back @ z) == pytest.approx(np.linalg.norm(z) / np.sqrt(1 + step**2))
