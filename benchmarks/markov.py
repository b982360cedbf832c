"""Exact gradients of a Markov game: the policy-gradient identity against reverse-mode differentiation of the returns.

    python benchmarks/markov.py [--states 200] [--agents 3] [--actions 5] [--repeats 5]

Seconds after compilation, the smallest of the repeats, in float64; the default size is the one to stay under a second.
"""

import argparse
import time

import jax
import numpy as np

from hpml.games.families.markov import MarkovGame, random_markov
from hpml.games.game import Game, evaluate, exploitability
from hpml.geometry.arrays import in_double


@in_double
def differentiate(game: Game, point):
    """Block i of row i of the returns' Jacobian."""
    rows = jax.jacrev(game.returns)(point)
    agent = np.repeat(np.arange(len(game.blocks)), game.blocks)
    return rows[agent, np.arange(len(agent))]


def seconds(call, repeats: int) -> float:
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("states", 200), ("agents", 3), ("actions", 5), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    game: MarkovGame = random_markov(options.states, (options.actions,) * options.agents, 0.95)
    x = np.zeros((1, game.domain.dimension))
    print(f"{options.states} states, {options.agents} agents, {options.actions} actions")
    print("largest difference", np.abs(evaluate(game, x)[0] - differentiate(game, x[0])).max())
    exact = seconds(lambda: evaluate(game, x), options.repeats)
    reverse = seconds(lambda: differentiate(game, x[0]), options.repeats)
    print(f"exact gradients {exact:.3f} s, by reverse mode {reverse:.3f} s, ratio {reverse / exact:.1f}")
    print(f"exploitability  {seconds(lambda: exploitability(game, x), options.repeats):.3f} s")


if __name__ == "__main__":
    main()
