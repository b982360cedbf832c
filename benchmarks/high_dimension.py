"""What the plug-in costs in high dimension, as a multiple of one plain pass over its history.

One plain pass is the sum of all entries of both buffers (points and field), the faster of NumPy and a jitted JAX
function, on the same arrays in the same run. A step is push, refresh and direction in one jitted update with its state
donated; in the first row of each projector the refresh happens at every step, in the second every 8 steps. Rounds
alternate between the pass and the steps, so that a busy machine slows both; the median over rounds is shown.

    python benchmarks/high_dimension.py [--device gpu] [--dimension 1000000] [--history 64] [--rounds 15]
"""

import argparse
import os
import time
from collections.abc import Callable

TARGET = 3.0  # times one plain pass, on the CPU


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--dimension", type=int, default=1_000_000)
    parser.add_argument("--history", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--projectors", nargs="+", default=["graph", "kernel"], choices=["graph", "kernel", "neural"])
    options = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cuda" if options.device == "gpu" else "cpu"

    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"history {options.history}, d = {options.dimension:,}, float32, {options.device}")
    for column in ("projector", "refresh every", "one pass, ms", "one step, ms", "step / pass"):
        table.add_column(column, justify="right")
    for name in options.projectors:
        for refresh in (1, 8):
            plain, step = measure(name, refresh, options)
            note = f"{step / plain:.2f}"
            if options.device == "cpu":
                note += " (target 3)" if step / plain <= TARGET else " (above the target of 3)"
            table.add_row(name, str(refresh), f"{plain * 1e3:.1f}", f"{step * 1e3:.1f}", note)
    Console(width=110).print(table)


def measure(name: str, refresh: int, options: argparse.Namespace) -> tuple[float, float]:
    """Median seconds of one plain pass and of one step."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from hpml.plugin.hodge import hodge_projection
    from hpml.projection.projectors.graph import GraphProjector
    from hpml.projection.projectors.kernel import KernelProjector
    from hpml.projection.projectors.neural import NeuralProjector

    projector = {"graph": GraphProjector, "kernel": KernelProjector, "neural": NeuralProjector}[name]()
    transformation = hodge_projection(projector, options.history, refresh)
    rng = np.random.default_rng(0)
    samples = [jnp.asarray(rng.standard_normal((2, options.dimension), np.float32)) for _ in range(4)]
    update = jax.jit(transformation.update, donate_argnums=1)
    state = jax.jit(transformation.init)(samples[0][0])

    def step(count: int) -> None:
        nonlocal state
        for i in range(count):
            point, grads = samples[i % 4]
            direction, state = update(grads, state, point)
        jax.block_until_ready((direction, state))

    step(options.history + 2 * refresh)
    jitted = jax.jit(lambda X, F: X.sum() + F.sum())

    def with_jax() -> None:
        jax.block_until_ready(jitted(state.history.points, state.history.field))

    def with_numpy() -> None:
        np.asarray(state.history.points).sum() + np.asarray(state.history.field).sum()

    passes: list[Callable[[], None]] = [with_jax] if options.device == "gpu" else [with_jax, with_numpy]
    for run in passes:
        run()
    times: dict[str, list[float]] = {"plain": [], "step": []}
    for _ in range(options.rounds):
        times["plain"].append(min(seconds(run) for run in passes))
        times["step"].append(seconds(lambda: step(refresh)) / refresh)
    return float(np.median(times["plain"])), float(np.median(times["step"]))


def seconds(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
