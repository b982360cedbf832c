"""Cyclic matrix games: rock-paper-scissors, cycles of K actions, and a cycle with an optimum away from the middle.

Action a beats the actions just before it on a circle, so best replies go round. `PulledCycle` adds a concave potential
to such a game: each agent also likes to be near a target mix, so that standing still is not enough.
"""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hpml.games.families.normal_form import NormalForm, bimatrix
from hpml.games.game import Game
from hpml.geometry.arrays import Array, as_finite
from hpml.geometry.domain import Domain, project_simplex

NAMES = {3: ("rock", "paper", "scissors"), 5: ("rock", "spock", "paper", "lizard", "scissors")}
MOST_STEPS = 50_000  # of the equilibrium's iteration; enough for a turn of 1,000 times the pull


def rock_paper_scissors(win: float = 1.0, lose: float = 1.0, **options: Any) -> NormalForm:
    """Paper beats rock, scissors beat paper, rock beats scissors; winning gives `win`, losing costs `lose`.

    With `win == lose` the game is zero-sum and orbits neither grow nor shrink in continuous time; otherwise it is not
    zero-sum and the even mix stays the only equilibrium.
    """
    if not (win > 0 and lose > 0):
        raise ValueError(f"win and lose must be positive, got {win} and {lose}.")
    first = win * (_wins(3, 1) > 0) - lose * (_wins(3, 1) < 0)
    return bimatrix(first, first.T, labels=[NAMES[3]] * 2, equilibrium=[np.full(3, 1 / 3)] * 2, **options)


def weighted_rock_paper_scissors(stakes: Sequence[float] = (1.0, 2.0, 3.0), **options: Any) -> NormalForm:
    """Rock-paper-scissors where each meeting has its own stake: paper-rock, scissors-paper, rock-scissors.

    The only equilibrium plays each action in proportion to the stake of the meeting that it takes no part in.
    """
    s = as_finite(stakes, "stakes")
    if s.shape != (3,) or not (s > 0).all():
        raise ValueError(f"stakes must be three positive numbers, got {stakes}.")
    A = np.array([[0.0, -s[0], s[2]], [s[0], 0.0, -s[1]], [-s[2], s[1], 0.0]])
    mix = np.array([s[1], s[2], s[0]]) / s.sum()
    return bimatrix(A, labels=[NAMES[3]] * 2, equilibrium=[mix] * 2, **options)


def cyclic(actions: int = 5, reach: int | None = None, **options: Any) -> NormalForm:
    """A cycle of K actions: each beats the `reach` actions before it and loses to as many after it; the others tie.

    By default all other actions but, for even K, the opposite one. The even mix is an equilibrium; for even K it is not
    the only one.
    """
    most = (actions - 1) // 2
    if actions < 3:
        raise ValueError(f"A cycle needs at least three actions, got {actions}.")
    if reach is not None and not 1 <= reach <= most:
        raise ValueError(f"reach must be between 1 and {most} for {actions} actions, got {reach}.")
    names = NAMES.get(actions, tuple(str(a + 1) for a in range(actions)))
    mix = np.full(actions, 1 / actions)
    return bimatrix(_wins(actions, reach or most), labels=[names] * 2, equilibrium=[mix] * 2, **options)


def _wins(actions: int, reach: int) -> Float[np.ndarray, "K K"]:
    ahead = (np.arange(actions)[:, None] - np.arange(actions)) % actions
    return 1.0 * ((ahead > 0) & (ahead <= reach)) - 1.0 * (ahead >= actions - reach)


class PulledCycle(Game):
    """Agent i gets turn u_i(p) - pull |p_i - target_i|^2 / 2 with u the payoffs of a cyclic game.

    The second term is a potential with its optimum at `target`. The game has one equilibrium, since the zero-sum first
    term turns and the second one is strongly concave; it is the target where the target is the cycle's equilibrium.
    """

    cycle: NormalForm
    targets: tuple[Float[Array, " _"], ...]
    pull: float
    turn: float
    rest: Float[Array, " d"]

    def __init__(self, cycle: NormalForm, target: Sequence[Any], pull: float = 1.0, turn: float = 1.0):
        if not (0 < pull < np.inf and 0 <= turn < np.inf):
            raise ValueError(f"pull must be positive and turn not negative, got {pull} and {turn}.")
        if not np.allclose(cycle.payoffs.sum(0), 0.0, atol=1e-12):
            raise ValueError("The cycle must be zero-sum: with other payoffs the pull need not give one equilibrium.")
        cycle.point(target)  # checks that the targets are mixed strategies
        self.cycle, self.pull, self.turn = cycle, float(pull), float(turn)
        self.targets = tuple(as_finite(t, "target") for t in target)
        self.rest = cycle.point(self._solve())

    @property
    def domain(self) -> Domain:
        """See `Game.domain`."""
        return self.cycle.domain

    @property
    def blocks(self):
        """See `Game.blocks`."""
        return self.cycle.blocks

    @property
    def optimum(self) -> Float[np.ndarray, " d"]:
        """Where the potential term is largest: the target."""
        return np.asarray(self.cycle.point(self.targets))

    @property
    def equilibrium(self):
        """See `Game.equilibrium`."""
        return self.rest

    @property
    def labels(self):
        """See `Game.labels`."""
        return self.cycle.labels

    def strategies(self, point):
        """See `Game.strategies`."""
        return self.cycle.strategies(point)

    def field(self, point):
        """See `Game.field`."""
        triples = zip(self.strategies(point), self.cycle.action_values(point), self.targets, strict=True)
        slopes = [(self.turn * q - self.pull * (p - t))[None] for p, q, t in triples]
        return self.cycle.policies.gradient(point, slopes)

    def returns(self, point):
        """See `Game.returns`."""
        return self._payoffs(self.strategies(point), self.cycle.action_values(point))

    def regrets(self, point):
        """See `Game.regrets`: the best reply to action values q is the mix closest to target + turn q / pull."""
        values = self.cycle.action_values(point)
        replies = [project_simplex(t + self.turn / self.pull * q) for t, q in zip(self.targets, values, strict=True)]
        return jnp.maximum(self._payoffs(replies, values) - self.returns(point), 0.0)

    def _payoffs(self, strategies, values):
        triples = zip(strategies, values, self.targets, strict=True)
        return jnp.stack([self.turn * (p @ q) - self.pull / 2 * ((p - t) ** 2).sum() for p, q, t in triples])

    def _solve(self) -> list[np.ndarray]:
        """The equilibrium, by projected extragradient, which contracts: the field is strongly monotone."""
        A = self.turn * self.cycle.payoffs[0]
        s, t = self.targets
        rate = 0.5 / (self.pull + np.linalg.norm(A, 2))

        def step(p, q, at_p, at_q):
            return (
                _closest(p + rate * (A @ at_q - self.pull * (at_p - s))),
                _closest(q - rate * (A.T @ at_p + self.pull * (at_q - t))),
            )

        p, q = s, t
        for _ in range(MOST_STEPS):
            new = step(p, q, *step(p, q, p, q))
            change = max(np.abs(new[0] - p).max(), np.abs(new[1] - q).max())
            p, q = new
            if change < 1e-15:
                return [p, q]
        raise ValueError(f"The pull {self.pull} is too weak beside the turn {self.turn}: make their ratio larger.")


def _closest(p: np.ndarray) -> np.ndarray:
    """The closest mixed strategy, by sorting; the domain's own projection costs a call of JAX in every step."""
    ordered = -np.sort(-p)
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1, len(p) + 1)
    return np.maximum(p - excess[(ordered > excess).sum() - 1], 0.0)


def pulled_cycle(
    target: Sequence[float] | None = None, pull: float = 1.0, turn: float = 1.0, **options: Any
) -> PulledCycle:
    """Rock-paper-scissors with a pull of both agents to one target mix (the even one where none is given).

    The eigenvalues of the field are -pull +- i sqrt(3) turn, so straight steps longer than 2 pull / (pull^2 + 3 turn^2)
    leave the equilibrium and cycle. With the even target, that equilibrium is also the optimum of the field's potential
    part under the uniform law, but the only one for a strong enough pull: on simplices the cycle has a gradient part of
    its own, which wins at pull = turn / 2 and loses at pull = turn.
    """
    mix = np.full(3, 1 / 3) if target is None else target
    return PulledCycle(rock_paper_scissors(**options), [mix, mix], pull, turn)


def examples() -> dict[str, Game]:
    """Games of this family by name."""
    return {
        "rock_paper_scissors": rock_paper_scissors(),
        "bad_rock_paper_scissors": rock_paper_scissors(win=1.0, lose=2.0, coordinates="dropped"),
        "weighted_rock_paper_scissors": weighted_rock_paper_scissors(),
        "cyclic4": cyclic(4, coordinates="logits"),
        "cyclic5": cyclic(5),
        "pulled_cycle": pulled_cycle(),
        "pulled_cycle_aside": pulled_cycle((0.6, 0.3, 0.1)),
    }
