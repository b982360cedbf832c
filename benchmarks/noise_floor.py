"""What noise leaves to an oracle: is 1.3 times the noise-free error within reach at all?

    python benchmarks/noise_floor.py [--seeds 5] [--count 1000]

The oracle is told what nobody knows: the whole swirl, which it subtracts, the size of the noise, and the true error, by
which it chooses length and variance. It then fits gradients to what is left, a quadratic potential with a wide prior
plus a squared-exponential one. Any projector has to find the same gradients from more unknowns. Beside it stand the
kernel projector's errors with noise and without, on the same points and held-out points; ratios are to its noise-free
error.
"""

import argparse

import numpy as np
import problems
import rich.console
import rich.table
import scipy.linalg

import hpml

NOISE = 0.1  # of the field's energy
CASES = {
    "3-D ball, rho = 4": lambda seed: problems.ball(3, 4.0, seed),
    "3-D ball, rho = 1": lambda seed: problems.ball(3, 1.0, seed),
    "Gaussian (3, 1, 1), rho = 1": lambda seed: problems.gaussian((3.0, 1.0, 1.0), 1.0, seed),
}
LENGTHS = (0.5, 0.7, 1.0, 1.4, 2.0, 3.0)
VARIANCES = (0.01, 0.1, 1.0, 10.0)  # of the fitted gradients, in units of the exact direction's
DIFFUSE = 100.0  # the quadratic potential's, likewise


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--count", type=int, default=1000)
    options = parser.parse_args()
    table = rich.table.Table(title=f"error at signal to noise 10, n = {options.count}, {options.seeds} seeds")
    for column in ("case", "kernel, noise-free", "kernel", "ratio", "oracle", "ratio"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for name, make in CASES.items():
        errors = []
        for seed in range(options.seeds):
            problem, rng = make(seed), np.random.default_rng([seed, options.count])  # the draws of accuracy.py
            x, at = problem.sample(rng, options.count), problem.sample(rng, 2000)
            field, exact = problem.field(x), problem.direction(at)
            noise = NOISE * np.mean(field**2)
            shaken = noise**0.5 * rng.normal(size=x.shape)
            row = [
                problems.relative_error(np.asarray(hpml.project(x, values, hpml.KernelProjector()).at(at)), exact)
                for values in (field, field + shaken)
            ]
            errors.append([*row, oracle(x, problem.direction(x) + shaken, noise, at, exact)])
        free, kernel, best = np.mean(errors, 0)
        table.add_row(name, f"{free:.3f}", f"{kernel:.3f}", f"{kernel / free:.2f}", f"{best:.3f}", f"{best / free:.2f}")
    rich.console.Console(width=110).print(table)


if __name__ == "__main__":
    main()
