"""Does treating the residual help sampled training? Exploitability on matrix games with the package's own learner.

Two agents play a matrix game once an episode (or 16 times in a row with a recurrent memory) and learn from 256 joint
actions an update. Shown is the exploitability of their policies, the sum of what both could gain by best replies, as a
mean over the last fifth of the updates and over seeds, with the standard error over seeds. Games, strengths and seeds
run side by side under one jit; all games share one setting, and every seed has its own draw of the random games.
The default strength and safeguard were chosen on the draw of seed 0 with up to four seeds and 400 updates; `--first 1`
leaves that draw out.

    python benchmarks/adjust_training.py [--seeds 8] [--first 0] [--updates 3000] [--safeguard 0.3]
        [--only plain mappo ...]

- plain: policy gradients by gradient ascent, one pass; raw, optimistic and extragradient on the whole field, and
  F + lambda A F.
- adam: the same under Adam at 3e-3.
- mappo: four passes, clipped ratios, normalised advantages, Adam at 3e-3.
- recurrent: mappo with a GRU.
"""

import argparse
import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from hpml.games.families.cyclic import rock_paper_scissors
from hpml.games.families.random_normal_form import random_mix
from hpml.marl.algorithm import Algorithm
from hpml.marl.algorithms.ia2c import IA2C
from hpml.marl.algorithms.mappo import MAPPO
from hpml.marl.env import Observation, Spec
from hpml.marl.learner import Learner, Trainer
from hpml.marl.rollout import Rollout
from hpml.marl.settings import Settings
from hpml.plugin.hodge import hodge_projection

ACTIONS, JOINT = 4, 256  # rock-paper-scissors has a fourth action, which is forbidden
STRENGTHS = (0.0, 1.0, 4.0, 16.0)
COMMON = (0.0, 0.3, 0.5, 0.7, 0.9)
SPEC = Spec("matrix", 2, ACTIONS, vector=1, masked=True)
GAMES = ("rock-paper-scissors", *(f"random 4x4, {c:.0%} common payoff" for c in COMMON))


def games(seeds: range) -> tuple[np.ndarray, np.ndarray]:
    """Payoffs (games, seeds, 2, 4, 4) and which actions are allowed (games, 4); random payoffs have mean square 1."""
    payoffs = np.zeros((len(GAMES), len(seeds), 2, ACTIONS, ACTIONS), np.float32)
    allowed = np.ones((len(GAMES), ACTIONS), bool)
    payoffs[0, :, :, :3, :3], allowed[0, 3] = np.asarray(rock_paper_scissors().payoffs), False
    for i, common in enumerate(COMMON):
        for j, seed in enumerate(seeds):
            payoffs[1 + i, j] = np.asarray(random_mix((ACTIONS, ACTIONS), common, seed=seed).payoffs)
    return payoffs, allowed


def kinds() -> dict[str, tuple[Algorithm, Settings, Any]]:
    """Algorithm, settings and the actors' optimiser, None for the package's own."""
    plain: dict[str, Any] = {
        "environments": JOINT,
        "rollout": 1,
        "minibatch": 2 * JOINT,
        "passes": 1,
        "entropy": 0.0,
        "hidden": 16,
        "critic_rate": 3e-3,
    }
    quick = plain | {"actor_rate": 3e-3}
    passes = quick | {"passes": 4}
    return {
        "plain": (IA2C(), Settings(**plain, normalise_advantages=False), optax.sgd(0.1)),
        "adam": (IA2C(), Settings(**quick, normalise_advantages=False), None),
        "mappo": (MAPPO(), Settings(**passes), None),
        "recurrent": (
            MAPPO(),
            Settings(**passes | {"environments": JOINT // 16, "rollout": 16, "memory": 16}),
            None,
        ),
    }


def play(trainer: Trainer, actors: Any, payoffs: Any, allowed: Any, key: Any) -> tuple[Rollout, Any]:
    """One rollout, an episode long, and the exploitability of what was played, a mean over the rounds."""
    T, E = trainer.settings.rollout, trainer.settings.environments
    observation = Observation(jnp.ones((E, 2, 1), jnp.float32), None, jnp.broadcast_to(allowed, (E, 2, ACTIONS)))

    def turn(memory: Any, t: Any) -> tuple[Any, Any]:
        keys = jax.random.split(jax.random.fold_in(key, t), E)
        starts = jnp.broadcast_to(t == 0, (E,))
        played = trainer.act(actors, observation, memory, starts, keys)
        return played.memory, (memory, played, probabilities(memory, t))

    def probabilities(memory: Any, t: Any) -> Any:
        # All environments are alike, so the policies of the first are everybody's.
        vector = jnp.ones((2, 1, 1, 1), jnp.float32)
        known = None if memory is None else jnp.moveaxis(memory[:1], 1, 0)
        starts = jnp.broadcast_to(t == 0, (1, 1))
        logits, _ = jax.vmap(lambda actor, v, m: actor(v, None, m, starts), in_axes=(0, 0, 0))(actors, vector, known)
        return jax.nn.softmax(jnp.where(allowed, logits[:, 0, 0], -1e9))

    _, (memory, played, policies) = jax.lax.scan(turn, trainer.memory(E), jnp.arange(T))
    rewards = payoffs[:, played.actions[..., 0], played.actions[..., 1]]
    starts = jnp.zeros((T + 1, E), bool).at[jnp.array([0, T])].set(True)
    if memory is not None:
        memory = jnp.concatenate([memory, memory[:1]])
    rollout = Rollout(
        jax.tree.map(lambda x: jnp.broadcast_to(x, (T + 1, *x.shape)), observation),
        starts,
        memory,
        played.actions,
        played.log_probs,
        jnp.moveaxis(rewards, 0, -1),
        jnp.full((T, E, 2), -1, jnp.int32),
    )
    return rollout, jnp.mean(jax.vmap(lambda p: exploitability(payoffs, allowed, p))(policies))


def exploitability(payoffs: Any, allowed: Any, policies: Any) -> Any:
    """What both agents could gain by best replies, summed."""
    p, q = policies
    one, two = payoffs[0] @ q, p @ payoffs[1]
    best = lambda worth: jnp.max(jnp.where(allowed, worth, -jnp.inf))  # noqa: E731
    return best(one) - p @ one + best(two) - two @ q


def optimistic() -> optax.GradientTransformationExtraArgs:
    """F + (F - F before), on the whole field."""

    def update(grads: Any, before: Any, params: Any = None, **_: Any) -> tuple[Any, Any]:
        return jax.tree.map(lambda g, b: 2.0 * g - b, grads, before), grads

    return optax.GradientTransformationExtraArgs(lambda params: jax.tree.map(jnp.zeros_like, params), update)


def extragradient(rate: float) -> optax.GradientTransformationExtraArgs:
    """F(x + rate F), on the whole field and the same batch."""

    def update(grads: Any, state: Any, params: Any = None, *, field_fn: Any, **_: Any) -> tuple[Any, Any]:
        return field_fn(jax.tree.map(lambda x, g: x - rate * g, params, grads)), state

    return optax.GradientTransformationExtraArgs(lambda params: (), update)


def train(kind: str, rule: str, updates: int, safeguard: float) -> Any:
    """A function of payoffs, allowed actions, strength and key: exploitability at every update."""
    algorithm, settings, optimiser = kinds()[kind]

    def run(payoffs: Any, allowed: Any, strength: Any, key: Any) -> Any:
        if rule == "adjust":
            rule_of = hodge_projection(residual="adjust", strength=strength, every=settings.passes, safeguard=safeguard)
        else:
            rule_of = optimistic() if rule == "optimistic" else extragradient(0.1)
        trainer = Trainer(SPEC, algorithm, settings, rule_of)
        if optimiser is not None:
            trainer.actor_optimiser = optimiser
        learner = trainer.init(key)
        # A start away from uniform play, so that there is something to converge from.
        noise = jax.random.normal(jax.random.fold_in(key, 1), learner.actors.head.bias.shape)
        learner = eqx.tree_at(lambda x: x.actors.head.bias, learner, noise)

        def step(learner: Learner, number: Any) -> tuple[Learner, Any]:
            rollout, gap = play(trainer, learner.actors, payoffs, allowed, jax.random.fold_in(key, 2 + number))
            learner, _ = trainer.update(learner, rollout)
            return learner, gap

        return jax.lax.scan(step, learner, jnp.arange(updates))[1]

    return run


def row(
    kind: str, rule: str, strengths: tuple[float, ...], seeds: range, updates: int, safeguard: float = 0.3
) -> np.ndarray:
    """Exploitability (games, strengths, seeds) over the last fifth of the updates."""
    payoffs, allowed = games(seeds)
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds))
    run = train(kind, rule, updates, safeguard)
    many = jax.vmap(jax.vmap(jax.vmap(run, (0, None, None, 0)), (None, None, 0, None)), (0, 0, None, None))
    gaps = jax.jit(many)(jnp.asarray(payoffs), jnp.asarray(allowed), jnp.asarray(strengths), keys)
    return np.asarray(gaps[..., -(updates // 5) :].mean(-1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--updates", type=int, default=3000)
    parser.add_argument("--safeguard", type=float, default=0.3, help="least cosine with the raw update")
    parser.add_argument("--only", nargs="+", choices=list(kinds()), default=list(kinds()))
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)

    from rich.console import Console
    from rich.table import Table

    for kind in options.only:
        begin = time.perf_counter()
        names = [f"lambda={s:g}" if s else "raw" for s in STRENGTHS]
        gaps = row(kind, "adjust", STRENGTHS, seeds, options.updates, options.safeguard)
        found = {name: gaps[:, i] for i, name in enumerate(names)}
        if kind == "plain":
            for rule in ("optimistic", "extragradient"):
                found[rule] = row(kind, rule, (0.0,), seeds, options.updates)[:, 0]
        seconds = time.perf_counter() - begin
        table = Table(
            title=f"{kind}: exploitability, {options.seeds} seeds, {options.updates} updates, {seconds:.0f} s"
        )
        for column in ("game", *found):
            table.add_column(column, justify="right")
        for i, game in enumerate(GAMES):
            cells = [v[i] for v in found.values()]
            error = [c.std(ddof=1) / len(c) ** 0.5 if len(c) > 1 else 0.0 for c in cells]
            table.add_row(game, *(f"{c.mean():.3f} ± {e:.3f}" for c, e in zip(cells, error, strict=True)))
        Console(width=160).print(table)


if __name__ == "__main__":
    main()
