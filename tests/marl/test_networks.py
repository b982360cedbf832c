"""Networks see what they should and nothing else."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marl.making import quick, spec

from hpml.marl.env import patch_shape
from hpml.marl.networks import count_parameters, init_actors, init_critic, sight, to_patches
from hpml.marl.settings import Settings

SPEC = spec(image=True)
SETTINGS = Settings(hidden=8, sprites=4, rollout=8)
DRAW = np.random.default_rng(0)
SAMPLES = 5
VECTOR = jnp.asarray(DRAW.normal(size=(SPEC.agents, SAMPLES, SPEC.vector)), jnp.float32)
IMAGE = jnp.asarray(DRAW.integers(0, 256, (SPEC.agents, SAMPLES, *SPEC.image)), jnp.uint8)
PATCHES = quick(lambda image: to_patches(image, SPEC.patch))(IMAGE)
ACTIONS = DRAW.integers(0, SPEC.actions, (SPEC.agents, SAMPLES)).astype(np.int32)


def critic(central, counterfactual=False):
    return quick(lambda key: init_critic(key, SPEC, SETTINGS, central, counterfactual))(jax.random.key(0))


def test_squares_are_cut_row_by_row_and_the_last_are_filled_up():
    height, width, channels = SPEC.image
    side = SPEC.patch
    full = np.zeros((SPEC.agents, SAMPLES, 8, 8, channels), np.uint8)
    full[:, :, :height, :width] = IMAGE
    expected = [
        full[:, :, r : r + side, c : c + side].reshape(SPEC.agents, SAMPLES, -1) for r in (0, 4) for c in (0, 4)
    ]
    np.testing.assert_array_equal(PATCHES, np.stack(expected, 2))
    assert PATCHES.shape[2:] == patch_shape(SPEC)


def test_the_first_layer_is_a_convolution_with_the_squares_stride():
    whole = dataclasses.replace(SPEC, image=(8, 8, 3))
    image = jnp.asarray(DRAW.integers(0, 256, (SAMPLES, 8, 8, 3)), jnp.uint8)

    @quick
    def both(key):
        see = sight(key, whole, SETTINGS)
        kernel = see.sprites.weight.T.reshape(4, 4, 3, SETTINGS.sprites)
        layout = ("NHWC", "HWIO", "NHWC")
        drawn = jax.lax.conv_general_dilated(image / 127.5 - 1.0, kernel, (4, 4), "VALID", dimension_numbers=layout)
        picture = jax.nn.relu(drawn).reshape(SAMPLES, -1) @ see.picture.weight.T
        return see(VECTOR[0], to_patches(image, 4)), picture + VECTOR[0] @ see.vector.weight.T

    found, expected = both(jax.random.key(0))
    assert np.abs(np.asarray(found)).max() > 0.1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("central", [True, False])
def test_a_central_critic_sees_everybody_and_an_independent_one_itself(central):
    values = critic(central)
    seen = quick(jax.jacrev(lambda v: jnp.sum(values(v, PATCHES)[..., 0], 1)))(
        VECTOR
    )  # (agent's value, agent's numbers)
    sees = np.abs(np.asarray(seen)).sum((2, 3)) > 0
    np.testing.assert_array_equal(sees, np.ones((3, 3), bool) if central else np.eye(3, dtype=bool))


def test_a_counterfactual_critic_is_told_what_the_others_do_and_not_what_the_agent_does():
    network = critic(True, True)
    values = quick(lambda actions: network(VECTOR, PATCHES, actions))
    before = np.asarray(values(ACTIONS))
    assert before.shape == (SPEC.agents, SAMPLES, SPEC.actions)
    for i in range(SPEC.agents):
        other = np.where(np.arange(SPEC.agents)[:, None] == i, (ACTIONS + 1) % SPEC.actions, ACTIONS)
        changed = np.abs(np.asarray(values(other)) - before).max((1, 2)) > 1e-4  # rounding of the sum over agents
        np.testing.assert_array_equal(changed, np.arange(SPEC.agents) != i)


def test_central_and_independent_critics_have_as_many_parameters():
    assert count_parameters(critic(True)) == count_parameters(critic(False))


def test_agents_begin_apart_and_almost_undecided():
    actors = quick(lambda key: init_actors(key, SPEC, SETTINGS))(jax.random.key(0))
    first, second, _ = np.asarray(actors.hidden.weight)
    assert np.abs(first - second).max() > 0.1
    starts = jnp.zeros((SAMPLES, 1), bool)
    look = quick(jax.vmap(lambda actor, v, p: actor(v, p, None, starts)[0]))
    assert np.abs(np.asarray(look(actors, VECTOR[:, :, None], PATCHES[:, :, None]))).max() < 0.1
