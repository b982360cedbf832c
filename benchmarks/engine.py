"""Melting Pot: what the bare engine gives on one core, and what the pool brings back, builds included.

    python benchmarks/engine.py [substrate ...]

Random actions, RGB for every player. "bare": one engine asked for RGB and REWARD only. "with builds": whole episodes of
such engines, one after another, their building and freeing included. "as shipped": the same with the package's own
level, which is not reproducible. "in turn": eight engines, one step of each after the other: what
they touch does not stay in the processor's cache. "pool": worker processes without a policy, and as a share of what as
many cores give bare, builds included. All but the pool is in processor time. Megabytes are those of an engine at the
end of its episode and of another one that waits.
"""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from hpml.marl.collect.pool import Pool
from hpml.marl.engine.engine import Engine
from hpml.marl.engine.substrate import Substrate
from hpml.marl.envs import meltingpot

SUBSTRATES = ("bos_repeated", "collaborative_cooking_circuit", "commons_harvest_partnership", "clean_up")
SECONDS = 4.0


class Speed(NamedTuple):
    """Steps a second, the same with builds, and seconds to build and free an engine; processor time."""

    bare: float
    with_builds: float
    build: float


class Shipped(Substrate):
    """A substrate without our level."""

    def settings(self, seed: int) -> dict[str, str]:
        """As the package has them."""
        settings = super().settings(seed)
        root, level = settings.pop("hpmlRoot"), settings.pop("hpmlLevel")
        return settings | {"levelDirectory": root, "levelName": os.path.relpath(level, root)}


def look(engine: Engine, image: np.ndarray, rewards: np.ndarray) -> None:
    """Pictures and rewards, one call each, as the shipped level gives them too."""
    engine.pictures(image)
    for player in range(len(rewards)):
        rewards[player] = engine._lab.observation(f"{player + 1}.REWARD")


def shipped(env: meltingpot.MeltingPot) -> Shipped:
    return Shipped(env.substrate.name, env.substrate.roles, env.substrate.config)


def bare(env: meltingpot.MeltingPot, substrate: Substrate, clock: Callable[[], float] = time.process_time) -> Speed:
    agents, draw = env.spec.agents, np.random.default_rng(0)
    image, rewards = np.zeros((agents, *env.spec.image), np.uint8), np.zeros(agents, np.float32)
    building = stepping = 0.0
    steps = episodes = 0
    while building + stepping < SECONDS or episodes < 2:
        start = clock()
        engine = None  # Freeing the last one belongs to the building of the next.
        engine = Engine(substrate, episodes + 1)
        built = clock()
        done = False
        while not done:
            done = engine.advance(draw.integers(env.spec.actions, size=agents))
            look(engine, image, rewards)
            steps += 1
        building, stepping = building + built - start, stepping + clock() - built
        episodes += 1
    return Speed(steps / stepping, steps / (stepping + building), building / episodes)


def in_turn(env: meltingpot.MeltingPot, count: int = 8, rounds: int = 200) -> float:
    """Steps a second of several engines in one process, in processor time."""
    agents, draw = env.spec.agents, np.random.default_rng(0)
    image, rewards = np.zeros((agents, *env.spec.image), np.uint8), np.zeros(agents, np.float32)
    engines = [Engine(env.substrate, seed + 1) for seed in range(count)]
    start = 0.0
    for i in range(2 * rounds):
        if i == rounds:  # By then the engine's compiler has done its work.
            start = time.process_time()
        for engine in engines:
            engine.advance(draw.integers(env.spec.actions, size=agents))
            look(engine, image, rewards)
    return count * rounds / (time.process_time() - start)


def memory(env: meltingpot.MeltingPot, count: int = 4) -> float:
    """Megabytes of an engine that has played and one that waits, as Linux counts them."""

    def resident() -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))

    image, draw = np.zeros((env.spec.agents, *env.spec.image), np.uint8), np.random.default_rng(0)
    shared = Engine(env.substrate, 1)  # with what all of them use
    before = resident()
    engines = [Engine(env.substrate, seed + 2) for seed in range(count)]
    built = resident()
    for engine in engines:
        while not engine.advance(draw.integers(env.spec.actions, size=env.spec.agents)):
            engine.pictures(image)
    held = (resident() - before + built - before) / count
    del shared, engines
    return held


def pooled(name: str, workers: int, environments: int = 8, steps: int = 50) -> float:
    """Steps a second of the pool, over whole episodes."""
    with Pool("meltingpot", name, seeds=(0,), environments=environments, steps=steps, workers=workers) as pool:
        draw, rounds = np.random.default_rng(0), 0
        actions = draw.integers(pool.spec.actions, size=(steps, pool.slots, pool.spec.agents))
        start = time.perf_counter()
        # At least an episode and a half of each environment, so that builds count as often as they come.
        while time.perf_counter() - start < SECONDS or rounds * steps < 1.5 * min(pool.spec.horizon, 2000):
            pool.follow(actions)
            pool.carry()
            rounds += 1
        return rounds * steps * pool.slots / (time.perf_counter() - start)


def main() -> None:
    cores = os.cpu_count() or 1
    print(f"{cores} cores; environment steps a second (players in brackets)")
    for name in sys.argv[1:] or SUBSTRATES:
        env = meltingpot.make(name)
        held = memory(env)
        theirs, ours = bare(env, shipped(env)), bare(env, env.substrate)
        line = f"{name} ({env.spec.agents}), {held:.0f} MB with its spare"
        for label, speed in (("as shipped", theirs), ("our level", ours)):
            line += f"; {label}: bare {speed.bare:,.0f}, build {speed.build * 1e3:.0f} ms"
            line += f", with builds {speed.with_builds:,.0f}"
        line += f"; in turn {in_turn(env):,.0f}"
        for workers in sorted({1, cores}):
            played = pooled(name, workers)
            line += f"; pool of {workers}: {played:,.0f} ({played / (workers * ours.with_builds):.2f})"
        print(line, flush=True)


if __name__ == "__main__":
    main()
