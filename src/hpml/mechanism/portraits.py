"""Portraits of 2-D fields: the field, its potential part and its residual, with runs drawn over them (`fig:part1`)."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from hpml.dynamics.rules.hpml import HPML
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import run
from hpml.games.families.linear import swirl
from hpml.games.families.logistic import logistic, show
from hpml.games.game import Game, evaluate
from hpml.mechanism.config import OURS, PAPER, MechanismConfig
from hpml.mechanism.projected import project_game
from hpml.mechanism.traces import Trace, trace
from hpml.projection.project import Projection

ARROWS, CELLS = 9, 61  # along a side: of the lattice of arrows, and of the potential's grid
WINDOW = 50


@dataclass(frozen=True)
class Split:
    """Arrows at `points`, and the potential on a grid between `low` and `high` (NaN outside the domain)."""

    name: str
    points: Float[np.ndarray, "n 2"]
    field: Float[np.ndarray, "n 2"]
    direction: Float[np.ndarray, "n 2"]
    axis: Float[np.ndarray, " g"]
    potential: Float[np.ndarray, "g g"]

    @property
    def residual(self) -> Float[np.ndarray, "n 2"]:
        """What is left of F."""
        return self.field - self.direction


@dataclass(frozen=True)
class PortraitRuns:
    """How each projector splits one field, and the runs raw and projected, in the coordinates that are drawn."""

    splits: tuple[Split, ...]
    traces: tuple[Trace, ...]
    paths: tuple[Float[np.ndarray, "times s 2"], ...]


@dataclass(frozen=True)
class View:
    """How a game's coordinates are drawn: `shown` between `low` and `high`, `into` its coordinates, `out` back again.

    `push` carries a vector in the game's coordinates to the drawing, `inside` says which drawn points to keep.
    """

    low: float
    high: float
    into: Callable[[np.ndarray], np.ndarray]
    out: Callable[[np.ndarray], np.ndarray]
    push: Callable[[np.ndarray, np.ndarray], np.ndarray]
    inside: Callable[[np.ndarray], np.ndarray]


DISC = View(
    -1.0,
    1.0,
    into=lambda z: z,
    out=lambda z: z,
    push=lambda z, v: v,
    inside=lambda z: np.linalg.norm(z, axis=1) <= 0.97,  # contours at the rim would be cut into dashes
)
SQUARE = View(
    0.02,
    0.98,
    into=lambda p: np.log(p) - np.log1p(-p),
    out=lambda z: show(z.reshape(-1, 2)).reshape(z.shape),
    push=lambda p, v: p * (1 - p) * v,
    inside=lambda p: np.ones(len(p), bool),
)


def run_swirl(config: MechanismConfig) -> PortraitRuns:
    """-z + rho J z on the disc: the exact potential part is -z."""
    return _portrait(config, swirl(config.rho), DISC, rate=0.05)


def run_logistic(config: MechanismConfig) -> PortraitRuns:
    """The logistic 2x2 game on its logits, drawn on the probabilities (p, q)."""
    return _portrait(config, logistic(turn=1.0, coordination=0.0), SQUARE, rate=0.4)


def _portrait(config: MechanismConfig, game: Game, view: View, rate: float) -> PortraitRuns:
    starts = np.asarray(game.domain.sample(jax.random.key(config.seed + 1), config.starts), np.float64)
    steps = config.steps // 2
    splits, traces = [], [trace("raw", run(game, Simultaneous(rate), starts, steps), WINDOW)]
    for name in (PAPER, OURS):
        p = project_game(game, config.projectors[name], config.samples, config.seed)
        splits.append(_split(name, game, p, view))
        rule = HPML(step=rate, direction=p.at, spent=config.samples)
        traces.append(trace(f"dropped, {name}", run(game, rule, starts, steps), WINDOW, p.nonpotentiality))
    return PortraitRuns(tuple(splits), tuple(traces), tuple(view.out(t.points) for t in traces))


def _split(name: str, game: Game, projection: Projection, view: View) -> Split:
    margin = (view.high - view.low) * 0.06
    shown = _grid(np.linspace(view.low + margin, view.high - margin, ARROWS))
    shown = shown[view.inside(shown)]
    axis = np.linspace(view.low, view.high, CELLS)
    grid = _grid(axis)
    kept = view.inside(grid)
    potential = np.full(len(grid), np.nan)
    potential[kept] = projection.potential_at(view.into(grid[kept]))
    points = view.into(shown)
    return Split(
        name,
        shown,
        view.push(shown, evaluate(game, points)),
        view.push(shown, np.asarray(projection.at(points))),
        axis,
        potential.reshape(CELLS, CELLS),
    )


def _grid(axis: np.ndarray) -> np.ndarray:
    return np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
