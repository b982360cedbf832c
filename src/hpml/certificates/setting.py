"""A run seen through a potential: everything that the bounds of `sec:theory` need, computed once.

The run's field U is minus the operator of the variational inequality, so that R = grad Phi - U (`ass:residual`). Gaps
and residual are those of the exact field, whatever noise the run saw.
"""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from hpml.certificates.certificate import Constant
from hpml.certificates.constants import largest, retract, smoothness
from hpml.certificates.potential import Potential
from hpml.diagnostics.gaps import linear_gap, spread
from hpml.dynamics.run import Run
from hpml.games.game import evaluate
from hpml.geometry.domain import Domain, Simplices

Vectors = Float[np.ndarray, "t s d"]
Numbers = Float[np.ndarray, "t s"]

OUTSIDE = 1e-6  # relative to the size of the points: starts may come from float32; the tolerance covers what they miss
BESIDE = 1e-9  # relative to the size of a step: a step that misses its projection by more is another update
AGAINST = -0.5  # the cosine between directions and gradients below which a run is not inexact but turned around
EPSILON = 64 * float(np.finfo(np.float64).eps)
CHECKED = 64  # points where the gradient is compared with the potential
CONSISTENT = 1e-3  # relative error of differences of Phi against its gradient


class Setting(eqx.Module):
    """A run of T steps from s starts, a potential, and what is known of both; `examine` makes it.

    - `heights` (T + 1, s): Phi at every point. `slopes`, `directions`, `moves` (T, s, d): grad Phi(x_t), the direction
      g_t, and x_{t+1} - x_t. `residuals`, `gaps`, `potential_gaps` (T, s): |R|, Gap and Gap_Phi at x_t.
    - `constants`: eta, T, D, L, G, Phi_max, Phi_min, epsilon, delta, and the run's departure from exact ascent.
    - `faults`: which assumptions are seen not to hold, by a short name. Directions that are not grad Phi are a fault of
      the bounds for exact ascent, "exact", but not where they point against it on the whole: the bounds then fail.
    - `slip`: how far points may lie outside the domain, if only by rounding. `rounding`: the error of a rise of Phi.
    """

    run: Run
    potential: Potential
    heights: Float[np.ndarray, "points s"]
    slopes: Vectors
    directions: Vectors
    moves: Vectors
    residuals: Numbers
    gaps: Numbers
    potential_gaps: Numbers
    constants: dict[str, Constant]
    faults: dict[str, str]
    slip: float
    rounding: float

    def __getitem__(self, name: str) -> float:
        """The value of a constant."""
        return self.constants[name].value

    @property
    def mappings(self) -> Numbers:
        """|G_eta(x_t)|, the length of each step over eta."""
        return np.linalg.norm(self.moves, axis=-1) / self["eta"]

    @property
    def errors(self) -> Numbers:
        """|g_t - grad Phi(x_t)| (`ass:proj-acc`)."""
        return np.linalg.norm(self.directions - self.slopes, axis=-1)

    def violated(self, *names: str) -> tuple[str, ...]:
        """The faults among these assumptions."""
        return tuple(self.faults[name] for name in names if name in self.faults)

    def unchecked(self, *names: str) -> tuple[str, ...]:
        """What stays open where these constants were estimated."""
        open_ends = []
        if "L" in names and self.constants["L"].source == "estimated":
            open_ends.append("eta <= 1/L between the points where L was estimated")
        if "L" in names and self.constants["L"].source == "given":
            open_ends.append("the L that was given, beyond the run's own steps")
        return (*open_ends, *self.potential.unchecked)

    def used(self, *names: str) -> dict[str, Constant]:
        """These constants."""
        return {name: self.constants[name] for name in names}


def examine(run: Run, potential: Potential, directions: Any = None, samples: int = 1000, seed: int = 0) -> Setting:
    """Look at a run through a potential.

    - `directions` (T, s, d): the g_t that the run is meant to follow, where that is not what it recorded.
    - `samples`: how many points of the domain the constants are estimated at; 0 takes the run's own points alone, which
      gives tighter bounds that are about this run only.
    """
    X = np.asarray(run.points, np.float64)
    T, s, d = len(X) - 1, *X.shape[1:]
    if T < 1:
        raise ValueError("A certificate needs a run with at least one step.")
    g = np.asarray(run.directions if directions is None else directions, np.float64)
    if g.shape != (T, s, d):
        raise ValueError(f"directions must have shape {(T, s, d)}, one for each step of the run, got {g.shape}.")
    domain, eta = run.game.domain, float(run.rule.step)
    bounded = bool(np.isfinite(domain.diameter))
    flat = X.reshape(-1, d)
    heights, every_slope = potential.value(flat).reshape(T + 1, s), potential.gradient(flat).reshape(X.shape)
    slopes, moves = every_slope[:-1], np.diff(X, axis=0)
    U = evaluate(run.game, flat[: T * s]).reshape(T, s, d)
    residuals = np.linalg.norm(slopes - U, axis=-1)
    steepest = float(np.linalg.norm(every_slope, axis=-1).max())
    size, longest = float(np.abs(X).max()), float(np.linalg.norm(moves, axis=-1).max())
    slip = float(np.linalg.norm(retract(domain, X) - X, axis=-1).max()) + EPSILON * size
    rounding = potential.rounding * (np.abs(heights).max() + steepest * (size + longest))
    rounding += slip * (steepest + longest / eta)

    points = spread(domain, samples, samples // 4 + 1, seed) if samples and bounded else np.empty((0, d))
    curvature = _curvature(heights, every_slope, moves, rounding)
    L = smoothness(potential, domain, points, flat, curvature, seed)
    seen = f"the largest at {len(points)} points, around the best, and on the run" if len(points) else "on the run"

    def most(function, on_run):
        return Constant(largest(function, float(on_run), domain, points, seed), "estimated", seen)

    lowest = most(lambda x: -potential.value(x), -heights.min())
    exact = np.linalg.norm(moves - _step(domain, X[:-1], eta, slopes), axis=-1).max()
    constants = {
        "eta": Constant(eta, "computed", "the rule's step"),
        "T": Constant(float(T), "computed", "the run's steps"),
        "D": Constant(domain.diameter, "computed", "the domain's diameter"),
        "L": L,
        "G": most(lambda x: np.linalg.norm(potential.gradient(x), axis=-1), steepest),
        "Phi_max": most(potential.value, heights.max()),
        "Phi_min": Constant(-lowest.value, "estimated", seen.replace("largest", "smallest")),
        "epsilon": most(
            lambda x: np.linalg.norm(potential.gradient(x) - evaluate(run.game, x), axis=-1), residuals.max()
        ),
        "delta": Constant(
            float(np.linalg.norm(g - slopes, axis=-1).max()), "computed", "the largest |g_t - grad Phi(x_t)|"
        ),
        "departure": Constant(float(exact), "computed", "the largest |x_{t+1} - P(x_t + eta grad Phi(x_t))|"),
    }
    faults = _faults(run, constants, curvature, slip) | _inconsistent(potential, domain, X, rounding)
    along = (g * slopes).sum() / max(np.linalg.norm(g) * np.linalg.norm(slopes), 1e-300)
    if constants["delta"].value > BESIDE * (1 + steepest) and along > AGAINST:
        faults["exact"] = f"the directions are not the exact gradient, by {constants['delta'].value:.3g}"
    if bounded:
        gaps, potential_gaps = linear_gap(domain, X[:-1], U), linear_gap(domain, X[:-1], slopes)
    else:
        gaps = potential_gaps = np.full((T, s), np.inf)
    return Setting(
        run, potential, heights, slopes, g, moves, residuals, gaps, potential_gaps, constants, faults, slip, rounding
    )


def _step(domain: Domain, points: np.ndarray, eta: float, directions: np.ndarray) -> np.ndarray:
    return retract(domain, points + eta * directions) - points


def _curvature(heights: np.ndarray, slopes: np.ndarray, moves: np.ndarray, rounding: float) -> float:
    """The least L that the run's own steps allow: 2 |Phi(y) - Phi(x) - <grad Phi(x), y - x>| / |y - x|^2."""
    square = (moves**2).sum(-1)
    bend = np.abs(np.diff(heights, axis=0) - (slopes[:-1] * moves).sum(-1)) - rounding
    moved = (square > 0) & (bend > 0)
    return float((2 * bend[moved] / square[moved]).max()) if moved.any() else 0.0


def _faults(run: Run, constants: dict[str, Constant], curvature: float, slip: float) -> dict[str, str]:
    domain, X = run.game.domain, np.asarray(run.points, np.float64)
    eta, L = constants["eta"].value, constants["L"].value
    faults = {}
    if not np.isfinite(domain.diameter):
        faults["bounded"] = "the domain is not bounded"
    if isinstance(domain, Simplices) and domain.coordinates == "dropped" and max(domain.sizes) > 2:
        faults["euclidean"] = (
            'the retraction is no Euclidean projection in "dropped" coordinates (use coordinates="orthonormal")'
        )
    size = 1 + np.abs(X).max()
    if slip > OUTSIDE * size:
        faults["feasible"] = f"the run leaves the domain, by {slip:.3g}"
    recorded = np.asarray(run.directions, np.float64)
    beside = np.linalg.norm(np.diff(X, axis=0) - _step(domain, X[:-1], eta, recorded), axis=-1).max()
    if beside > BESIDE * (size + eta * np.abs(recorded).max()):
        faults["step"] = f"the steps are not P(x + eta g) with the directions g that the run recorded, by {beside:.3g}"
    if eta * L > 1 + 1e-9:
        faults["eta"] = f"the step {eta:.3g} is above 1/L = {1 / L:.3g}"
    elif curvature > L * (1 + 1e-6):
        faults["eta"] = f"the potential bends by {curvature:.3g} on the run, more than L = {L:.3g} allows"
    return faults


def _inconsistent(potential: Potential, domain: Domain, X: np.ndarray, rounding: float) -> dict[str, str]:
    """Whether the gradient is the potential's: short steps of Phi against the mean slope of their ends."""
    rng = np.random.default_rng(0)
    flat = X.reshape(-1, X.shape[-1])
    here = flat[rng.permutation(len(flat))[:CHECKED]]
    reach = 1e-4 * (domain.diameter if np.isfinite(domain.diameter) else 1 + np.abs(X).max())
    there = retract(domain, here + reach * rng.normal(size=here.shape) / np.sqrt(here.shape[1]))
    a, b = potential.gradient(here), potential.gradient(there)
    miss = np.abs(potential.value(there) - potential.value(here) - ((a + b) / 2 * (there - here)).sum(-1))
    scale = max(np.linalg.norm(a, axis=-1).max(), np.linalg.norm(b, axis=-1).max()) * reach
    if (miss - 2 * rounding > CONSISTENT * scale).any():
        return {"gradient": "the gradient that was given is not the potential's"}
    return {}
