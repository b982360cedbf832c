"""What the projection costs in training on real Melting Pot, playing included: MAPPO with and without it.

    python benchmarks/projection_overhead.py [--substrate bos_repeated] [--rounds 12]

Every variant trains at the paper's settings, one seed, and they take turns, eight updates each: one of them fits.
Seconds of an update (collecting and learning) are means over the eight, and medians of those over the rounds; the
instrument is off, and then on for plain MAPPO.
"""

import argparse
import statistics
import time

from hpml.experiment.build import plan
from hpml.experiment.config import TrainConfig, complete
from hpml.marl.settings import Settings

REFRESH = 8  # updates from one fit to the next
VARIANTS = {
    "plain": {},
    "graph, paper": {"projection": "graph", "projection_preset": "paper"},
    "kernel": {"projection": "kernel"},
    "neural, paper": {"projection": "neural", "projection_preset": "paper"},
    "plain, measured": {"measure": True},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--substrate", default="bos_repeated")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    base = {"env": options.substrate, "settings": Settings(), "measure": False}
    courses = {name: plan(complete(TrainConfig(**{**base, **more})))() for name, more in VARIANTS.items()}
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    try:
        for number in range(options.rounds + 2):
            for name, course in courses.items():
                start = time.perf_counter()
                course.advance(REFRESH)
                if number > 1:  # compiled, a first fit done, a whole episode played
                    seconds[name].append((time.perf_counter() - start) / REFRESH)
    finally:
        for course in courses.values():
            course.close()
    plain = statistics.median(seconds["plain"])
    print(f"| {options.substrate} | update, ms | above plain |\n|---|---:|---:|")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"| {name} | {1e3 * median:.0f} | {100 * (median / plain - 1):+.1f} % |")


if __name__ == "__main__":
    main()
