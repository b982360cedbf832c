"""Pictures as places in a book: the same pixels, the same learner."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml.marl import networks, sprites
from hpml.marl.algorithms.mappo import MAPPO
from hpml.marl.env import Observation, Spec
from hpml.marl.learner import Trainer
from hpml.marl.networks import to_patches
from hpml.marl.rollout import Rollout
from hpml.marl.settings import Settings
from hpml.marl.sprites import MOST, index


@pytest.fixture(params=["NumPy", "C"], scope="module")
def by(request):
    """Who looks squares up, and adds up what they give."""
    if request.param == "C" and sprites.library() is None:
        pytest.skip("this machine has no C compiler")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "NumPy":
            patch.setattr(sprites, "library", lambda: None)
            patch.setattr(networks, "available", lambda: False)
        yield


def pictures(draw: np.random.Generator, lead: tuple[int, ...], rows: int, columns: int, kinds: int) -> np.ndarray:
    """Pictures made of a few different squares of 8 x 8."""
    kept = draw.integers(0, 256, (kinds, 8, 8, 3)).astype(np.uint8)
    squares = kept[draw.integers(0, kinds, (*lead, rows, columns))]
    return np.moveaxis(squares, -3, -4).reshape(*lead, rows * 8, columns * 8, 3)


@pytest.mark.usefixtures("by")
@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 2**31),
    lead=st.lists(st.integers(1, 3), max_size=3),
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
    off=st.integers(0, 7),
    channels=st.integers(1, 4),
    side=st.sampled_from([1, 3, 8]),
)
def test_the_book_has_every_square_back(seed, lead, rows, columns, off, channels, side):
    draw = np.random.default_rng(seed)
    shape = (*lead, max(rows * side - off % side, 1), columns * side, channels)
    images = draw.integers(0, 3, shape).astype(np.uint8)
    places, book = index(images, side)
    np.testing.assert_array_equal(book[places], np.asarray(to_patches(jnp.asarray(images), side)))
    assert len(np.unique(places)) == len(np.unique(book[places].reshape(-1, book.shape[1]), axis=0))


@pytest.mark.usefixtures("by")
def test_squares_that_differ_in_one_bit_differ():
    images = np.zeros((8 * 8 * 3 + 1, 8, 8, 3), np.uint8)
    for n, place in enumerate(np.ndindex(8, 8, 3)):
        images[n][place] = 1
    places, _ = index(images, 8)
    assert len(np.unique(places)) == len(images)


@pytest.mark.usefixtures("by")
def test_too_many_different_squares_have_no_book():
    images = np.random.default_rng(0).integers(0, 256, (MOST + 1, 8, 8, 3)).astype(np.uint8)
    assert index(images, 8) is None
    assert index(images[:MOST], 8) is not None


@pytest.mark.usefixtures("by")
@pytest.mark.parametrize("minibatch", [4096, 16])
def test_a_learner_with_a_book_learns_the_same(minibatch):
    spec = Spec("drawn", 2, 3, (16, 24, 3), 8, 1)
    trainer = Trainer(spec, MAPPO(), Settings(rollout=8, minibatch=minibatch, hidden=8, sprites=4))
    draw = np.random.default_rng(1)
    T, E, agents = 8, 2, 2
    image = pictures(draw, (T + 1, E, agents), 2, 3, 5)
    rollout = Rollout(
        Observation(jnp.asarray(draw.normal(size=(T + 1, E, agents, 1)), jnp.float32), jnp.asarray(image)),
        jnp.zeros((T + 1, E), bool),
        None,
        jnp.asarray(draw.integers(0, 3, (T, E, agents)), jnp.int32),
        jnp.full((T, E, agents), -np.log(3.0), jnp.float32),
        jnp.asarray(draw.normal(size=(T, E, agents)), jnp.float32),
        jnp.full((T, E, agents), -1, jnp.int32),
    )
    places, book = index(image, 8)
    looked_up = eqx.tree_at(lambda r: r.observation.image, rollout, jnp.asarray(places))
    learner = trainer.init(jax.random.key(0))
    plain, _ = jax.jit(trainer.update)(learner, rollout)
    booked, _ = jax.jit(trainer.update)(learner, looked_up, jnp.asarray(book))
    for a, b in zip(jax.tree.leaves(plain.actors), jax.tree.leaves(booked.actors), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
