"""The layer over pictures in C: the same function as gathering squares and one matrix product, with all derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml.native.pictures import available, picture_sums

pytestmark = pytest.mark.skipif(not available(), reason="this machine has no C compiler")


def by_gathering(weight, squares, places):
    drawn = squares[places]
    return drawn.reshape(*drawn.shape[:-2], -1) @ weight.T


def by_hand(weight, squares, places, slopes):
    """The layer and its slopes written out in float64."""
    weight, squares, slopes = (np.asarray(x, np.float64) for x in (weight, squares, slopes))
    drawn = squares[places].reshape(len(places), -1)
    of_squares = np.zeros_like(squares)
    np.add.at(of_squares, np.asarray(places), (slopes @ weight).reshape(*places.shape, -1))
    return drawn @ weight.T, (slopes.T @ drawn, of_squares)


@jax.jit
def with_slopes(weight, squares, places, slopes):
    out, backwards = jax.vjp(lambda w, r: picture_sums(w, r, places), weight, squares)
    return out, backwards(slopes)


def draw(seed, pictures=9, cells=4, squares=6, features=5, hidden=7, lanes=()):
    rng = np.random.default_rng(seed)
    of = lambda *shape: jnp.asarray(rng.standard_normal((*lanes, *shape)), jnp.float32)  # noqa: E731
    places = jnp.asarray(rng.integers(0, squares, (*lanes, pictures, cells)), jnp.int32)
    return of(hidden, cells * features), of(squares, features), places


def close(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4 * float(np.abs(b).max() + 1))


@given(
    pictures=st.integers(1, 40),
    cells=st.integers(1, 6),
    squares=st.integers(1, 12),
    features=st.sampled_from([1, 3, 8, 11, 16]),
    hidden=st.sampled_from([1, 7, 8, 64, 67, 128]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_layer_and_slopes_of_any_size(pictures, cells, squares, features, hidden, seed):
    weight, book, places = draw(seed, pictures, cells, squares, features, hidden)
    slopes = jnp.asarray(np.random.default_rng(seed).standard_normal((pictures, hidden)), jnp.float32)
    close(with_slopes(weight, book, places, slopes), by_hand(weight, book, places, slopes))


def losses(places):
    return [lambda w, r, f=f: jnp.sum(jnp.sin(f(w, r, places))) for f in (picture_sums, by_gathering)]


def test_derivatives_of_second_order_both_ways():
    weight, book, places = draw(1)
    moved = (weight[::-1] + 1.0, 2.0 * book)
    ours, theirs = (jax.grad(loss, (0, 1)) for loss in losses(places))
    close(jax.jvp(ours, (weight, book), moved), jax.jvp(theirs, (weight, book), moved))
    close(jax.vjp(ours, weight, book)[1](moved), jax.vjp(theirs, weight, book)[1](moved))


@pytest.mark.parametrize("at", [0, 1])
def test_derivatives_in_one_of_the_two_and_of_third_order(at):
    weight, book, places = draw(2)
    x, cubes = (weight, book)[at], []
    for loss in losses(places):
        one = lambda x, loss=loss: loss(x, book) if at == 0 else loss(weight, x)  # noqa: E731
        slope = lambda x, one=one: jnp.vdot(jax.jvp(jax.grad(one), (x,), (x + 1.0,))[1], x)  # noqa: E731
        cubes.append(jax.grad(slope)(x))
    close(*cubes)


def test_linear_in_one_of_the_two():
    weight, book, places = draw(3)
    ours, theirs = (
        jax.linear_transpose(lambda w, f=f: f(w, book, places), weight)(jnp.ones((9, 7)))
        for f in (picture_sums, by_gathering)
    )
    close(ours, theirs)


@pytest.mark.parametrize(
    "axes", [(0, 0, 0), (None, 0, 0), (0, None, 0), (0, 0, None), (None, None, 0), (0, None, None)]
)
def test_lanes_and_what_they_share(axes):
    many = draw(4, lanes=(3,))
    sample = [x[0] if axis is None else x for x, axis in zip(many, axes, strict=True)]
    ours, theirs = (jax.vmap(f, axes) for f in (picture_sums, by_gathering))
    close(jax.jit(ours)(*sample), theirs(*sample))
    # of each lane, and of the lanes together
    for run in (ours, theirs):
        assert run(*sample).shape == (3, 9, 7)
    of_all = [jax.grad(lambda w, r, f=f: jnp.sum(f(w, r, sample[2]) ** 2), (0, 1)) for f in (ours, theirs)]
    close(*(slope(*sample[:2]) for slope in of_all))
    of_each = [
        jax.vmap(jax.grad(lambda w, r, p, f=f: jnp.sum(f(w, r, p) ** 2), (0, 1)), axes)
        for f in (picture_sums, by_gathering)
    ]
    close(*(slope(*sample) for slope in of_each))


def test_lanes_of_lanes_of_which_some_are_shared():
    weight, book, places = draw(5, lanes=(2, 3))
    weight, book = weight[:, 0], book[0]
    ours, theirs = (jax.vmap(jax.vmap(f, (None, 0, 0)), (0, None, 0)) for f in (picture_sums, by_gathering))
    close(ours(weight, book, places), theirs(weight, book, places))
    slopes = [jax.grad(lambda w, r, f=f: jnp.sum(f(w, r, places) ** 2), (0, 1))(weight, book) for f in (ours, theirs)]
    close(*slopes)


def test_several_axes_of_pictures_and_places_beyond_the_book():
    weight, book, places = draw(6, pictures=12)
    apart = places.reshape(3, 4, -1)
    close(picture_sums(weight, book, apart), by_gathering(weight, book, apart))
    beyond = places.at[0, 0].set(99)
    close(picture_sums(weight, book, beyond), by_gathering(weight, book, jnp.clip(beyond, 0, 5)))


def test_equal_pictures_have_equal_bits_whatever_is_beside_them():
    weight, book, places = draw(7, pictures=50, cells=9, hidden=128, features=16)
    whole = np.asarray(picture_sums(weight, book, places))
    for i in (0, 17, 49):
        np.testing.assert_array_equal(np.asarray(picture_sums(weight, book, places[i : i + 1]))[0], whole[i])
