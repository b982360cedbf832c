"""Training throughput on real Melting Pot: MAPPO with the paper's settings, 2 environments, 4 passes over each batch.

    python benchmarks/training_throughput.py [--substrates bos_repeated clean_up] [--updates 100]
        [--rounds 1] [--environments 2] [--seeds 1] [--rollout 128] [--minibatch 4096] [--peer PYTHON]

Steps a second are environment steps of all seeds, the mean over `--updates` after `--warm` others, in which
everything is compiled and a whole episode is played. The floor is counted: the multiplications and additions of every
layer, forwards and backwards, for every square of every picture, at the rate of a large matrix product of the same run.
The learner does less: it reads each different square once, and works out once what each different pair of place and
square adds to the first layer. So it may be faster than the floor.
`--peer` names the Python of an environment that has BenchMARL 1.5.2 (with torchrl
0.11.1, tensordict 0.11.0 and Melting Pot); it then trains MAPPO with the same layers, environments and passes in the
same run. The two take turns `--rounds` times, and medians over the rounds are shown: a shared machine is slow for
minutes. On a GPU two groups of seeds take turns, one at play while the other learns, and the times of both overlap;
`--bare` measures the engine alone on all cores, episodes rebuilt, nothing learnt: with our level, which is quicker to
build, and as shipped.
"""

import argparse
import json
import os
import subprocess
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from engine import bare, shipped

from hpml.experiment.build import plan
from hpml.experiment.config import TrainConfig, complete
from hpml.experiment.memory import keep_memory
from hpml.marl.env import Spec, patch_shape
from hpml.marl.find import environment, resolve
from hpml.marl.settings import Settings


def matrix_rate(size: int = 2048, repeats: int = 9) -> float:
    """Floating-point operations a second of one large matrix product."""
    a = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(lambda x: x @ x)
    product(a).block_until_ready()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        product(a).block_until_ready()
        times.append(time.perf_counter() - start)
    return 2 * size**3 / float(np.median(times))


def operations(spec: Spec, settings: Settings) -> float:
    """Counted operations of one environment step: acting, judging, and all passes of actors and critics."""
    cells, pixels = patch_shape(spec)
    H, K = settings.hidden, settings.sprites
    first = 2 * cells * pixels * K
    later = 2 * (cells * K * H + spec.vector * H + H * H)
    actor, critic = later + 2 * H * spec.actions, later + 2 * H
    forward = 2 * first + actor + critic
    # Backwards each layer costs twice its forward pass, but nothing is sent on to the pixels.
    backward = 2 * first + 2 * (actor + critic)
    return spec.agents * (first + actor + first + critic + settings.passes * (forward + backward))


def open_course(name: str, options: argparse.Namespace) -> Any:
    """Training with the paper's settings, begun."""
    settings = Settings(environments=options.environments, rollout=options.rollout, minibatch=options.minibatch)
    config = complete(
        TrainConfig(env=name, seeds=options.seeds, settings=settings, measure=False, workers=options.workers)
    )
    return plan(config)()


def ours(course: Any, updates: int) -> dict[str, float]:
    """Steps a second, and median seconds of collecting and of learning."""
    rows = []
    start = time.perf_counter()
    for _ in range(updates):
        rows.append(course.advance(1).rows[0][0])
    whole = (time.perf_counter() - start) / updates
    settings = course.trainer.settings
    steps = settings.rollout * settings.environments * len(course.seeds)
    part = lambda key: float(np.median([row[key] for row in rows]))  # noqa: E731
    return {"steps": steps / whole, "collect": part("seconds/collect"), "learn": part("seconds/learn")}


def alone(name: str, as_shipped: bool) -> float:
    """Steps a second, by the clock on the wall, of engines one after another: random actions, building included."""
    env = environment(name)
    together.wait(timeout=300)
    return bare(env, shipped(env) if as_shipped else env.substrate, time.perf_counter).with_builds


def bare_engines(name: str, processes: int, as_shipped: bool) -> float:
    """Steps a second of the engine alone on all cores at once."""
    context = get_context("spawn")
    with context.Pool(processes, meet, [context.Barrier(processes)]) as pool:
        return sum(pool.starmap(alone, [(name, as_shipped)] * processes, chunksize=1))


def meet(barrier: Any) -> None:
    """Where the processes wait for each other before they begin."""
    global together
    together = barrier


def peer(python: str, name: str, updates: int) -> float:
    """Frames a second of BenchMARL."""
    script = Path(__file__).with_name("peer_benchmarl.py")
    full, _ = resolve(name)
    run = subprocess.run([python, script, full.partition("/")[2], str(updates)], capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"the peer failed:\n{run.stderr[-2000:]}")
    return float(json.loads(run.stdout.splitlines()[-1])["frames"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--substrates", nargs="+", default=["bos_repeated", "clean_up"])
    for option, default in (
        ("updates", 100),
        ("warm", 10),
        ("rounds", 1),
        ("environments", 2),
        ("seeds", 1),
        ("rollout", 128),
        ("minibatch", 4096),
        ("workers", 0),
    ):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--peer", default="")
    parser.add_argument("--peer-updates", type=int, default=19, help="two to get warm, and two episodes of 1,000 steps")
    parser.add_argument("--bare", action="store_true", help="measure the engine alone on all cores")
    options = parser.parse_args()
    keep_memory()  # as `hpml train` does
    cores = len(os.sched_getaffinity(0))
    print(f"{jax.devices()[0].device_kind}, {cores} cores, {jnp.dtype(jnp.float32)}")
    for name in options.substrates:
        course = open_course(name, options)
        rounds: list[dict[str, float]] = []
        try:
            course.advance(options.warm)
            for _ in range(options.rounds):
                found = ours(course, options.updates) | {"rate": matrix_rate()}
                found["floor"] = found["rate"] / operations(course.spec, course.trainer.settings)
                found["share"] = found["steps"] / found["floor"]
                if options.peer:
                    found["peer"] = peer(options.peer, name, options.peer_updates)
                    found["times"] = found["steps"] / found["peer"]
                rounds.append(found)
        finally:
            course.close()
        of = {key: float(np.median([found[key] for found in rounds])) for key in rounds[0]}
        line = (
            f"{name}: {of['steps']:.0f} steps/s (collect {of['collect']:.3f} s, learn {of['learn']:.3f} s), counted "
            f"floor {of['floor']:.0f} steps/s at {of['rate'] / 1e9:.0f} GFLOP/s, share {of['share']:.2f}"
        )
        if options.bare:
            for label, as_shipped in (("engine alone", False), ("as shipped", True)):
                engines = bare_engines(name, options.workers or cores, as_shipped)
                line += f", {label} {engines:.0f} steps/s, share {of['steps'] / engines:.2f}"
        if options.peer:
            times = sorted(found["times"] for found in rounds)
            between = f" ({times[0]:.0f} to {times[-1]:.0f})" if len(times) > 1 else ""
            line += f", BenchMARL {of['peer']:.1f} frames/s, {of['times']:.0f} times{between}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
