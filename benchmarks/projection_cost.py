"""What the projection and the instrument cost: wall time of an update of MAPPO with each, against plain MAPPO.

An update is what `Trainer.update` does with one rollout, no playing. All variants run in one process, one update each
in turn, round after round, so that a busy machine slows all; shown are the median over rounds and the median of the
ratio to the plain update of the same round. Rounds are a multiple of 8, so that refreshes count in full: means over
groups of 8 updates are compared. Beside it stands the memory of the histories.

    python benchmarks/projection_cost.py [--shapes bos clean_up] [--rounds 24] [--seeds 1]

Targets of the whole training step, playing included: 10 % for graph and kernel, 25 % for neural.
"""

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hpml.marl.algorithms.mappo import MAPPO
from hpml.marl.compiling import cpu_options
from hpml.marl.env import Observation, Spec
from hpml.marl.learner import Trainer
from hpml.marl.measure import Instrument
from hpml.marl.networks import count_parameters
from hpml.marl.projection import ProjectionSettings, make_projection
from hpml.marl.rollout import Rollout
from hpml.marl.settings import Settings

SHAPES = {
    "small": Spec("small", 2, 3, None, 8, 6),
    "bos": Spec("bos", 2, 8, (40, 40, 3), 8, 4),
    "clean_up": Spec("clean_up", 7, 9, (88, 88, 3), 8, 1),
}
VARIANTS = {
    "plain": ProjectionSettings(),
    "graph, paper": ProjectionSettings("graph", "paper"),
    "graph": ProjectionSettings("graph"),
    "kernel": ProjectionSettings("kernel"),
    "neural, paper": ProjectionSettings("neural", "paper"),
    "kernel, adjust": ProjectionSettings("kernel", residual="adjust"),
    "kernel, 4 probes, extragradient": ProjectionSettings("kernel", residual="extragradient", probes=4),
    "plain, measured": ProjectionSettings(),
}


def random_rollout(spec: Spec, settings: Settings, seeds: int) -> Rollout:
    """Data of the right shapes: time does not depend on what was seen."""
    T, E, n = settings.rollout, settings.environments, spec.agents
    draw = np.random.default_rng(0)
    image = None
    if spec.image is not None:
        image = jnp.asarray(draw.integers(0, 255, (T + 1, seeds, E, n, *spec.image)).astype(np.uint8))
    vector = jnp.asarray(draw.normal(size=(T + 1, seeds, E, n, spec.vector)).astype(np.float32))
    shape = (T, seeds, E, n)
    return Rollout(
        Observation(vector, image),
        jnp.zeros((T + 1, seeds, E), bool),
        None,
        jnp.asarray(draw.integers(0, spec.actions, shape).astype(np.int32)),
        jnp.full(shape, -np.log(spec.actions), jnp.float32),
        jnp.asarray(draw.normal(size=shape).astype(np.float32)),
        jnp.full(shape, -1, jnp.int32),
    )


class Variant:
    """One way to train, ready to make updates."""

    def __init__(self, name: str, spec: Spec, settings: Settings, seeds: int) -> None:
        trainer = Trainer(spec, MAPPO(), settings, make_projection(VARIANTS[name], settings, spec.agents))
        self.learner = jax.jit(jax.vmap(trainer.init))(jax.random.split(jax.random.key(0), seeds))
        self.step = jax.jit(jax.vmap(trainer.update, in_axes=(0, 1)), donate_argnums=0, compiler_options=cpu_options())
        instrument = Instrument()
        self.seen: Any = None
        if name.endswith("measured"):
            self.seen = jax.jit(jax.vmap(instrument.init))(self.learner.actors)
            self.flatten = jax.jit(jax.vmap(instrument.flatten))
            self.observe = jax.jit(jax.vmap(instrument.observe), donate_argnums=0)
        held = (self.learner.projection, self.seen)
        self.megabytes = sum(leaf.nbytes for leaf in jax.tree.leaves(held)) / 1e6 / seeds

    def update(self, rollout: Rollout) -> float:
        """Seconds of one update."""
        begin = time.perf_counter()
        self.learner, report = self.step(self.learner, rollout)
        if self.seen is not None:
            self.seen, _ = self.observe(self.seen, self.flatten(report.field))
        jax.block_until_ready((self.learner, self.seen))
        return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["bos", "clean_up"])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    options = parser.parse_args()
    rounds = -(-options.rounds // 8) * 8

    from rich.console import Console
    from rich.table import Table

    settings = Settings()
    for shape in options.shapes:
        spec = SHAPES[shape]
        rollout = random_rollout(spec, settings, options.seeds)
        names = ["plain", *(name for name in options.variants if name != "plain")]
        variants = {name: Variant(name, spec, settings, options.seeds) for name in names}
        for variant in variants.values():
            variant.update(rollout)  # compiles
        times = np.array([[variant.update(rollout) for variant in variants.values()] for _ in range(rounds)])
        groups = times.reshape(-1, 8, len(names)).mean(1)
        ratio = np.median(groups / groups[:, :1], 0) - 1.0
        parameters = count_parameters(variants["plain"].learner.actors) // options.seeds
        table = Table(title=f"{shape}: {parameters:,} parameters of actors, {options.seeds} seed(s), {rounds} rounds")
        for column in ("variant", "update, ms", "above plain", "history, MB a seed"):
            table.add_column(column, justify="right")
        for i, (name, variant) in enumerate(variants.items()):
            table.add_row(name, f"{np.median(times[:, i]) * 1e3:.0f}", f"{ratio[i]:+.1%}", f"{variant.megabytes:.0f}")
        Console(width=100).print(table)


if __name__ == "__main__":
    main()
