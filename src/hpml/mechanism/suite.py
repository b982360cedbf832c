"""The whole suite: every experiment of `hpml mechanism`, one after the other."""

import multiprocessing
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from threadpoolctl import threadpool_limits

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


LONGEST = ("comparison", "accuracy", "harm", "cycle", "sweeps")
ORDER = (*LONGEST, *(name for name in EXPERIMENTS if name not in LONGEST))
"""The longest first, so that the processes end together."""


def run_mechanism(config: MechanismConfig, tell: Callable[[str, int], None] = lambda title, done: None) -> Mechanism:
    """Run every experiment; `tell` hears the title of one that is under way, and how many are done.

    The experiments do not depend on each other, so that several processes give the same numbers as one.
    """
    results: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    if config.processes == 1:
        for name, (title, _) in EXPERIMENTS.items():
            tell(title, len(results))
            results[name], seconds[name] = _run(name, config)
        return Mechanism(config=config, seconds=seconds, **results)
    # Forking after JAX has started its threads hangs: workers are spawned.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(config.processes, mp_context=context, initializer=_one_thread) as pool:
        waiting = {pool.submit(_run, name, config): name for name in ORDER}
        tell(_titles(waiting.values()), 0)
        for done in as_completed(list(waiting)):
            name = waiting.pop(done)
            results[name], seconds[name] = done.result()
            tell(_titles(waiting.values()), len(results))
    return Mechanism(config=config, seconds={name: seconds[name] for name in EXPERIMENTS}, **results)


def _run(name: str, config: MechanismConfig) -> tuple[Any, float]:
    start = time.perf_counter()
    return EXPERIMENTS[name][1](config), time.perf_counter() - start


def _titles(names: Iterable[str]) -> str:
    return EXPERIMENTS[next(iter(names), "certified")][0]


def _one_thread() -> None:
    """The processes fill the cores: threads of linear algebra on top would wait for each other."""
    threadpool_limits(1)
