"""Windowed diameters, path lengths, distances and averages against direct formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.diagnostics.orbits import average_iterate, distance_to, orbit_diameter, path_length, windowed_diameters


def by_hand(points):
    return max(np.linalg.norm(a - b) for a in points for b in points)


@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(2, 30), window=st.integers(2, 35), heavy=st.booleans())
def test_every_window_has_the_diameter_of_its_pairs(seed, steps, window, heavy):
    rng = np.random.default_rng(seed)
    X = rng.standard_cauchy((steps + 1, 2, 3)) if heavy else rng.normal(size=(steps + 1, 2, 3))
    width = min(window, len(X))
    expected = [[by_hand(X[t : t + width, k]) for k in (0, 1)] for t in range(len(X) - width + 1)]
    np.testing.assert_allclose(windowed_diameters(X, window), expected, rtol=1e-12)
    np.testing.assert_allclose(orbit_diameter(X, window), expected[-1], rtol=1e-12)


def test_long_windows_skip_what_cannot_matter_and_nothing_else():
    """More points than are held at once; the longest chord is between the two that lie off the cloud."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 1, 2))
    X[[700, 1400], 0] = [[9.0, 0.0], [9.0, 8.0]]
    assert orbit_diameter(X, 1500)[0] == pytest.approx(by_hand(X[np.linalg.norm(X[:, 0], axis=1) > 2.0, 0]))


def test_a_circle_has_its_known_diameter_and_length():
    angle = 2 * np.pi * np.arange(201) / 200
    X = np.stack([np.cos(angle), np.sin(angle)], -1)[:, None]
    assert orbit_diameter(X, 201)[0] == pytest.approx(2.0)
    assert path_length(X)[0] == pytest.approx(400 * np.sin(np.pi / 200))
    np.testing.assert_allclose(distance_to(X, np.zeros(2)), 1.0)
    np.testing.assert_allclose(average_iterate(X[:-1])[-1], 0.0, atol=1e-12)
    # A spiral's last window is smaller than its first.
    widths = windowed_diameters(X * 0.99 ** np.arange(201)[:, None, None], 50)
    assert (np.diff(widths[:, 0]) < 0).all()


def test_averages_are_of_the_points_so_far():
    X = np.arange(8.0).reshape(4, 2, 1)
    np.testing.assert_allclose(average_iterate(X)[:, 0, 0], [0.0, 1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: orbit_diameter(np.zeros((4, 2))), "points must have shape"),
        (lambda: orbit_diameter(np.zeros((4, 1, 2)), 1), "at least two points"),
        (lambda: distance_to(np.zeros((4, 1, 2)), np.zeros(3)), "target must have shape"),
        (lambda: path_length(np.full((4, 1, 2), np.nan)), "not finite"),
    ],
)
def test_bad_input_is_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()
