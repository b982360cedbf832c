"""Length scales, variances and noise by the largest marginal likelihood on a subset of the samples.

A few hundred numbers of the field find the right region. In many coordinates those are too few samples to say more
(their affine part alone has d^2 coefficients), so the search goes on from there with more of them.
"""

import numpy as np
import scipy.linalg.lapack
import scipy.optimize
import scipy.spatial
import scipy.stats

from hpml.projection.smooth.pair import Hyper, Stretch, log_system, pull_back

# In units of the scaled points and field. A length of 30 is affine to the eye; a noise of 2 is all noise.
LOWER = Hyper(0.05, 0.05, 1e-5, 1e-7, 1e-8)
UPPER = Hyper(30.0, 30.0, 1e3, 1e3, 2.0)
# The likelihood can have a smooth-field and a noisy-field mode; the second is tried where the first finds noise.
STARTS = (Hyper(2.0, 2.0, 0.3, 0.3, 1e-3), Hyper(3.0, 3.0, 0.5, 0.3, 0.3))
NOISY = 2e-3
WIDE = 32  # coordinates beyond which samples lie so far apart that the first start, with its short lengths, is stuck
MORE = 2
# Numbers of the field for the last search, above three coordinates: error .40 to .32 with d = 10, n = 256, and .12 to
# .08 with d = 6, n = 300, in two seconds. In three it is .052 to .045 with n = 1,000, for three times the time.
FINE, FEW = 1600, 3
SURE = 1e-3  # chance that a noise known from replicates is outside its bounds


def fit_hyper(
    points: np.ndarray,
    field: np.ndarray,
    inflation: np.ndarray,
    ambient: int,
    noise: tuple[float, float] | None,
    subset: int,
    stretch: Stretch = None,
) -> Hyper:
    """Hyperparameters by marginal likelihood, from `subset` of the samples.

    - `noise`: its variance as replicates have it, and how many free numbers that is from: few say little, and the
      samples decide within what they leave open. None without replicates.
    - `inflation` scales the noise variance of each sample (fewer replicates, more noise). The samples come shuffled.
    - `stretch`: of each sample, where the metric varies; see `pair.py`.
    """
    lower, upper = np.log(np.array(LOWER)), np.log(np.array(UPPER))
    # A field that turns within the gap between samples cannot be told from noise, and would soak it up.
    gap = np.median(scipy.spatial.cKDTree(points[: MORE * subset]).query(points[:subset], 2)[0][:, 1])
    shrink = (min(len(points), MORE * subset) / len(points)) ** (1.0 / points.shape[1])
    lower[:2] = np.log(np.clip(1.5 * gap * shrink, LOWER.length_gradient, 1.0))
    if noise is not None:
        variance, freedom = noise
        open_to = np.maximum(scipy.stats.chi2.ppf([1 - SURE / 2, SURE / 2], freedom) / freedom, 1e-9)
        lower[-1], upper[-1] = np.log(np.clip(variance / open_to, LOWER.noise, UPPER.noise))

    def best(m: int, *starts: Hyper) -> Hyper:
        data = points[:m], field[:m], inflation[:m], ambient, None if stretch is None else stretch[:m]
        found = [_maximise(data, start, lower, upper) for start in starts]
        least = min(found, key=lambda logs: _objective(logs, *data)[0]) if len(found) > 1 else found[0]
        return _hyper(least)

    dimension = points.shape[1]
    found = best(subset, STARTS[1] if dimension > WIDE else STARTS[0])
    if dimension <= WIDE and found.noise >= NOISY:
        # Noise hides the field's finer structure from few samples: look at more of them, from both starts.
        found = best(MORE * subset, found, STARTS[1])
    fine = FINE // dimension
    return best(fine, found) if dimension > FEW and min(fine, len(points)) > subset else found


def _hyper(logs: np.ndarray) -> Hyper:
    return Hyper(*(float(v) for v in np.exp(logs)))


def _maximise(data, start, lower, upper) -> np.ndarray:
    """The logarithms of the hyperparameters at a local maximum of the likelihood, within bounds."""
    return scipy.optimize.minimize(
        _objective,
        np.clip(np.log(np.array(start)), lower, upper),
        args=data,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(lower, upper, strict=True)),
        options={"maxiter": 40, "ftol": 1e-5},
    ).x


def _objective(logs, points, field, inflation, ambient, stretch=None) -> tuple[float, np.ndarray]:
    """-log p(field) and its derivative.

    -log p = z^T K^-1 z / 2 + log det K / 2, whose derivative by K is (K^-1 - a a^T) / 2 with a = K^-1 z. LAPACK's
    inverse from the factor costs a third of what differentiating the factorisation does.
    """
    z = field.reshape(-1)
    K = np.array(log_system(logs, points, inflation, ambient, stretch), order="F")
    L, failed = scipy.linalg.lapack.dpotrf(K, lower=1, overwrite_a=1)
    if failed:
        return 1e10, np.zeros_like(logs)
    a = scipy.linalg.cho_solve((L, True), z)
    value = 0.5 * z @ a + np.log(np.diag(L)).sum()
    inverse, _ = scipy.linalg.lapack.dpotri(L, lower=1)
    inverse = np.tril(inverse) + np.tril(inverse, -1).T
    return float(value), np.asarray(
        pull_back(logs, points, inflation, ambient, 0.5 * (inverse - np.outer(a, a)), stretch)
    )
