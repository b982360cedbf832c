"""Short images keep inner products on average, and nearly each time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hpml.geometry.history import combine_rows, history_init, history_push, products_with, push_products
from hpml.geometry.leaves import Leaves
from hpml.geometry.sketch import Sketched, flat_sketches, from_brief, sketch, to_brief, worth_sketching
from hpml.geometry.span import on_steps, span_of

WIDTH = 509  # a prime
DRAW = np.random.default_rng(0)


def images(v, count):
    """A vector's images under several seeds, (seeds, width)."""
    return np.stack([np.asarray(sketch(v, WIDTH, seed=seed)[0]) for seed in range(count)])


@pytest.mark.parametrize("spread", ["everywhere", "one column"])
def test_inner_products_are_right_on_average_and_deviate_as_counted(spread):
    u, v = jnp.asarray(DRAW.normal(size=(2, 8192)), jnp.float32)
    v = 0.5 * u + v
    if spread == "one column":  # of a matrix with 64: an even width would put them on few places
        u, v = (jnp.where(jnp.arange(8192) % 64 == 3, w, 0.0) for w in (u, v))
    seeds = 200
    found = np.sum(images(u, seeds) * images(v, seeds), 1)
    want, lengths = float(u @ v), float((u @ u) * (v @ v))
    deviation = ((lengths + want**2) / WIDTH) ** 0.5
    assert abs(found.mean() - want) < 4 * deviation / seeds**0.5
    assert found.std() < 1.25 * deviation


def test_the_image_is_linear_and_that_of_the_flat_tree():
    tree = {"a": DRAW.normal(size=(7, 90)), "b": DRAW.normal(size=11), "c": DRAW.normal(size=(2, 3, 400))}
    tree = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)
    flat = jnp.concatenate([leaf.reshape(-1) for leaf in jax.tree.leaves(tree)])
    np.testing.assert_allclose(sketch(tree, WIDTH)[0], sketch(flat, WIDTH)[0], atol=1e-5)
    other = jax.tree.map(lambda x: x[::-1] ** 2, tree)
    both = jax.tree.map(lambda x, y: 2.0 * x - y, tree, other)
    want = 2.0 * sketch(tree, WIDTH)[0] - sketch(other, WIDTH)[0]
    np.testing.assert_allclose(sketch(both, WIDTH)[0], want, atol=1e-4)


def test_every_entry_keeps_its_size_and_signs_are_even():
    places = [np.asarray(sketch(jnp.zeros(3000).at[j].set(2.0), WIDTH)[0]) for j in range(0, 3000, 37)]
    for place in places:
        assert sorted(np.abs(place))[-2:] == [0.0, 2.0]
    assert abs(np.mean([place.sum() for place in places])) < 1.0


def test_lanes_of_a_vmap_are_as_alone():
    rows = jnp.asarray(DRAW.normal(size=(3, 5000)), jnp.float32)
    together = jax.jit(jax.vmap(lambda v: sketch(v, WIDTH)[0]))(rows)
    np.testing.assert_allclose(together, np.stack([sketch(v, WIDTH)[0] for v in rows]), atol=1e-5)


def test_the_metric_is_in_the_image():
    u, v = jnp.asarray(DRAW.normal(size=(2, 6000)), jnp.float32)
    weights, columns = jnp.linspace(0.5, 3.0, 6000), jnp.asarray(DRAW.normal(size=(6000, 2)), jnp.float32)
    metric = Leaves((weights,), columns)
    found = [sketch(w, WIDTH, metric) for w in (u, v)]
    np.testing.assert_allclose(found[0][0], sketch(u * jnp.sqrt(weights), WIDTH)[0], atol=1e-4)
    np.testing.assert_allclose(found[0][1] @ found[1][1], (u @ columns) @ (v @ columns), rtol=1e-4)


def test_short_vectors_are_not_worth_it():
    assert worth_sketching({"a": jnp.zeros((4, 500))}, 500)
    assert not worth_sketching({"a": jnp.zeros((3, 500))}, 500)
    assert not worth_sketching({"a": jnp.zeros((4, 500))}, None)


def test_a_sketched_history_has_the_matrices_of_the_images_and_the_rows_of_the_vectors():
    points, field = jnp.asarray(DRAW.normal(size=(2, 6, 4500)), jnp.float32)
    both = lambda v: Sketched(v, sketch(v, WIDTH))  # noqa: E731
    history = history_init(both(points[0]), 6)
    for x, f in zip(points, field, strict=True):
        history = jax.jit(history_push)(history, both(x), both(f))
    short = history_init(sketch(points[0], WIDTH), 6)
    for x, f in zip(points, field, strict=True):
        short = jax.jit(history_push)(short, sketch(x, WIDTH), sketch(f, WIDTH))
    np.testing.assert_allclose(history.matrices, short.matrices, rtol=1e-6, atol=1e-5)
    a, b = DRAW.normal(size=(2, 6))
    got = combine_rows(history, jnp.arange(6), jnp.asarray(a), jnp.asarray(b), both(jnp.zeros(4500)))
    np.testing.assert_allclose(got, a @ points + b @ field, atol=1e-4)


def test_trees_that_differ_are_refused():
    with pytest.raises(ValueError, match="same tree structure"):
        flat_sketches([{"a": jnp.zeros(5000)}, {"a": jnp.zeros(4999)}], (1.0, 1.0), 2, 509)


def test_brief_numbers_are_right_to_one_part_in_256_whatever_their_size():
    values = jnp.asarray(DRAW.normal(size=5000) * 10.0 ** DRAW.uniform(-30, 30, 5000), jnp.float32)
    np.testing.assert_allclose(from_brief(to_brief(values)), values, rtol=2**-8)
    assert jnp.isnan(from_brief(to_brief(jnp.array([jnp.nan]))))[0]


@pytest.mark.parametrize("compiler", [True, False])
@pytest.mark.parametrize("pushes", [2, 4, 11])
def test_brief_rows_of_steps_give_the_combination_of_the_points(monkeypatch, compiler, pushes):
    """Far from the origin too, where the points themselves in 16 bits would say nothing, and past a torn sample."""
    if not compiler:
        for module in ("history", "sketch"):
            monkeypatch.setattr(f"hpml.geometry.{module}.available", lambda: False)
    d, n = 4500, 5
    points = 50.0 + jnp.cumsum(jnp.asarray(DRAW.normal(size=(pushes, d)), jnp.float32), 0)
    grads = jnp.asarray(DRAW.normal(size=(pushes, d)), jnp.float32)
    history = history_init(Sketched(jnp.zeros(d, jnp.uint16), (jnp.zeros(WIDTH),)), n, spare=2, latest=jnp.zeros(d))

    @jax.jit
    def push(history, x, g):
        (point, field), step = flat_sketches([x, g], (1.0, -1.0), 2, WIDTH, before=history.latest)
        row = point._replace(whole=step)
        products = products_with(history, row, field, Leaves(None, None))
        return push_products(history, row, field, products, latest=point.whole)

    for i, (x, g) in enumerate(zip(points, grads, strict=True)):
        if i == pushes - 1:
            history = push(history, x + 7.0, g.at[3].set(jnp.nan))
        history = push(history, x, g)
    np.testing.assert_array_equal(history.latest, points[-1])
    chart, *_ = span_of(history)
    a, b = DRAW.normal(size=(2, n)) * np.asarray(chart.mask)
    a -= chart.mask * a.sum() / max(int(chart.mask.sum()), 1)
    found = combine_rows(history, chart.rows, on_steps(chart, history.times, jnp.asarray(a)), jnp.asarray(b), None)
    order = np.argsort(np.where(chart.mask, history.times[chart.rows], 10**6))[: min(n, pushes)]
    kept = slice(pushes - len(order), pushes)
    expected = a[order] @ np.asarray(points[kept], np.float64) - b[order] @ np.asarray(grads[kept], np.float64)
    assert np.linalg.norm(found - expected) < 0.004 * np.linalg.norm(expected)


def test_steps_need_every_sample():
    with pytest.raises(ValueError, match="recent"):
        history_init(Sketched(jnp.zeros(9, jnp.uint16), (jnp.zeros(3),)), 4, "thinned", latest=jnp.zeros(9))
