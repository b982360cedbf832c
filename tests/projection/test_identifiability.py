"""What a sample set can tell: nothing along a path, nearly all in a cloud or around an orbit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.geometry.metric import Diagonal
from hpml.projection.identifiability import identifiability

T = np.linspace(0.0, 1.0, 64)[:, None]
RNG = np.random.default_rng(0)

PATHS = {
    "line": T * np.array([1.0, 2.0, -1.0]),
    "one dimension": T,
    "arc": np.concatenate([np.cos(2 * T), np.sin(2 * T)], 1),
    "helix": np.concatenate([np.cos(12 * T), np.sin(12 * T), 8 * T], 1),
    "noisy trajectory in high dimension": T * RNG.normal(size=400) * 10 + 0.003 * RNG.normal(size=(64, 400)),
    "random walk in high dimension": np.cumsum(RNG.normal(size=(64, 400)), 0),
    "walk with drift": np.cumsum(1.0 + 0.1 * RNG.normal(size=(64, 3)), 0),
    "spiral that falls in at once": np.exp(-5 * T) * np.concatenate([np.cos(9 * T), np.sin(9 * T)], 1),
}


@pytest.mark.parametrize("name", PATHS)
def test_a_path_tells_nothing(name):
    told = identifiability(PATHS[name])
    assert told.share < 0.05
    assert "off-path" in told.message
    shuffled = identifiability(np.random.default_rng(1).permutation(PATHS[name]))
    assert shuffled.share < 0.05


@pytest.mark.parametrize(("n", "dimension"), [(64, 2), (200, 2), (2000, 2), (64, 3), (30, 10), (200, 50)])
def test_a_cloud_tells(n, dimension):
    told = identifiability(np.random.default_rng(n).normal(size=(n, dimension)))
    assert told.share > 0.75
    assert told.cycle_rank > 0
    assert told.spread > 0.5


def test_an_orbit_tells():
    t = np.linspace(0, 2 * np.pi, 200)[:, None]
    assert identifiability(np.concatenate([np.cos(t), np.sin(t)], 1)).share > 0.9
    slow = np.exp(-t / 6) * np.concatenate([np.cos(3 * t), np.sin(3 * t)], 1)
    assert identifiability(slow).share > 0.5


def test_a_path_with_probes_around_it_tells():
    probes = PATHS["line"][::4, None] + 0.1 * np.random.default_rng(0).normal(size=(16, 6, 3))
    assert identifiability(np.concatenate([PATHS["line"], probes.reshape(-1, 3)])).share > 0.5


@pytest.mark.parametrize("unit", [1e-130, 1e-10, 1e-3, 1e10])
@pytest.mark.parametrize("cloud", [True, False])
def test_units_change_nothing(unit, cloud):
    t = np.linspace(0, 20, 80)[:, None]
    points = (
        np.random.default_rng(0).normal(size=(80, 2)) if cloud else np.exp(-t / 9) * np.hstack([np.cos(t), np.sin(t)])
    )
    plain, scaled = identifiability(points), identifiability(unit * points)
    assert scaled.share == pytest.approx(plain.share, abs=1e-9)
    assert scaled.cycle_rank == plain.cycle_rank


@pytest.mark.parametrize("n", [2, 3])
def test_two_or_three_points_tell_nothing(n):
    told = identifiability(np.random.default_rng(0).normal(size=(n, 3)))
    assert told.share == 0.0
    assert f"{n} distinct points" in told.message


def test_repeats_add_nothing():
    X = np.random.default_rng(0).normal(size=(40, 2))
    assert identifiability(np.concatenate([X, X])).share == identifiability(X).share


def test_units_and_position_do_not_matter_and_the_metric_does():
    X = np.random.default_rng(0).normal(size=(60, 2))
    told = identifiability(X)
    assert identifiability(1e-6 * X + 3.0).share == pytest.approx(told.share, abs=0.02)
    assert identifiability(X * [1.0, 1e-9], Diagonal([1.0, 1e18])).share == pytest.approx(told.share, abs=1e-6)
    assert identifiability(X * [1.0, 1e-9]).share < 0.05


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(2, 30), dimension=st.integers(1, 4))
def test_it_is_a_share(seed, n, dimension):
    X = np.random.default_rng(seed).integers(0, 4, size=(n, dimension)).astype(float)  # ties and repeats
    X[0] += 9.0
    told = identifiability(X)
    assert 0.0 <= told.share <= 1.0
    assert 0.0 <= told.spread <= 1.0
    assert told.cycle_rank >= 0
    assert told.message
