"""Update rules side by side at one budget of field evaluations, each with the step that suits it best.

Every rule tries the same steps on starts of their own, keeps the one with the smallest median score of the last iterate
when the budget is spent, and is then judged on the given starts. A rule that spends evaluations before its first step
stands at its start until then, and a rule whose steps are free makes at most `budget` of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float, Int

from hpml.diagnostics.gaps import stampacchia_gap
from hpml.dynamics.rule import Rule
from hpml.dynamics.run import Run, run
from hpml.games.game import Game, as_points, evaluate, exploitability, has_payoffs
from hpml.geometry.arrays import Array, as_matrix
from hpml.geometry.domain import Domain, Space

STEPS = (0.03, 0.1, 0.3, 1.0)
BAND = (25.0, 50.0, 75.0)  # percent of the starts below low, median and high

Score = Callable[[Game, Array], Float[np.ndarray, " n"]]


class Band(eqx.Module):
    """A score over the starts at each mark: the quartiles and the median."""

    low: Float[Array, " e"]
    median: Float[Array, " e"]
    high: Float[Array, " e"]


class Curve(eqx.Module):
    """One rule at one budget; `average` is the mean of all iterates, None where coordinates have no meaningful mean.

    `tuning` is the median score that each of the tried steps left on the starts kept for the choice.
    """

    name: str
    step: float
    evaluations: Int[Array, " e"]
    last: Band
    average: Band | None
    tuning: dict[float, float]


def compare(
    game: Game,
    rules: Mapping[str, Rule],
    starts: Any,
    budget: int = 1000,
    steps: tuple[float, ...] = STEPS,
    tuning: Any = None,
    score: Score | None = None,
    marks: int = 50,
    noise: float = 0.0,
    retraction: str = "euclidean",
    seed: int = 0,
) -> list[Curve]:
    """Run every rule from `starts` (s, d) until `budget` evaluations are spent.

    - `steps`: the learning rates that every rule may choose from.
    - `tuning`: the starts that they are chosen on; eight points of the domain's uniform law unless given.
    - `score`: what is measured at points, smaller is better; `shortfall` unless given.
    - `marks`: at how many numbers of evaluations, evenly spread.
    """
    X = as_points(game, as_matrix(starts, "starts"))
    Y = as_points(game, _tuning_starts(game.domain, seed) if tuning is None else as_matrix(tuning, "tuning"))
    if not rules or not steps:
        raise ValueError("compare needs at least one rule and one step.")
    if marks < 2 or budget < 1:
        raise ValueError(f"compare needs a budget of at least 1 and at least 2 marks, got {budget} and {marks}.")
    score = shortfall if score is None else score
    at = np.unique(np.round(np.linspace(0, budget, marks)).astype(int))
    # One run holds every step from every start, so that a projection is made once for all of them.
    begin = np.tile(np.concatenate([Y, X]), (len(steps), 1))
    rates = np.repeat(np.asarray(steps, np.float64), len(X) + len(Y))[:, None]
    curves = []
    for name, rule in rules.items():
        whole = run(game, eqx.tree_at(lambda r: r.step, rule, rates), begin, budget, budget, noise, retraction, seed)
        curves.append(_curve(name, whole, np.asarray(steps), len(Y), at, score))
    return curves


def shortfall(game: Game, points: Array) -> Float[np.ndarray, " n"]:
    """How far from equilibrium: exploitability, else the Stampacchia gap, else on all of R^d the field's length."""
    X = as_points(game, points)
    if has_payoffs(game):
        return exploitability(game, X)
    if isinstance(game.domain, Space):
        return np.linalg.norm(evaluate(game, X), axis=1)
    return stampacchia_gap(game, X)


def tidy(curves: list[Curve]) -> dict[str, np.ndarray]:
    """All curves as the columns of one table: rule, step, iterate, evaluations, low, median, high."""
    columns: dict[str, list] = {
        name: [] for name in ("rule", "step", "iterate", "evaluations", "low", "median", "high")
    }
    for curve in curves:
        for iterate, band in (("last", curve.last), ("average", curve.average)):
            if band is not None:
                count = len(curve.evaluations)
                columns["rule"] += [curve.name] * count
                columns["step"] += [curve.step] * count
                columns["iterate"] += [iterate] * count
                columns["evaluations"] += list(curve.evaluations)
                for part in ("low", "median", "high"):
                    columns[part] += list(getattr(band, part))
    return {name: np.asarray(column) for name, column in columns.items()}


def _curve(name: str, whole: Run, steps: np.ndarray, held: int, at: np.ndarray, score: Score) -> Curve:
    """The rule's curve with the step that is best on the first `held` starts of each step."""
    game = whole.game
    path = np.asarray(whole.points).reshape(len(whole.points), len(steps), -1, whole.points.shape[2])
    end = score(game, path[-1, :, :held].reshape(-1, path.shape[3])).reshape(len(steps), held)
    medians = np.median(np.where(np.isfinite(end), end, np.inf), axis=1)
    best = int(np.argmin(medians))
    own = path[:, best, held:]
    when = np.maximum(np.searchsorted(whole.evaluations, at, side="right") - 1, 0)
    averages = None
    if _has_mean(game):
        means = np.cumsum(own, 0)[when] / (1.0 + when)[:, None, None]
        averages = _band(game, means, score)
    tried = {float(step): float(median) for step, median in zip(steps, medians, strict=True)}
    return Curve(name, float(steps[best]), at, _band(game, own[when], score), averages, tried)


def _band(game: Game, points: Float[np.ndarray, "e s d"], score: Score) -> Band:
    values = score(game, points.reshape(-1, points.shape[2])).reshape(points.shape[:2])
    return Band(*np.percentile(values, BAND, axis=1))


def _has_mean(game: Game) -> bool:
    """Logits have no meaningful mean: strategies do."""
    return not isinstance(game.domain, Space) or game.labels is None


def _tuning_starts(domain: Domain, seed: int) -> np.ndarray:
    if isinstance(domain, Space):
        raise ValueError("R^d has no uniform law to draw the starts that steps are chosen on: give tuning=.")
    return np.asarray(domain.sample(jax.random.key(seed + 1), 8), np.float64)
