"""The whole suite: every experiment of `hpml mechanism`, one after the other."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpml.mechanism.accuracy import Accuracy, run_accuracy
from hpml.mechanism.bridge import Bridge, run_bridge
from hpml.mechanism.certified import Certified, run_certified
from hpml.mechanism.comparison import GameComparison, run_comparison
from hpml.mechanism.config import MechanismConfig
from hpml.mechanism.cycles import CycleRuns, run_cycle, run_optimum
from hpml.mechanism.harm import Harm, run_harm
from hpml.mechanism.loops import NamedLoops, run_loops
from hpml.mechanism.portraits import PortraitRuns, run_logistic, run_swirl
from hpml.mechanism.sweeps import Sweep, run_sweeps
from hpml.mechanism.truth import Truth, run_truth


@dataclass(frozen=True)
class Mechanism:
    """What every experiment found, and how many seconds it took."""

    config: MechanismConfig
    cycle: CycleRuns
    optimum: CycleRuns
    loops: tuple[NamedLoops, ...]
    swirl: PortraitRuns
    logistic: PortraitRuns
    accuracy: Accuracy
    sweeps: tuple[Sweep, ...]
    comparison: tuple[GameComparison, ...]
    harm: tuple[Harm, ...]
    bridge: Bridge
    truth: Truth
    certified: tuple[Certified, ...]
    seconds: dict[str, float]


EXPERIMENTS: dict[str, tuple[str, Callable[[MechanismConfig], Any]]] = {
    "cycle": ("rock-paper-scissors", run_cycle),
    "optimum": ("a cycle with an optimum", run_optimum),
    "loops": ("naming the loops", run_loops),
    "swirl": ("the 2-D field", run_swirl),
    "logistic": ("the logistic game", run_logistic),
    "accuracy": ("the 3-D field, every projector", run_accuracy),
    "sweeps": ("sweeps over the rotation", run_sweeps),
    "comparison": ("every update rule", run_comparison),
    "harm": ("where dropping hurts", run_harm),
    "bridge": ("one shared reward", run_bridge),
    "truth": ("finite games, exactly", run_truth),
    "certified": ("certificates", run_certified),
}


def run_mechanism(config: MechanismConfig, tell: Callable[[str], None] = lambda title: None) -> Mechanism:
    """Run every experiment; `tell` hears the title of each before it starts."""
    results, seconds = {}, {}
    for name, (title, experiment) in EXPERIMENTS.items():
        tell(title)
        start = time.perf_counter()
        results[name] = experiment(config)
        seconds[name] = time.perf_counter() - start
    return Mechanism(config=config, seconds=seconds, **results)
