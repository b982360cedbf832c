"""What noise leaves to estimators that are told more than anybody knows: is 1.3 times the noise-free error in reach?

    python benchmarks/noise_floor.py [--seeds 20] [--processes 2] [--out FILE]

*told the swirl*: an oracle subtracts the whole swirl, knows the size of the noise, and chooses length and variance by
the true error; it has to fit gradients, a quadratic potential with a wide prior plus a squared-exponential one. Any
projector has to find the same gradients from more unknowns.

*told the class*: the least error that any estimator can expect of fields drawn from the kernel projector's own prior,
with the lengths and sizes that it found without noise, when it is told these, the size of the noise and the whole
measure. The posterior mean is the best of all estimators there, and its error is the posterior's covariance of
G = P + (the projection of D), computed without any draw.

The samples are those of accuracy.py with signal to noise 10, whose rows of the kernel stand beside: FILE is its file
(benchmarks/results/accuracy.csv), and gets these rows too. *kernel, measure given* is the kernel projector where it is
told the measure.
"""

import argparse
import pathlib
import time

import accuracy
import jax
import numpy as np
import problems
import rich.console
import scipy.linalg

import hpml
from hpml.projection.smooth.gradients import potentials
from hpml.projection.smooth.pair import apply_pair, condition

LENGTHS = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
VARIANCES = (0.01, 0.1, 1.0, 10.0)  # of the fitted gradients, in units of the exact direction's
DIFFUSE = 100.0  # the quadratic potential's, likewise
MEASURE = 4000  # points that stand for the measure, and half the waves of the potentials that D is projected onto
WAVES = 64


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


def run(case: str, count: int, seed: int) -> list[accuracy.Row]:
    """The kernel told the measure, the oracle, and what the best estimator told the class expects."""
    drawn = accuracy.draw(case, count, seed)
    x, at, exact = drawn.points, drawn.test, drawn.exact
    noise = accuracy.CASES[case].noise * np.mean(drawn.clean**2)

    def told_measure() -> float:
        p = hpml.project(x, drawn.field, measure=drawn.problem.measure)
        return problems.relative_error(p.at(at), exact)

    def told_swirl() -> float:
        return oracle(x, drawn.problem.direction(x) + drawn.field - drawn.clean, noise, at, exact)

    def told_class() -> float:
        fit = hpml.project(x, drawn.clean, hpml.KernelProjector(method="smooth")).fit
        measure = drawn.problem.sample(np.random.default_rng([seed, count, 1]), MEASURE)
        return bayes(fit, x, noise, measure, at, exact)

    rows = []
    for name, error in zip(accuracy.FLOORS, (told_measure, told_swirl, told_class), strict=True):
        start = time.perf_counter()
        found = (error(), drawn.raw, drawn.affine, float("nan"), drawn.share)
        rows.append(accuracy.Row(case, count, seed, name, *found, time.perf_counter() - start))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("benchmarks/results/accuracy.csv"))
    options = parser.parse_args()
    if not options.out.exists():
        parser.error(f"{options.out} is not there: run accuracy.py --out {options.out} first, whose rows stand beside.")
    jobs = [(case, n, s) for case in accuracy.QUIET for n in accuracy.CASES[case].counts for s in range(options.seeds)]
    rows = accuracy.collect(run, jobs, accuracy.load(options.out), options.processes, options.out)
    found = accuracy.floor_of(accuracy.Means(rows))
    assert found is not None
    console = rich.console.Console(width=140)
    console.print(accuracy.drawn_table(found[0]))
    for line in found[1]:
        console.print(line)


if __name__ == "__main__":
    main()
