"""The exact split of finite games: orthogonal, complete, unique, and right where the answer is known."""

import numpy as np
import pytest
import scipy.sparse.linalg
from hypothesis import given
from hypothesis import strategies as st

from hpml.games.decomposition import comparison_flow, decompose, inner
from hpml.games.families.cyclic import cyclic, rock_paper_scissors
from hpml.games.families.normal_form import bach_or_stravinsky, bimatrix, matching_pennies, prisoners_dilemma
from hpml.games.families.random_normal_form import common_share, random_game, random_mix

sizes = st.lists(st.integers(2, 4), min_size=1, max_size=4).map(tuple)
seeds = st.integers(0, 10**6)


def draw(actions, seed):
    return np.random.default_rng(seed).normal(size=(len(actions), *actions))


def parts(split):
    return split.potential, split.harmonic, split.nonstrategic


@given(sizes, seeds)
def test_parts_add_up_and_are_orthogonal(actions, seed):
    u = draw(actions, seed)
    split = decompose(u)
    np.testing.assert_allclose(sum(parts(split)), u, atol=1e-12)
    for a, b in [(0, 1), (0, 2), (1, 2)]:
        assert abs(inner(parts(split)[a], parts(split)[b])) < 1e-10 * inner(u, u)
    assert sum(split.shares.values()) == pytest.approx(1.0)


@given(sizes, seeds)
def test_each_part_is_its_own_part(actions, seed):
    for k, part in enumerate(parts(decompose(draw(actions, seed)))):
        again = parts(decompose(part))
        for j in range(3):
            np.testing.assert_allclose(again[j], part if j == k else 0.0, atol=1e-12)


@given(sizes, seeds)
def test_the_potential_is_the_least_squares_one_of_the_game_graph(actions, seed):
    u = draw(actions, seed)
    flow, split = comparison_flow(u), decompose(u)
    B = flow.incidence
    phi = split.function.ravel()
    assert abs(phi.mean()) < 1e-12
    np.testing.assert_allclose(B.T @ (B @ phi - flow.omega), 0.0, atol=1e-10)
    explicit = scipy.sparse.linalg.lsqr(B, flow.omega, atol=1e-14, btol=1e-14)[0]
    np.testing.assert_allclose(phi, explicit - explicit.mean(), atol=1e-8)
    # The flow of the harmonic part is what remains, and leaves no profile more than it enters.
    rest = comparison_flow(split.harmonic).omega
    np.testing.assert_allclose(rest, flow.omega - B @ phi, atol=1e-10)
    np.testing.assert_allclose(comparison_flow(split.nonstrategic).omega, 0.0, atol=1e-12)


@given(sizes, seeds)
def test_what_an_agent_cannot_influence_changes_nothing_else(actions, seed):
    u = draw(actions, seed)
    shift = np.random.default_rng(seed + 1).normal(size=u.shape)
    shift = np.stack([np.broadcast_to(s.mean(i, keepdims=True), s.shape) for i, s in enumerate(shift)])
    before, after = decompose(u), decompose(u + shift)
    np.testing.assert_allclose(after.potential, before.potential, atol=1e-12)
    np.testing.assert_allclose(after.harmonic, before.harmonic, atol=1e-12)
    np.testing.assert_allclose(after.nonstrategic, before.nonstrategic + shift, atol=1e-12)


@pytest.mark.parametrize("game", [rock_paper_scissors(), matching_pennies(), cyclic(4), cyclic(5)])
def test_cyclic_games_are_harmonic(game):
    assert decompose(game).shares["harmonic"] == pytest.approx(1.0)
    assert decompose(game).circulation == pytest.approx(1.0)


def test_the_uniform_mix_is_an_equilibrium_of_every_harmonic_game():
    game = random_game((2, 3, 4), potential=0.0, harmonic=1.0, seed=3)
    uniform = game.point([np.full(K, 1 / K) for K in game.sizes])
    np.testing.assert_allclose(game.field(uniform), 0.0, atol=1e-6)


def test_potential_games_have_no_harmonic_part():
    assert decompose(prisoners_dilemma()).circulation == pytest.approx(0.0, abs=1e-12)
    assert decompose(bach_or_stravinsky()).circulation == pytest.approx(0.0, abs=1e-12)
    phi = np.random.default_rng(0).normal(size=(3, 4, 2))
    split = decompose(np.stack([phi] * 3))
    assert split.circulation == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(split.function, phi - phi.mean(), atol=1e-12)


def test_two_agents_with_equal_actions_split_into_common_and_zero_sum():
    """Without non-strategic parts, the potential part is (A + B) / 2 and the harmonic part (A - B) / 2, each a sum."""
    A, B = decompose(draw((4, 4), 0)).potential + decompose(draw((4, 4), 0)).harmonic
    centred = lambda M: M - M.mean(0) - M.mean(1, keepdims=True) + M.mean()  # noqa: E731
    split = decompose(bimatrix(A, B))
    np.testing.assert_allclose(centred(split.potential[0]), centred((A + B) / 2), atol=1e-12)
    np.testing.assert_allclose(centred(split.harmonic[0]), centred((A - B) / 2), atol=1e-12)
    np.testing.assert_allclose(split.harmonic[0], -split.harmonic[1], atol=1e-12)


def test_thousands_of_profiles():
    split = decompose(draw((6, 6, 6, 6, 6), 0))
    assert sum(split.shares.values()) == pytest.approx(1.0)
    phi = split.function
    np.testing.assert_allclose(split.potential[2], phi - phi.mean(2, keepdims=True), atol=1e-12)


@given(sizes.filter(lambda s: len(s) > 1), seeds, st.tuples(*[st.floats(0.01, 1.0)] * 3))
def test_random_games_have_the_shares_asked_for(actions, seed, weights):
    names = ("potential", "harmonic", "nonstrategic")
    shares = dict(zip(names, np.asarray(weights) / sum(weights), strict=True))
    game = random_game(actions, **shares, seed=seed)
    assert decompose(game).shares == pytest.approx(shares)
    assert (game.payoffs**2).mean() == pytest.approx(1.0)


@pytest.mark.parametrize("common", [0.0, 0.3, 1.0])
def test_random_mixes_have_the_common_share_asked_for(common):
    game = random_mix((3, 4, 2), common=common, seed=1)
    assert common_share(game) == pytest.approx(common, abs=1e-12)
    spread = np.abs(game.payoffs - game.payoffs.mean(0)).max()
    assert (spread < 1e-12) == (common == 1.0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: decompose(np.zeros((2, 3))), "payoffs must have shape"),
        (lambda: decompose(np.full((2, 2, 2), np.nan)), "not finite"),
        (lambda: random_game(potential=0.9, harmonic=0.5), "sum to 1"),
        (lambda: random_game(potential=-0.5, harmonic=1.5), "non-negative"),
        (lambda: random_game((3,), potential=0.5, harmonic=0.5), "One agent alone"),
        (lambda: random_game((3, 1)), "at least two actions"),
        (lambda: random_mix(common=1.5), "between 0 and 1"),
    ],
)
def test_bad_input(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()
