"""What noise leaves to estimators that are told more than anybody knows: is 1.3 times the noise-free error in reach?

    python benchmarks/noise_floor.py [--seeds 5] [--counts 200 1000]

*told the swirl*: an oracle subtracts the whole swirl, knows the size of the noise, and chooses length and variance by
the true error; it has to fit gradients, a quadratic potential with a wide prior plus a squared-exponential one. Any
projector has to find the same gradients from more unknowns.

*told the class*: the least error that any estimator can expect of fields drawn from the kernel projector's own prior,
with the lengths and sizes that it found without noise, when it is told these, the size of the noise and the whole
measure. The posterior mean is the best of all estimators there, and its error is the posterior's covariance of
G = P + (the projection of D), computed without any draw.

Beside them stand the kernel projector's errors without noise, with it, and with it where the measure is given, on the
same points and held-out points; ratios are to its noise-free error.
"""

import argparse

import jax
import numpy as np
import problems
import rich.console
import rich.table
import scipy.linalg

import hpml
from hpml.projection.smooth.gradients import potentials
from hpml.projection.smooth.pair import apply_pair, condition

NOISE = 0.1  # of the field's energy
CASES = {
    "3-D ball, rho = 4": lambda seed: problems.ball(3, 4.0, seed),
    "3-D ball, rho = 1": lambda seed: problems.ball(3, 1.0, seed),
    "2-D box, rho = 2": lambda seed: problems.box(2.0, seed),
    "Gaussian (3, 1, 1), rho = 1": lambda seed: problems.gaussian((3.0, 1.0, 1.0), 1.0, seed),
}
LENGTHS = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
VARIANCES = (0.01, 0.1, 1.0, 10.0)  # of the fitted gradients, in units of the exact direction's
DIFFUSE = 100.0  # the quadratic potential's, likewise
MEASURE = 4000  # points that stand for the measure, and half the waves of the potentials that D is projected onto
WAVES = 64
COMPARED = ("kernel", "kernel, measure given", "told the swirl", "told the class")


def covariance(x: np.ndarray, y: np.ndarray, length: float) -> np.ndarray:
    """Of the gradients at x and y of a squared-exponential potential, (n d, m d), with unit variance an entry."""
    d = x.shape[1]
    step = x[:, None] - y[None]
    k = np.exp(-0.5 * (step**2).sum(-1) / length**2)
    blocks = k[:, :, None, None] * (np.eye(d) - step[..., :, None] * step[..., None, :] / length**2)
    return blocks.transpose(0, 2, 1, 3).reshape(len(x) * d, len(y) * d)


def quadratic(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of the gradients b + A z, b and the symmetric A with unit variances."""
    d = x.shape[1]
    blocks = (1.0 + x @ y.T)[:, :, None, None] * np.eye(d) + y[None, :, :, None] * x[:, None, None, :]
    return blocks.transpose(0, 2, 1, 3).reshape(len(x) * d, len(y) * d)


def oracle(x: np.ndarray, values: np.ndarray, noise: float, at: np.ndarray, exact: np.ndarray) -> float:
    """The least error over lengths and variances."""
    size = np.mean(exact**2)
    wide, wide_at = DIFFUSE * size * quadratic(x, x), DIFFUSE * size * quadratic(at, x)
    best = np.inf
    for length in LENGTHS:
        K, K_at = covariance(x, x, length), covariance(at, x, length)
        for variance in VARIANCES:
            whole = wide + variance * size * K
            whole[np.diag_indices_from(whole)] += noise
            weights = scipy.linalg.cho_solve(
                scipy.linalg.cho_factor(whole, overwrite_a=True, check_finite=False), values.reshape(-1)
            )
            found = (wide_at + variance * size * K_at) @ weights
            best = min(best, problems.relative_error(found.reshape(at.shape), exact))
    return best


def bayes(fit, x: np.ndarray, noise: float, measure: np.ndarray, at: np.ndarray, exact: np.ndarray) -> float:
    """The expected error of the best estimator for fields from the prior of a fit, relative to `exact`."""
    scaling, hyper = fit.scaling, fit.posterior.hyper._replace(noise=noise / fit.scaling.size**2)
    d = x.shape[1]
    with jax.enable_x64(True):
        u, z, v = (scaling.points(points) for points in (x, measure, at))
        posterior = condition(u, np.zeros_like(u), np.ones(len(u)), hyper, d)
        basis = potentials(d, 1.0, WAVES)
        slopes = np.asarray(basis.gradients(z)) / len(z)
        # With y = E[slope . D]: Cov(y), and the coefficients of Cov(P, y).
        spread, moved = posterior.rotation_moments(z, slopes)
        gram = np.einsum("mdk,mdl->kl", slopes, slopes, optimize=True) * len(z)
        onto = np.asarray(basis.gradients(v)) @ np.linalg.inv(gram + 1e-9 * np.trace(gram) * np.eye(len(gram)))
        shared = np.stack([apply_pair(v, u, c.reshape(u.shape), hyper, d).gradient for c in moved.T], -1)
        own = np.concatenate([np.asarray(posterior.variances(v[i : i + 200])[1]) for i in range(0, len(v), 200)])
    variance = own + 2.0 * (onto * shared).sum(-1) + np.einsum("qdk,kl,qdl->qd", onto, spread, onto, optimize=True)
    return float(np.sqrt(variance.mean() * scaling.size**2 / np.mean(exact**2)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--counts", type=int, nargs="+", default=[200, 1000])
    options = parser.parse_args()
    table = rich.table.Table(title=f"error at signal to noise 10, {options.seeds} seeds")
    for column in ("case", "n", "kernel, noise-free", *COMPARED):
        table.add_column(column, justify="left" if column == "case" else "right")
    for name, make in CASES.items():
        for count in options.counts:
            errors = np.mean([row(make(seed), seed, count) for seed in range(options.seeds)], 0)
            ratios = [f"{error:.3f}, ratio {error / errors[0]:.2f}" for error in errors[1:]]
            table.add_row(name, str(count), f"{errors[0]:.3f}", *ratios)
    rich.console.Console(width=140).print(table)


def row(problem: problems.Problem, seed: int, count: int) -> list[float]:
    """Errors of the kernel (no noise, noise, noise and a measure), of the oracle, and of the best one can expect."""
    rng = np.random.default_rng([seed, count])  # the draws of accuracy.py
    x, at = problem.sample(rng, count), problem.sample(rng, 2000)
    field, exact = problem.field(x), problem.direction(at)
    noise = NOISE * np.mean(field**2)
    shaken = noise**0.5 * rng.normal(size=x.shape)
    free, *noisy = (
        hpml.project(x, values, hpml.KernelProjector(method="smooth"), measure=measure)
        for values, measure in ((field, None), (field + shaken, None), (field + shaken, problem.measure))
    )
    errors = [problems.relative_error(np.asarray(p.at(at)), exact) for p in (free, *noisy)]
    told = oracle(x, problem.direction(x) + shaken, noise, at, exact)
    return [*errors, told, bayes(free.fit, x, noise, problem.sample(rng, MEASURE), at, exact)]


if __name__ == "__main__":
    main()
