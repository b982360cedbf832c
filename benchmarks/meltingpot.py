"""Melting Pot: what the bare engine gives on one core, and what the pool brings back, rebuilds included.

Random actions, RGB for every player. "bare": one engine asked for RGB and REWARD only. "with builds": whole episodes of
such engines, one after another, their building and freeing included; the share of it is what a worker does off the
critical path. "pool": worker processes without a policy, stepped in two groups, and as a share of the cores' "with
builds". Run as `python benchmarks/meltingpot.py [substrate ...]`.
"""

import os
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from hpml.marl.collect.pool import Pool
from hpml.marl.engine.engine import Engine
from hpml.marl.envs import meltingpot

SUBSTRATES = ("bos_repeated", "collaborative_cooking_circuit", "commons_harvest_partnership", "clean_up")
SECONDS = 4.0


def bare(env: meltingpot.MeltingPot) -> tuple[float, float, float]:
    """Steps a second, steps a second with builds, and seconds to build an engine."""
    agents, draw = env.spec.agents, np.random.default_rng(0)
    image, rewards = np.zeros((agents, *env.spec.image), np.uint8), np.zeros(agents, np.float32)
    building = stepping = 0.0
    steps = episodes = 0
    while building + stepping < SECONDS or episodes < 2:
        start = time.perf_counter()
        engine = None  # Freeing the last one belongs to the building of the next.
        engine = Engine(env.substrate, episodes + 1)
        built = time.perf_counter()
        done = False
        while not done:
            done = engine.advance(draw.integers(env.spec.actions, size=agents))
            engine.pictures(image)
            engine.rewards(rewards)
            steps += 1
        building, stepping = building + built - start, stepping + time.perf_counter() - built
        episodes += 1
    return steps / stepping, steps / (stepping + building), building / episodes


def pooled(name: str, workers: int, environments: int = 8, steps: int = 50) -> float:
    """Steps a second of the pool, over whole episodes."""
    with Pool("meltingpot", name, seeds=(0,), environments=environments, steps=steps, workers=workers) as pool:
        draw, rounds = np.random.default_rng(0), 0
        actions = [draw.integers(pool.spec.actions, size=(steps, len(each), pool.spec.agents)) for each in pool.groups]
        start = time.perf_counter()
        # At least an episode and a half of each environment, so that builds count as often as they come.
        while time.perf_counter() - start < SECONDS or rounds * steps < 1.5 * min(pool.spec.horizon, 2000):
            for t in range(steps):
                for group, acts in enumerate(actions):
                    if t:
                        pool.wait(group)
                    pool.send(group, t, acts[t])
            for group in range(len(actions)):
                pool.wait(group)
            pool.carry()
            rounds += 1
        return rounds * steps * pool.slots / (time.perf_counter() - start)


def main() -> None:
    cores = os.cpu_count() or 1
    print(f"{cores} cores; environment steps a second (players in brackets)")
    for name in sys.argv[1:] or SUBSTRATES:
        env = meltingpot.make(name)
        alone, rebuilt, seconds = bare(env)
        line = (
            f"{name} ({env.spec.agents}): bare {alone:,.0f}, with builds {rebuilt:,.0f} ({seconds * 1e3:.0f} ms each)"
        )
        for workers in sorted({1, cores}):
            speed = pooled(name, workers)
            line += f"; pool of {workers} {speed:,.0f} ({speed / (workers * rebuilt):.2f} of the cores' bare engine)"
        print(line, flush=True)


if __name__ == "__main__":
    main()
