"""What the plug-in costs in high dimension, as a multiple of one plain pass over its history.

The samples are the points of a walk through a field of a hill, a rotation and noise, all different. One plain pass is
the sum of all entries of both buffers (points and field), the faster of NumPy and a jitted JAX function, on the same
arrays in the same run. A step is push, refresh and direction in one jitted update with its state donated; in the first
row of each projector the refresh happens at every step, in the second every 8 steps. A round is a pass, eight steps and
a pass again, so that a busy machine slows both; medians over rounds are shown, of the ratios too.

Each projector runs with exact inner products and with those of short images (`--sketch`). What the images change is
shown as the distance between the two projected updates over the length of the projection's change, at the walk's end.

    python benchmarks/high_dimension.py [--device gpu] [--dimension 1000000] [--history 64] [--rounds 15]
        [--sketch 32771]
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

TARGET = 3.0  # times one plain pass, on the CPU
STEPS = 8  # of a round: one refresh in the second row of each projector


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--dimension", type=int, default=1_000_000)
    parser.add_argument("--history", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--sketch", type=int, default=32_771, help="entries of an image; 0 measures the exact ones alone"
    )
    parser.add_argument("--projectors", nargs="+", default=["graph", "kernel"], choices=["graph", "kernel", "neural"])
    options = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cuda" if options.device == "gpu" else "cpu"

    from rich.console import Console
    from rich.table import Table

    samples = walk(options.dimension, options.history + 16)
    table = Table(title=f"history {options.history}, d = {options.dimension:,}, float32, {options.device}")
    columns = ("projector", "products", "refresh every", "one pass, ms", "one step, ms", "step / pass (3)", "deviation")
    for column in columns:
        table.add_column(column, justify="right")
    for name in options.projectors:
        for sketch in (None, options.sketch) if options.sketch else (None,):
            apart = f"{deviation(name, sketch, samples, options):.1%}" if sketch else ""
            for refresh in (1, 8):
                plain, step, ratio = measure(name, refresh, sketch, samples, options)
                note = f"{ratio:.2f}"
                if options.device == "cpu":
                    note += " (met)" if ratio <= TARGET else " (above)"
                kind = f"images of {sketch:,}" if sketch else "exact"
                table.add_row(name, kind, str(refresh), f"{plain * 1e3:.1f}", f"{step * 1e3:.1f}", note, apart)
    Console(width=120).print(table)


def transformation(name: str, refresh: int, sketch: int | None, options: argparse.Namespace):
    """The plug-in."""
    from hpml.plugin.hodge import hodge_projection
    from hpml.projection.projectors.graph import GraphProjector
    from hpml.projection.projectors.kernel import KernelProjector
    from hpml.projection.projectors.neural import NeuralProjector

    projector = {"graph": GraphProjector, "kernel": KernelProjector, "neural": NeuralProjector}[name]()
    return hodge_projection(projector, options.history, refresh, sketch=sketch)


def walk(dimension: int, count: int) -> list[tuple[Any, Any]]:
    """Points and the gradients of the losses there."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def step(x, key):
        noise, stray = jax.random.normal(key, (2, dimension))
        half = jnp.arange(dimension) < dimension // 2
        grads = x - 2.0 * jnp.roll(x, dimension // 2) * jnp.where(half, 1, -1) + noise
        return grads, x - 0.1 * grads + 0.1 * stray

    samples, x = [], jax.random.normal(jax.random.key(0), (dimension,))
    for t in range(count):
        grads, after = step(x, jax.random.key(t + 1))
        samples.append((x, grads))
        x = after
    return samples


def deviation(name: str, sketch: int, samples: list[tuple[Any, Any]], options: argparse.Namespace) -> float:
    """How far the update with images lies from the exact one, over the length of the projection's change."""
    import jax
    import jax.numpy as jnp

    def last_update(sketch: int | None):
        plug = transformation(name, 8, sketch, options)
        update = jax.jit(plug.update, donate_argnums=1)
        state = jax.jit(plug.init)(samples[0][0])
        for point, grads in samples:
            direction, state = update(grads, state, point)
        return direction, direction - grads

    (exact, change), (short, _) = last_update(None), last_update(sketch)
    return float(jnp.linalg.norm(short - exact) / jnp.linalg.norm(change))


def measure(
    name: str, refresh: int, sketch: int | None, samples: list[tuple[Any, Any]], options: argparse.Namespace
) -> tuple[float, float, float]:
    """Median seconds of one plain pass and of one step, and the median ratio."""
    import jax
    import numpy as np

    plug = transformation(name, refresh, sketch, options)
    update = jax.jit(plug.update, donate_argnums=1)
    state = jax.jit(plug.init)(samples[0][0])
    following = itertools.cycle(samples)

    def step(count: int) -> None:
        nonlocal state
        for _ in range(count):
            point, grads = next(following)
            direction, state = update(grads, state, point)
        jax.block_until_ready((direction, state))

    step(options.history + 2 * refresh)
    jitted = jax.jit(lambda X, F: X.sum() + F.sum())

    whole = lambda rows: rows if sketch is None else rows.whole  # noqa: E731

    def with_jax() -> None:
        jax.block_until_ready(jitted(whole(state.history.points), whole(state.history.field)))

    def with_numpy() -> None:
        np.asarray(whole(state.history.points)).sum() + np.asarray(whole(state.history.field)).sum()

    passes: list[Callable[[], None]] = [with_jax] if options.device == "gpu" else [with_jax, with_numpy]
    for run in passes:
        run()
    plain = lambda: min(seconds(run) for run in passes)  # noqa: E731
    rounds = []
    for _ in range(options.rounds):
        before, taken = plain(), seconds(lambda: step(STEPS)) / STEPS
        rounds.append((0.5 * (before + plain()), taken))
    passing, stepping = np.array(rounds).T
    return float(np.median(passing)), float(np.median(stepping)), float(np.median(stepping / passing))


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
