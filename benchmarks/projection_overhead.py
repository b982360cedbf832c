"""What the projection costs in training on real Melting Pot, playing included: MAPPO with and without it.

    python benchmarks/projection_overhead.py [--substrate bos_repeated] [--rounds 12]

Every variant trains at the paper's settings, one seed, and they take turns, eight updates each: one of them fits.
Seconds of an update (collecting and learning) are means over the eight, and medians of those over the rounds. Each
variant runs with the instrument off and with it on, as `hpml train` has it for every method; shares are of plain MAPPO
without the instrument, and of plain MAPPO with it, in the same round, and medians over the rounds: what slows the
machine for a while slows both. Workers build episodes while they rest, and get the time for it between two variants.
"""

import argparse
import statistics
import time

from hpml.experiment.build import plan
from hpml.experiment.config import TrainConfig, complete
from hpml.experiment.memory import keep_memory
from hpml.marl.settings import Settings

REFRESH = 8  # updates from one fit to the next
REST = 0.3  # seconds for the workers of the course before to build what they build when they rest
VARIANTS = {
    "plain": {},
    "graph, paper": {"projection": "graph", "projection_preset": "paper"},
    "kernel": {"projection": "kernel"},
    "neural, paper": {"projection": "neural", "projection_preset": "paper"},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--substrate", default="bos_repeated")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    keep_memory()  # as `hpml train` does
    base = {"env": options.substrate, "settings": Settings()}
    courses = {
        (name, measure): plan(complete(TrainConfig(**{**base, **more, "measure": measure})))()
        for measure in (False, True)
        for name, more in VARIANTS.items()
    }
    seconds: dict[tuple[str, bool], list[float]] = {which: [] for which in courses}
    try:
        for number in range(options.rounds + 2):
            for which, course in courses.items():
                time.sleep(REST)
                start = time.perf_counter()
                course.advance(REFRESH)
                if number > 1:  # compiled, a first fit done, a whole episode played
                    seconds[which].append((time.perf_counter() - start) / REFRESH)
    finally:
        for course in courses.values():
            course.close()
    took = {which: statistics.median(times) for which, times in seconds.items()}

    def above(which: tuple[str, bool], base: tuple[str, bool]) -> str:
        """How much longer than a base of the same round, as a median over the rounds."""
        shares = [a / b for a, b in zip(seconds[which], seconds[base], strict=True)]
        return f"{100 * (statistics.median(shares) - 1):+.1f} %"

    print(f"| {options.substrate} | update, ms | above plain | measured, ms | above plain | above plain, measured |")
    print("|---|---:|---:|---:|---:|---:|")
    for name in VARIANTS:
        alone, both, plain = (name, False), (name, True), ("plain", False)
        shares = (
            f"{above(alone, plain)} | {1e3 * took[both]:.1f} | {above(both, plain)} | {above(both, ('plain', True))}"
        )
        print(f"| {name} | {1e3 * took[alone]:.1f} | {shares} |")


if __name__ == "__main__":
    main()
