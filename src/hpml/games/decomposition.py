"""The exact split of a finite game into potential, harmonic and non-strategic parts (Candogan et al., 2011).

The game graph joins two profiles where one agent i acts differently, and carries the flow u_i(b) - u_i(a) from a to b.
Its gradient part is the flow of a potential phi on profiles; the rest is divergence-free. With Pi_i the map that takes
away the mean over agent i's own action and h_i the number of its actions, the agent's edges have the Laplacian
h_i Pi_i, so that

    sum_i h_i Pi_i phi = sum_i h_i Pi_i u_i,
    potential part Pi_i phi,   harmonic part Pi_i (u_i - phi),   non-strategic part u_i - Pi_i u_i.

The three are orthogonal under <u, v> = sum_i h_i <u_i, v_i>. All Pi_i are diagonal in the cosine transform on profiles
(its first function is the constant), which makes the pseudo-inverse of the Laplacian a division.
"""

from typing import Any

import equinox as eqx
import numpy as np
import scipy.fft
import scipy.sparse
from jaxtyping import Float, Int

from hpml.games.families.normal_form import NormalForm

Payoffs = Float[np.ndarray, "agents *actions"]


class Decomposition(eqx.Module):
    """Payoffs = potential + harmonic + nonstrategic; `function` is the potential phi on profiles, with mean zero."""

    potential: Payoffs
    harmonic: Payoffs
    nonstrategic: Payoffs
    function: Float[np.ndarray, " *actions"]

    @property
    def shares(self) -> dict[str, float]:
        """The share of each part in the energy <u, u>; all zero where the payoffs are."""
        parts = {"potential": self.potential, "harmonic": self.harmonic, "nonstrategic": self.nonstrategic}
        energy = {name: inner(part, part) for name, part in parts.items()}
        total = sum(energy.values()) or 1.0
        return {name: value / total for name, value in energy.items()}

    @property
    def circulation(self) -> float:
        """The harmonic share of what agents can influence: 0 for potential games, 1 for harmonic ones."""
        potential, harmonic = self.shares["potential"], self.shares["harmonic"]
        return harmonic / (potential + harmonic) if potential + harmonic > 0 else 0.0


def decompose(game: Any) -> Decomposition:
    """Split a normal-form game, or an array of its payoffs (agents, actions of agent 1, ...)."""
    u = _payoffs(game)
    strategic = np.stack([_without_own_mean(u_i, i) for i, u_i in enumerate(u)])
    phi = potential_function(u)
    potential = np.stack([_without_own_mean(phi, i) for i in range(len(u))])
    return Decomposition(potential, strategic - potential, u - strategic, phi)


def potential_function(payoffs: Payoffs) -> Float[np.ndarray, " *actions"]:
    """The phi whose flow is closest to the game's, with mean zero."""
    sizes = payoffs.shape[1:]
    divergence = sum(K * _without_own_mean(u_i, i) for i, (K, u_i) in enumerate(zip(sizes, payoffs, strict=True)))
    varies = np.indices(sizes) > 0
    eigenvalues = np.tensordot(np.asarray(sizes, np.float64), varies, axes=1)
    spectrum = scipy.fft.dctn(divergence, norm="ortho")
    # The only zero is the constant's; every other eigenvalue is a sum of numbers of actions.
    return scipy.fft.idctn(np.where(eigenvalues > 0, spectrum / np.maximum(eigenvalues, 1.0), 0.0), norm="ortho")


def inner(left: Payoffs, right: Payoffs) -> float:
    """<u, v> = sum_i h_i <u_i, v_i>: the inner product in which the three parts are orthogonal."""
    sizes = left.shape[1:]
    return float(sum(K * (u * v).sum() for K, u, v in zip(sizes, left, right, strict=True)))


class GameFlow(eqx.Module):
    """The game graph: profiles numbered in C order, `edges` (from, to) of one agent each, and the gain along each."""

    edges: Int[np.ndarray, "m 2"]
    agents: Int[np.ndarray, " m"]
    omega: Float[np.ndarray, " m"]

    @property
    def incidence(self) -> scipy.sparse.csr_array:
        """B with (B phi)_e = phi(to) - phi(from)."""
        m = len(self.edges)
        values = np.tile([-1.0, 1.0], m)
        profiles = int(self.edges.max()) + 1
        return scipy.sparse.csr_array((values, (np.repeat(np.arange(m), 2), self.edges.ravel())), (m, profiles))


def comparison_flow(game: Any) -> GameFlow:
    """Every pair of comparable profiles with what the agent that differs gains."""
    u = _payoffs(game)
    number = np.arange(u[0].size).reshape(u.shape[1:])
    edges, agents, omega = [], [], []
    for i, u_i in enumerate(u):
        rows, gains = np.moveaxis(number, i, -1), np.moveaxis(u_i, i, -1)
        a, b = np.triu_indices(u_i.shape[i], 1)
        pairs = np.stack([rows[..., a], rows[..., b]], -1).reshape(-1, 2)
        edges.append(pairs)
        agents.append(np.full(len(pairs), i))
        omega.append((gains[..., b] - gains[..., a]).ravel())
    return GameFlow(np.concatenate(edges), np.concatenate(agents), np.concatenate(omega))


def _payoffs(game: Any) -> np.ndarray:
    return np.asarray((game if isinstance(game, NormalForm) else NormalForm(game)).payoffs)


def _without_own_mean(values: np.ndarray, agent: int) -> np.ndarray:
    return values - values.mean(axis=agent, keepdims=True)
