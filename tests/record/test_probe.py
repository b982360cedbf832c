"""Probes lie where they should, and carry the field there (`rem:failed_loops`)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hpml
from hpml.projection.identifiability import identifiability

TURN = np.array([[-1.0, 2.0], [-2.0, -1.0]])


def test_the_field_is_that_at_the_points_for_trees_and_for_plain_numpy():
    tree = {"a": jnp.ones(2), "b": jnp.zeros((1, 1))}
    points, field = hpml.probe(lambda p: {"a": -p["a"] + p["b"][0], "b": p["b"] ** 2}, tree, count=70, batch=32)
    assert points.shape == field.shape == (70, 3)
    np.testing.assert_allclose(field[:, :2], -points[:, :2] + points[:, 2:], atol=1e-6)
    calls = []

    def plain(x):
        calls.append(float(x[0]))  # no tracer becomes a float, so this field cannot be vmapped
        return TURN @ x

    points, field = hpml.probe(plain, np.ones(2), count=9)
    np.testing.assert_allclose(field, points @ TURN.T, atol=1e-12)
    _, negative = hpml.probe(lambda x: TURN @ x, np.ones(2), count=9, sign=-1)
    np.testing.assert_allclose(negative, -field, atol=1e-12)


@pytest.mark.parametrize(("directions", "mean"), [("ball", 0.3 * 50 / 51), ("gaussian", 0.3)])
def test_distances_are_as_wanted(directions, mean):
    centre = np.full(50, 2.0)
    points, _ = hpml.probe(lambda x: -x, centre, count=2000, radius=0.3, directions=directions)
    distance = np.linalg.norm(points - centre, axis=1)
    assert distance.mean() == pytest.approx(mean, rel=0.01)
    assert directions == "gaussian" or distance.max() <= 0.3
    assert np.abs((points - centre).mean(0)).max() < 0.01


def test_the_path_plane_is_that_of_the_run():
    d = 400
    J = np.zeros((d, d))
    J[3, 7], J[7, 3] = 1.0, -1.0
    x = np.zeros(d)
    x[3] = 1.0
    for path in (None, [np.cos(t) * np.eye(d)[3] - np.sin(t) * np.eye(d)[7] for t in np.linspace(0, 1, 20)]):
        points, field = hpml.probe(lambda x: J @ x, x, count=100, directions="path-plane", path=path)
        off = points - x
        assert np.abs(np.delete(off, [3, 7], 1)).max() < 1e-9
        assert np.linalg.matrix_rank(off) == 2
        np.testing.assert_allclose(field, points @ J.T, atol=1e-9)
        assert identifiability(points).share > 0.5


def test_two_estimates_are_independent_and_keys_repeat():
    def noisy(x, key):
        return -x + jax.random.normal(key, x.shape)

    points, field = hpml.probe(noisy, jnp.zeros(3), count=128, batch=128, estimates=2)
    assert field.shape == (2, 128, 3)
    noise = field + points
    assert abs(np.mean(noise[0] * noise[1])) < 0.2
    again = hpml.probe(noisy, jnp.zeros(3), count=128, batch=128, estimates=2, key=jax.random.key(0))
    np.testing.assert_array_equal(field, again.field)
    other = hpml.probe(noisy, jnp.zeros(3), count=128, batch=128, estimates=2, key=jax.random.key(1))
    assert np.abs(other.points - points).min() > 0


def test_torch_parameters_come_back_as_torch():
    torch = pytest.importorskip("torch")
    points, field = hpml.probe(lambda p: [-p[0], torch.sin(p[1])], [torch.ones(2), torch.zeros(1)], count=5)
    np.testing.assert_allclose(field[:, 2], np.sin(points[:, 2]), atol=1e-6)


def test_bad_input_is_said():
    for options, sentence in [
        ({"directions": "up"}, "directions"),
        ({"count": 0}, "count"),
        ({"radius": -1.0}, "radius"),
        ({"estimates": 3}, "estimates"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            hpml.probe(lambda x: x, np.ones(2), **options)
    with pytest.raises(ValueError, match="2 numbers like params, got 1"):
        hpml.probe(lambda x: x[:1], np.ones(2))
    with pytest.raises(ValueError, match="finite"):
        hpml.probe(lambda x: x, np.array([np.nan]))
    with pytest.raises(ValueError, match="spans no plane"):
        hpml.probe(lambda x: 0 * x, np.ones(2), directions="path-plane")
    with pytest.raises(ZeroDivisionError):  # the field's own mistake is not hidden
        hpml.probe(lambda x: 1 / 0, np.ones(2))
