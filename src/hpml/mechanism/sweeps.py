"""Sweeps over the rotation's strength rho, in 2-D and 3-D: how much circulates, and what runs do (`fig:part1`).

On discs and balls around the origin the exact share of circulation is known in closed form.
"""

from dataclasses import dataclass

import jax
import numpy as np
from jaxtyping import Float

from hpml.dynamics.rules.hpml import HPML
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import run
from hpml.games.families.linear import skew3d, swirl
from hpml.mechanism.config import OURS, PAPER, MechanismConfig
from hpml.mechanism.projected import project_game
from hpml.mechanism.traces import Trace, trace

FIELDS = {"2-D": swirl, "3-D": skew3d}
RATE, STEPS, WINDOW = 0.1, 60, 30  # long enough to see the swirl, short enough that its windows differ


@dataclass(frozen=True)
class Sweep:
    """One field family: `traces[name][k]` is the run at `rhos[k]`, `shares[name][k]` the share of circulation found."""

    name: str
    rhos: Float[np.ndarray, " k"]
    exact: Float[np.ndarray, " k"]
    shares: dict[str, Float[np.ndarray, " k"]]
    traces: dict[str, tuple[Trace, ...]]


def run_sweeps(config: MechanismConfig) -> tuple[Sweep, ...]:
    """Raw runs, and runs projected by the paper's projector and by ours."""
    return tuple(_sweep(config, name) for name in FIELDS)


def _sweep(config: MechanismConfig, name: str) -> Sweep:
    exact = []
    shares: dict[str, list[float]] = {PAPER: [], OURS: []}
    traces: dict[str, list[Trace]] = {"raw": [], PAPER: [], OURS: []}
    for rho in config.rhos:
        game = FIELDS[name](rho)
        starts = np.asarray(game.domain.sample(jax.random.key(config.seed + 1), config.starts), np.float64)
        exact.append(game.exact_nonpotentiality)
        traces["raw"].append(trace("raw", run(game, Simultaneous(RATE), starts, STEPS), WINDOW))
        for projector in (PAPER, OURS):
            p = project_game(game, config.projectors[projector], config.samples, config.seed)
            rule = HPML(step=RATE, direction=p.at, spent=config.samples)
            shares[projector].append(p.nonpotentiality)
            kept = trace(projector, run(game, rule, starts, STEPS), WINDOW, p.nonpotentiality)
            traces[projector].append(kept)
    return Sweep(
        name,
        np.asarray(config.rhos),
        np.asarray(exact),
        {key: np.asarray(values) for key, values in shares.items()},
        {key: tuple(values) for key, values in traces.items()},
    )
