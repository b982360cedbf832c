"""The same core on the CPU and on a GPU: agreement and time.

    python benchmarks/devices.py

Every projector splits the same samples on each device that JAX finds. Agreement is the largest difference of the
directions over the largest direction. The host path works in float64 and must agree to 1e-6 (graph, kernel). The
network is trained in float32 with all digits of its products, and its direction must agree to 1e-5 of its size in L2.
The plug-in's history is float32 and must agree to 1e-3.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import problems
import rich.console
import rich.table

import hpml

TOLERANCE = {"graph": 1e-6, "kernel": 1e-6, "kernel, features": 1e-5, "neural": 1e-5, "plug-in": 1e-3}


def direction(name: str, points: np.ndarray, field: np.ndarray) -> np.ndarray:
    """The projected field at the samples."""
    projector = {
        "graph": hpml.GraphProjector(),
        "kernel": hpml.KernelProjector(),
        "kernel, features": hpml.KernelProjector(exact=100),
        "neural": hpml.NeuralProjector(),
    }[name]
    return np.asarray(hpml.project(points, field, projector, key=jax.random.key(0)).direction)


def plug_in(points: np.ndarray, field: np.ndarray) -> np.ndarray:
    """Updates of the plug-in over a history of these samples."""
    chain = optax.chain(hpml.hodge_projection(hpml.KernelProjector(), history=32, refresh=4), optax.sgd(1.0))
    state = chain.init(jnp.asarray(points[0], jnp.float32))

    @jax.jit
    def run(state, points, field):
        def step(state, sample):
            update, state = chain.update(sample[1], state, sample[0])
            return state, update

        return jax.lax.scan(step, state, (points, field))[1]

    return np.asarray(run(state, jnp.asarray(points, jnp.float32), jnp.asarray(field, jnp.float32)))


def main() -> None:
    problem = problems.ball(3, 2.0, 0)
    points = problem.sample(np.random.default_rng(0), 1000)
    field = problem.field(points)
    devices = {device.platform: device for platform in ("cpu", "gpu") for device in _devices(platform)[:1]}
    console = rich.console.Console(width=110)
    table = rich.table.Table(title=", ".join(f"{name}: {device.device_kind}" for name, device in devices.items()))
    for column in ("core", "difference", "allowed", *(f"{name}, s" for name in devices)):
        table.add_column(column, justify="right")
    apart = {}
    for name in TOLERANCE:
        answers, seconds = [], []
        for device in devices.values():
            with jax.default_device(device):
                for _ in range(2):  # the second call is compiled
                    start = time.perf_counter()
                    answer = plug_in(points[:64], field[:64]) if name == "plug-in" else direction(name, points, field)
                    elapsed = time.perf_counter() - start
                answers.append(answer)
                seconds.append(elapsed)
        apart[name] = max(_difference(name, answer, answers[0]) for answer in answers)
        table.add_row(name, f"{apart[name]:.1e}", f"{TOLERANCE[name]:.0e}", *(f"{s:.2f}" for s in seconds))
    console.print(table)
    for name, off in apart.items():
        assert off <= TOLERANCE[name], f"{name}: the devices disagree by {off:.1e}"
    if len(devices) == 1:
        console.print("JAX finds no GPU here, so only the CPU was run.")


def _difference(name: str, left: np.ndarray, right: np.ndarray) -> float:
    if name == "neural":
        return float(np.linalg.norm(left - right) / np.linalg.norm(right))
    return float(np.abs(left - right).max() / np.abs(right).max())


def _devices(platform: str) -> list:
    try:
        return jax.devices(platform)
    except RuntimeError:
        return []


if __name__ == "__main__":
    main()
