"""Random normal-form games with a chosen share of potential, harmonic and non-strategic parts, or of common payoff.

Shares are shares of the energy of the payoffs, in the inner product of `hpml.games.decomposition` where parts are
concerned. The parts of Gaussian payoffs are scaled to the shares, so a draw has them exactly.
"""

from typing import Any

import numpy as np

from hpml.games.decomposition import decompose, inner
from hpml.games.families.normal_form import NormalForm
from hpml.games.game import Game


def random_game(
    actions: tuple[int, ...] = (3, 3),
    potential: float = 0.5,
    harmonic: float = 0.5,
    nonstrategic: float = 0.0,
    seed: int = 0,
    **options: Any,
) -> NormalForm:
    """A random game whose decomposition has these shares, which must sum to 1; payoffs have mean square 1."""
    shares = {"potential": potential, "harmonic": harmonic, "nonstrategic": nonstrategic}
    if min(shares.values()) < 0 or not abs(sum(shares.values()) - 1.0) < 1e-9:
        raise ValueError(f"The shares must be non-negative and sum to 1, got {shares}.")
    if len(actions) < 2 and harmonic > 0:
        raise ValueError("One agent alone has no harmonic part: use at least two agents, or harmonic=0.")
    parts = decompose(_gaussian(actions, seed))
    scaled = [np.sqrt(share) * _unit(getattr(parts, name)) for name, share in shares.items() if share > 0]
    return NormalForm(_standard(np.sum(scaled, axis=0)), **options)


def random_mix(actions: tuple[int, ...] = (4, 4), common: float = 0.5, seed: int = 0, **options: Any) -> NormalForm:
    """A random game between zero-sum (`common=0`) and identical interest (`common=1`): the share of common payoff."""
    if not 0.0 <= common <= 1.0:
        raise ValueError(f"common must be a share between 0 and 1, got {common}.")
    if len(actions) < 2 and common < 1:
        raise ValueError("One agent alone has no zero-sum part: use at least two agents, or common=1.")
    u = _gaussian(actions, seed)
    shared = np.broadcast_to(u.mean(0), u.shape)
    rest = u - shared
    parts = [(common, shared), (1.0 - common, rest)]
    return NormalForm(
        _standard(np.sum([np.sqrt(c) * part / np.linalg.norm(part) for c, part in parts if c > 0], axis=0)), **options
    )


def common_share(game: NormalForm) -> float:
    """The share of the payoffs' energy that all agents get alike: 0 where they sum to zero, 1 where they agree."""
    u = game.payoffs
    return float(len(u) * (u.mean(0) ** 2).sum() / max((u**2).sum(), np.finfo(np.float64).tiny))


def _gaussian(actions: tuple[int, ...], seed: int) -> np.ndarray:
    if not actions or min(actions) < 2:
        raise ValueError(f"Give each agent at least two actions, got {actions}.")
    return np.random.default_rng(seed).normal(size=(len(actions), *actions))


def _unit(part: np.ndarray) -> np.ndarray:
    return part / np.sqrt(inner(part, part))


def _standard(payoffs: np.ndarray) -> np.ndarray:
    return payoffs / np.sqrt((payoffs**2).mean())


def examples() -> dict[str, Game]:
    """Games of this family by name."""
    return {
        "half_harmonic": random_game((3, 3), potential=0.5, harmonic=0.5),
        "three_agents": random_game((2, 3, 2), potential=0.3, harmonic=0.5, nonstrategic=0.2, coordinates="dropped"),
        "half_common": random_mix((4, 4), common=0.5, coordinates="logits"),
    }
