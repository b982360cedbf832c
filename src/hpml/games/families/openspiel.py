"""Games from OpenSpiel as normal forms: matrix games, and small sequential games by their plans (extra `openspiel`).

A plan says what an agent does at each of its information sets that its own earlier choices leave possible (the reduced
normal form). With s_i the sequences of an agent's own choices, the payoffs are sums over the ends of the game,

    u_j[plans] = sum over ends of P(chance) u_j(end) prod_i [plan of i plays s_i(end)].
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from hpml.games.families.normal_form import NormalForm
from hpml.games.game import Game
from hpml.geometry.arrays import Array

MOST_PROFILES = 4_000_000  # entries of one agent's payoffs: 32 MB
MOST_HISTORIES = 200_000  # nodes of the game's tree: some seconds

Path = tuple[tuple[str, int], ...]  # an agent's own (information set, action) pairs, in order
MISSING = 'OpenSpiel is not installed: install it with pip install "hpml[openspiel]".'


class GameTree:
    """What a game's ends pay, and what each agent can know and do on the way; `game` is OpenSpiel's, or its name."""

    def __init__(self, game: Any):
        self.game = _load(game)
        self.name = game if isinstance(game, str) else self.game.get_type().short_name
        self.agents = self.game.num_players()
        # For each agent: the actions at an information set, and the sets that can follow a sequence of own choices.
        self.actions: list[dict[str, dict[int, str]]] = [{} for _ in range(self.agents)]
        self.follow: list[dict[Path, list[str]]] = [{} for _ in range(self.agents)]
        self.before: list[dict[str, Path]] = [{} for _ in range(self.agents)]
        self.ends: dict[tuple[Path, ...], np.ndarray] = {}
        self._walk()

    def _walk(self) -> None:
        empty: Path = ()
        stack = [(self.game.new_initial_state(), 1.0, (empty,) * self.agents)]
        for visited in itertools.count(1):
            if not stack:
                return
            if visited > MOST_HISTORIES:
                raise ValueError(f"{self.name} has more than {MOST_HISTORIES} histories: take a smaller game.")
            state, chance, paths = stack.pop()
            if state.is_terminal():
                worth = chance * np.asarray(state.returns())
                self.ends[paths] = self.ends.get(paths, 0.0) + worth
            elif state.is_chance_node():
                stack += [(state.child(a), chance * p, paths) for a, p in state.chance_outcomes() if p > 0]
            else:
                i = state.current_player()
                known = state.information_state_string(i)
                self._meet(i, known, paths[i], state)
                for a in state.legal_actions():
                    own = (*paths[i], (known, a))
                    stack.append((state.child(a), chance, (*paths[:i], own, *paths[i + 1 :])))

    def _meet(self, agent: int, known: str, path: Path, state: Any) -> None:
        if known not in self.before[agent]:
            self.before[agent][known] = path
            self.follow[agent].setdefault(path, []).append(known)
            self.actions[agent][known] = {a: state.action_to_string(agent, a) for a in state.legal_actions()}
        elif self.before[agent][known] != path:
            raise ValueError(f"{self.name} has agents that forget what they did, so plans do not describe it.")

    def count(self, agent: int, path: Path = ()) -> int:
        """How many plans follow a sequence of own choices, without listing them."""
        total = 1
        for known in self.follow[agent].get(path, []):
            total *= sum(self.count(agent, (*path, (known, a))) for a in self.actions[agent][known])
        return total

    def plans(self, agent: int, path: Path = ()) -> list[Path]:
        """Every plan after a sequence of own choices, as the (information set, action) pairs that it plays."""
        options = []
        for known in self.follow[agent].get(path, []):
            moves = [
                ((known, a), *rest)
                for a in self.actions[agent][known]
                for rest in self.plans(agent, (*path, (known, a)))
            ]
            options.append(moves)
        return [tuple(itertools.chain(*choice)) for choice in itertools.product(*options)]

    def label(self, agent: int, plan: Path) -> str:
        """A plan in words; the information sets are named where there are several."""
        moves = [(known, self.actions[agent][known][a]) for known, a in plan]
        if len(self.actions[agent]) == 1:
            return moves[0][1]
        return ", ".join(f"{' '.join(known.split()) or 'start'}: {name}" for known, name in moves)

    def behaviour(self, agent: int, strategy: Float[Array, " plans"]) -> dict[str, dict[int, float]]:
        """A mixture of plans as probabilities at each information set; even where the mixture never comes there."""
        weights: dict[tuple[str, int], float] = {}
        for plan, p in zip(self.plans(agent), np.asarray(strategy), strict=True):
            for move in plan:
                weights[move] = weights.get(move, 0.0) + float(p)
        table = {}
        for known, actions in self.actions[agent].items():
            total = sum(weights[known, a] for a in actions)
            table[known] = {a: weights[known, a] / total if total > 0 else 1.0 / len(actions) for a in actions}
        return table


def load(game: Any, coordinates: str = "orthonormal", equilibrium: Sequence[Any] | None = None) -> NormalForm:
    """A game of OpenSpiel as a normal form: its name, such as "matrix_rps" or "kuhn_poker", or the game itself."""
    tree = GameTree(game)
    counts = [tree.count(i) for i in range(tree.agents)]
    if math.prod(counts) > MOST_PROFILES:
        sizes = " x ".join(str(c) if c < 1e6 else f"1e{int(c.bit_length() * math.log10(2))}" for c in counts)
        raise ValueError(
            f"{tree.name} has about {sizes} plans, more than {MOST_PROFILES} profiles: take a smaller game, or fewer "
            "cards or rounds in its parameters."
        )
    if min(counts) < 2:
        raise ValueError(f"{tree.name} leaves an agent no choice: plans {counts}.")
    plans = [tree.plans(i) for i in range(tree.agents)]
    labels = [[tree.label(i, plan) for plan in plans[i]] for i in range(tree.agents)]
    return NormalForm(payoffs(tree, plans), labels, coordinates, equilibrium)


def payoffs(tree: GameTree, plans: Sequence[Sequence[Path]]) -> Float[np.ndarray, " agents *plans"]:
    """What every profile of plans pays each agent."""
    sequences = [sorted({paths[i] for paths in tree.ends}) for i in range(tree.agents)]
    number = [{path: k for k, path in enumerate(part)} for part in sequences]
    u = np.zeros((*map(len, sequences), tree.agents))
    for paths, worth in tree.ends.items():
        u[tuple(number[i][path] for i, path in enumerate(paths))] = worth
    for i in range(tree.agents):
        played = [set(plan) for plan in plans[i]]
        plays = np.array([[moves.issuperset(path) for path in sequences[i]] for moves in played], np.float64)
        u = np.moveaxis(np.tensordot(plays, u, axes=(1, i)), 0, i)
    return np.moveaxis(u, -1, 0)


def _load(game: Any) -> Any:
    """The game, with simultaneous moves one after the other and unseen."""
    try:
        import pyspiel
    except ImportError as error:
        raise ValueError(MISSING) from error
    if isinstance(game, str):
        short = game.split("(")[0]
        if short not in pyspiel.registered_names():
            raise ValueError(f"OpenSpiel has no game {short!r}: pyspiel.registered_names() lists them.")
        try:
            game = pyspiel.load_game(game)
        except (pyspiel.SpielError, ValueError) as error:
            raise ValueError(f"OpenSpiel cannot load {game!r}: {str(error).splitlines()[0]}") from error
    kind = game.get_type()
    if kind.dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        raise ValueError(f"{kind.short_name} has no finite number of agents, so it has no normal form.")
    if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC:
        raise ValueError(f"{kind.short_name} samples its chance moves, so its payoffs cannot be listed.")
    if not kind.provides_information_state_string:
        raise ValueError(f"{kind.short_name} does not say what agents know, so its plans cannot be listed.")
    one_shot = kind.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS
    return pyspiel.convert_to_turn_based(game) if one_shot else game


def examples() -> dict[str, Game]:
    """Games of this family by name; none where OpenSpiel is not installed."""
    try:
        import pyspiel  # noqa: F401
    except ImportError:
        return {}
    return {
        "matrix_shapleys_game": load("matrix_shapleys_game", equilibrium=[np.full(3, 1 / 3)] * 2),
        "kuhn_poker": load("kuhn_poker", coordinates="logits"),
    }
