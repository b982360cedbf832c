"""Agent steps a second on repeated matrix games, playing and training under one jit.

    python benchmarks/matrix_training.py [--game rationalizable_coordination] [--algorithm mappo] [--repeats 5]

The preset `matrix` (64 environments, rollouts of 16, 4 passes, 32 units) and larger settings, for one seed and for
several that train together. An agent step is one action of one agent in one environment, learnt from. The floor is what
the matrix products of all forward and backward passes would take at the rate of one large product on the same cores,
measured in the same run; `share` is the floor's time over the measured one. Times are the fastest of the repeats,
compiling aside.
"""

import argparse
import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np

from hpml.experiment.build import algorithm
from hpml.experiment.course import INITIAL, WORLDS, seed_keys
from hpml.marl.collect.compiled import begin, train_chunk
from hpml.marl.find import environment
from hpml.marl.learner import Trainer
from hpml.marl.settings import preset

CASES = (  # seeds, environments, units
    (1, 64, 32),
    (3, 64, 32),
    (5, 64, 32),
    (1, 256, 32),
    (1, 64, 64),
)


def product_rate(size: int = 1536, repeats: int = 10) -> float:
    """Operations a second of one large matrix product in float32."""
    a = jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    return 2 * size**3 / min(seconds(lambda: product(a)) for _ in range(repeats))


def seconds(call) -> float:
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def operations(trainer: Trainer, actors, critic) -> float:
    """Operations of the matrix products for one agent step: multiplications and additions.

    A product costs 2 a weight forwards, as much again for the weights' gradient, and for the inputs' but in the first
    layer. Actors run forwards once to play, critics once to assess, and both there and back in every pass.
    """
    total = 0.0
    for network in (actors, critic):
        first, *later = (layer.weight[0].size for layer in (network.sight.vector, network.hidden, network.head))
        total += 2 * (first + sum(later)) + trainer.settings.passes * (4 * first + 6 * sum(later))
    return total


def measure(game: str, name: str, seeds: int, environments: int, units: int, repeats: int) -> tuple[float, float]:
    """Agent steps a second, and operations for one."""
    env = environment(f"matrix/{game}")
    settings = dataclasses.replace(
        preset("matrix"), environments=environments, hidden=units, minibatch=max(4096, 32 * environments)
    )
    trainer = Trainer(env.spec, algorithm(name), settings)
    numbers = tuple(range(seeds))
    learner = jax.vmap(trainer.init)(seed_keys(numbers, INITIAL))
    worlds = jax.vmap(lambda key: begin(trainer, env, key))(seed_keys(numbers, WORLDS))
    one = jax.tree.map(lambda x: np.asarray(x[0]), (learner.actors, learner.critic))
    count = operations(trainer, *one)
    updates = max(1, 100 * 64 // (environments * seeds))
    learner, worlds, _ = train_chunk(trainer, env, learner, worlds, updates)
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        learner, worlds, progress = jax.block_until_ready(train_chunk(trainer, env, learner, worlds, updates))
        best = min(best, time.perf_counter() - start)
    assert progress.report.finite.all()
    return seeds * updates * settings.rollout * environments * env.spec.agents / best, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="rationalizable_coordination")
    parser.add_argument("--algorithm", default="mappo")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{options.algorithm} on {options.game}, {jax.devices()[0].device_kind}\n")
    print("| seeds | environments | units | agent steps / s | operations / step | GFLOP/s | large product | share |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    for seeds, environments, units in CASES:
        rate = product_rate()
        steps, count = measure(options.game, options.algorithm, seeds, environments, units, options.repeats)
        rate = max(rate, product_rate())
        print(
            f"| {seeds} | {environments} | {units} | {steps:,.0f} | {count:,.0f} | {steps * count / 1e9:.1f} | "
            f"{rate / 1e9:.0f} | {steps * count / rate:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
