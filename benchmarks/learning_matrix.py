"""Learning on repeated matrix games: every algorithm against random play and the best joint play.

    python benchmarks/learning_matrix.py [--updates 150] [--seeds 3] [--games ...] [--algorithms ...]

Returns are those of an episode, a mean over agents, in the games' own units. They are exact: the trained policies'
tables give the expected return, so that nothing is sampled but the training. Means over seeds have Student's 95 %
interval. Training uses the preset `matrix`.
"""

import argparse
import time

import jax
import numpy as np
from scipy import stats

from hpml.experiment.build import algorithm, algorithm_names
from hpml.experiment.course import INITIAL, WORLDS, seed_keys
from hpml.marl.collect.compiled import begin, train_chunk
from hpml.marl.exact import best_joint_returns, expected_returns, exploitability, policy_tables, random_returns
from hpml.marl.find import environment
from hpml.marl.learner import Trainer
from hpml.marl.settings import preset

GAMES = ("pure_coordination", "rationalizable_coordination", "stag_hunt", "bach_or_stravinsky", "penalty", "climbing")
CYCLES = ("rock_paper_scissors", "matching_pennies")


def train(name: str, game: str, seeds: int, updates: int):
    """The environment, and each seed's tables after training."""
    env = environment(f"matrix/{game}")
    trainer = Trainer(env.spec, algorithm(name), preset("matrix"))
    numbers = tuple(range(seeds))
    learner = jax.vmap(trainer.init)(seed_keys(numbers, INITIAL))
    worlds = jax.vmap(lambda key: begin(trainer, env, key))(seed_keys(numbers, WORLDS))
    learner, _, progress = train_chunk(trainer, env, learner, worlds, updates)
    if not progress.report.finite.all():
        raise SystemExit(f"{name} on {game}: training gave numbers that are not finite.")
    return env, [policy_tables(trainer, jax.tree.map(lambda x: x[s], learner.actors), env) for s in range(seeds)]  # noqa: B023


def interval(values) -> tuple[float, float]:
    """The mean and half the width of its 95 % interval."""
    spread = np.std(values, ddof=1) / len(values) ** 0.5
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1) * spread)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--games", nargs="+", default=[*GAMES, *CYCLES])
    parser.add_argument("--algorithms", nargs="+", default=list(algorithm_names()))
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("an interval needs two seeds or more")
    settings = preset("matrix")
    steps = options.updates * settings.rollout * settings.environments
    print(f"{options.seeds} seeds, {options.updates} updates, {steps:,} environment steps a seed\n")
    print("| game | algorithm | return | random play | best joint play | beats random | exploitability | seconds |")
    print("|---|---|---:|---:|---:|---|---:|---:|")
    for game in options.games:
        for name in options.algorithms:
            start = time.perf_counter()
            env, tables = train(name, game, options.seeds, options.updates)
            mean, half = interval([expected_returns(env, table).mean() for table in tables])
            gap, gap_half = interval([exploitability(env, table) for table in tables])
            chance, best = random_returns(env).mean(), best_joint_returns(env).mean()
            better = "-" if game in CYCLES else "yes" if mean - half > chance else "no"
            seconds = time.perf_counter() - start
            print(
                f"| {game} | {name} | {mean:.2f} ± {half:.2f} | {chance:.2f} | {best:.2f} | "
                f"{better} | {gap:.2f} ± {gap_half:.2f} | {seconds:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
