"""The kernel projector, the default: fit the whole field smoothly, then project the fit onto gradients (`def:proj`).

1. A prior over smooth fields with a gradient and a divergence-free part (`smooth/pair.py`), its length scales and
   noise fitted by marginal likelihood, gives F ~ P + D. What it cannot tell apart is settled by the measure
   (`smooth/balance.py`).
2. P is a gradient already. D is regressed onto gradients under the measure (`smooth/gradients.py`) with as many
   points of it as wanted; class and penalty are chosen by held-out loss, "nothing" among them. The projection is P
   plus that.

Only the second step knows the measure, so the answer is the projection for anisotropic and bounded measures too. On
isotropic ones D has no gradient part, the held-out loss sees that, and what is left is the error of P, far below
what regression alone reaches: there all of the rotation acts as noise. Where the smooth fit predicts left-out
samples no better than gradients alone do (much noise, few samples), the raw field is regressed onto gradients
directly. Which one was used is in `method`.

Exact up to some thousand numbers (n d); above, Fourier features or the exact fit of a subset, whichever predicts
left-out samples better; in many dimensions the dual form, by conjugate gradients, there and where noise is found.
"""

import contextlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from hpml.geometry.arrays import Array
from hpml.geometry.metric import Metric
from hpml.geometry.samples import Measure, Samples, draw_measure
from hpml.projection.projector import Energy, Fit, LocalSamples, Prediction, Projector
from hpml.projection.scaling import Scaling, anchor_of
from hpml.projection.smooth.balance import balance
from hpml.projection.smooth.dual import DualFit, empty_dual, fit_dual
from hpml.projection.smooth.evidence import FEW, fit_hyper
from hpml.projection.smooth.gradients import GradientFit, potentials, regress_gradients
from hpml.projection.smooth.pair import PairPosterior, Parts, condition, left_out_residuals, stretched
from hpml.projection.smooth.spectral import SpectralPosterior, condition_spectral

# Fourier features of the second step; twice as many did not lower the error for a rotation on a square.
WAVES = 128
NOISY = 1e-3  # share of noise in the field above which it unsettles the split
SHAKEN = 0.03  # the same in many dimensions, above which the dual form is better
ENOUGH = 20_000  # samples that settle whether a smooth fit predicts better than gradients alone, and its balance
# Times `exact` above three coordinates: error .40 with 400 of 1,024 samples and .29 with all of them, d = 10. At the
# limit of 12,000 numbers it takes some ten seconds and 3 GB.
LARGER = 3
FEWEST = 4  # samples that leave enough out to compare fits; from fewer, direct regression finds nothing and wins
JUDGED = 1280  # numbers of left-out samples that settle the comparison: more would cost as much as the fit, d = 30
WORK = 10**11  # products in the second step's normal equations, some ten seconds; binds above 20 coordinates
ALONE = 4000  # unknowns of a system up to which LAPACK gets one thread: see `_threads`
MANY = 32  # coordinates beyond which Fourier features take too much memory


def scaling_of(samples: Samples, metric: Metric) -> Scaling:
    """Centre, spread and size of weighted samples; a varying metric is frozen where it is like it is at them."""
    anchor = anchor_of(samples.points, samples.weights, metric)
    plain = Scaling(metric, anchor, np.zeros(samples.dimension), 1.0, 1.0)
    x, f = plain.points(samples.points), plain.vectors(samples.field)
    centre = samples.weights @ x
    spread = float(np.sqrt((samples.weights @ (x - centre) ** 2).sum() / min(samples.dimension, samples.count)))
    size = float(np.sqrt((samples.weights @ f**2).sum() / samples.dimension))
    return Scaling(metric, anchor, centre, spread, size if size > 0 else 1.0)


class KernelFit(Fit):
    """P from the smooth posterior (None when the field was regressed directly) plus a gradient regression."""

    samples: Samples
    scaling: Scaling
    posterior: PairPosterior | SpectralPosterior | None
    correction: GradientFit
    parts: Energy
    own: tuple[Float[Array, " n"], Float[Array, "n d"]]
    gauge: float
    method: str = eqx.field(static=True)

    def potential(self, points):
        """See `Fit.potential`."""
        with jax.enable_x64(True):
            points = np.asarray(points, np.float64)
            total = self.correction.potential(self.scaling.points(points))
            if self.posterior is not None:
                total = total + evaluate(self.posterior, self.scaling, points).potential
            return total * self.scaling.energy - self.gauge

    def direction(self, points):
        """See `Fit.direction`."""
        with jax.enable_x64(True):
            points = np.asarray(points, np.float64)
            total = self.correction.gradient(self.scaling.points(points))
            if self.posterior is not None:
                total = total + evaluate(self.posterior, self.scaling, points).gradient
            return self.scaling.metric_gradient(total, points)

    def smooth_field(self, points: Float[Array, "q d"]) -> Float[Array, "q d"] | None:
        """The smooth fit of the whole field; None where the field was regressed directly."""
        if self.posterior is None:
            return None
        with jax.enable_x64(True):
            return smooth_field(self.posterior, self.scaling, np.asarray(points, np.float64))

    def at_samples(self):
        """See `Fit.at_samples`; kept from the fit, since many samples take their time."""
        return self.own

    def energy(self) -> Energy:
        """See `Fit.energy`."""
        return self.parts

    def predict(self, points: Float[Array, "q d"]) -> Prediction:
        """Potential, direction and residual with one standard deviation each, rather too large than too small.

        Two sources: the smooth posterior (noise, gaps between samples) and the second step (finitely many points of
        the measure). By coordinate, in the caller's coordinates for Euclidean and diagonal metrics, an upper bound
        by the metric's largest stretch otherwise. Without a smooth fit the residual is not predicted between
        samples: its mean is 0 and its deviation the residual's size.
        """
        points = np.asarray(points, np.float64)
        with jax.enable_x64(True):
            u = self.scaling.points(points)
            axes = np.eye(u.shape[1])
            if not self.scaling.metric.constant:
                axes = np.broadcast_to(axes[:, None], (len(axes), *u.shape))
            of_gradients = np.linalg.norm(self.scaling.metric_gradient(axes, points), axis=0)
            potential_var, gradient_var = (np.asarray(v) for v in self.correction.variances(u))
            direction = self.direction(points)
            if self.posterior is None:
                residual = np.zeros_like(direction)
                of_vectors = np.linalg.norm(self.scaling.metric.unwhiten(axes, points), axis=0) * self.scaling.size
                each = of_vectors**2 * self.correction.loss / self.samples.dimension
                residual_var = np.broadcast_to(each, gradient_var.shape)
            else:
                more = [_chunked(lambda v, i=i: self.posterior.variances(v)[i], u, 256) for i in range(3)]
                residual = smooth_field(self.posterior, self.scaling, points) - direction
                of_vectors = np.linalg.norm(self.scaling.restore(axes), axis=0)
                residual_var = gradient_var * of_gradients**2 + more[2] * of_vectors**2
                potential_var, gradient_var = potential_var + more[0], gradient_var + more[1]
            return Prediction(
                self.potential(points),
                direction,
                residual,
                np.sqrt(potential_var) * self.scaling.energy,
                np.sqrt(gradient_var) * of_gradients,
                np.sqrt(residual_var),
            )


class DualKernelFit(Fit):
    """The dual form on the host, for more coordinates than samples."""

    samples: Samples
    scaling: Scaling
    dual: DualFit
    parts: Energy
    gauge: float
    method: str = eqx.field(static=True)

    def potential(self, points):
        """See `Fit.potential`."""
        return self._evaluate(points)[0] - self.gauge

    def direction(self, points):
        """See `Fit.direction`."""
        return self._evaluate(points)[1]

    def predict(self, points: Float[Array, "q d"]) -> Prediction:
        """Potential, direction and residual with one standard deviation each, at least: see `DualFit.variances`.

        From the smooth fit alone; the second step's own is not counted. By coordinate, in the caller's coordinates for
        Euclidean and diagonal metrics, an upper bound by the metric's largest stretch otherwise.
        """
        points = np.asarray(points, np.float64)
        with jax.enable_x64(True):
            u = self.scaling.points(points)
            factor = float(self.dual.evidence(self.scaling.vectors(self.samples.field)))
            found = [np.asarray(part) for part in _dual_parts(self.dual, u)]
            deviations = [np.sqrt(factor * np.asarray(part)) for part in _dual_variances(self.dual, u)]
        stretch = np.linalg.norm(self.scaling.restore(np.eye(u.shape[1])) / self.scaling.size, axis=0)
        size = self.scaling.size * stretch
        return Prediction(
            found[0] * self.scaling.energy - self.gauge,
            self.scaling.restore(found[1]),
            self.scaling.restore(found[2]),
            deviations[0] * self.scaling.energy,
            deviations[1] * size,
            deviations[2] * size,
        )

    def _evaluate(self, points):
        with jax.enable_x64(True):
            u = self.scaling.points(np.asarray(points, np.float64))
            potential, gradient, _ = (np.asarray(part) for part in _dual_parts(self.dual, u))
            return potential * self.scaling.energy, self.scaling.restore(gradient)

    def at_samples(self):
        """See `Fit.at_samples`."""
        return self.potential(self.samples.points), self.direction(self.samples.points)

    def energy(self) -> Energy:
        """See `Fit.energy`."""
        return self.parts


class KernelProjector(Projector):
    """Fit a smooth field with a gradient and a divergence-free part, then project it onto gradients.

    - `method`: "auto" decides between "smooth" and "direct" from left-out samples.
    - `exact`: largest n d for the exact posterior in up to three coordinates, three times that in more, where a subset
      is few samples; the subset's size above.
    - `subset`: how many numbers the marginal likelihood is first maximised on.
    - `frequencies`: Fourier features of each part above `exact`.
    - `measure_points`: points drawn from a measure that is a domain or a sampler; fewer above 20 coordinates.
    - `folds`: of the cross-validation in the second step.
    """

    method: str = "auto"
    exact: int = 4000
    subset: int = 480
    frequencies: int = 256
    measure_points: int = 16384
    folds: int = 5

    def __check_init__(self):
        if self.method not in ("auto", "smooth", "direct"):
            raise ValueError(f'method must be "auto", "smooth" or "direct", got {self.method!r}.')
        least = {"exact": 1, "subset": 1, "frequencies": 1, "measure_points": 2, "folds": 2}
        for name, count in least.items():
            if getattr(self, name) < count:
                raise ValueError(f"{name} must be at least {count}, got {getattr(self, name)}.")

    def fit(self, samples: Samples, metric: Metric, measure: Measure = None, key: Any = None) -> Fit:
        """See `Projector.fit`."""
        scaling = scaling_of(samples, metric)
        # The dual form knows no other measure and no other metric.
        many = samples.dimension > MANY and metric.constant and measure is None
        with jax.enable_x64(True), _threads(min(samples.count * samples.dimension, self._most(samples.dimension))):
            if many and samples.count * samples.dimension > self.exact:
                return self._fit_dual(samples, scaling)
            return self._fit(samples, metric, measure, key, scaling, many)

    def _fit(self, samples, metric, measure, key, scaling, many) -> KernelFit | DualKernelFit:
        x, f = scaling.points(samples.points), scaling.vectors(samples.field)
        known = None
        if samples.noise is not None:
            freedom = float((samples.replicates - 1).sum()) * samples.dimension
            known = _noise_of(samples, scaling), freedom
        regress = self._regressor(samples, metric, scaling)

        posterior, rows, errors = None, None, None
        if self.method != "direct" and np.any(f):
            posterior, rows, errors = self._smooth(x, f, samples, scaling, known)
        noise = 0.0 if posterior is None else float(posterior.hyper.noise) / float((f**2).mean())
        if many and noise > SHAKEN and self.method == "auto":
            # n = 40, d = 36, signal to noise 3: error .6 at new points; the exact form .98, plain gradients .79.
            return self._fit_dual(samples, scaling)
        choose = posterior is not None and self.method == "auto" and samples.count >= FEWEST
        if choose and not self._predicts_better(rows, errors, samples, scaling, regress):
            posterior = None

        points, weights = draw_measure(measure, samples, key, self._draws(samples.dimension))
        if posterior is None:
            correction = regress(samples.points, samples.field, samples.weights)
            field_at, gradient_at = samples.field, correction.gradient(x)
            points, weights = samples.points, samples.weights
            method = "direct regression onto gradients" + ("" if measure is None else " at the samples")
        else:
            u = scaling.points(points)
            # Clean samples alone leave the split to the prior, which beats their sampling error.
            if noise > NOISY or measure is not None:
                some = np.random.default_rng(1).permutation(len(u))[:ENOUGH]
                share = weights[some] / weights[some].sum()
                posterior = balance(posterior, u[some], share, evaluate(posterior, scaling, points[some]).rotation)
            first = evaluate(posterior, scaling, points)
            rest = scaling.restore(first.rotation)
            field_at = scaling.metric_gradient(first.gradient, points) + rest
            correction = regress(points, rest, weights, float(posterior.hyper.length_gradient))
            gradient_at = first.gradient + correction.gradient(u)
            method = f"smooth fit ({_form(posterior, samples.count)}), then projection"
        direction = scaling.metric_gradient(gradient_at, points)
        parts = self._energy(samples, metric, posterior, scaling, points, weights, field_at, direction, measure)
        potential = np.asarray(correction.potential(x))
        if posterior is not None:
            if measure is not None:  # the parts above are at the measure's points
                first = evaluate(posterior, scaling, samples.points)
                at_samples = first.gradient + correction.gradient(x)
                direction = scaling.metric_gradient(at_samples, samples.points)
            potential = potential + first.potential
        potential = potential * scaling.energy
        gauge = float(samples.weights @ potential)
        own = (potential - gauge, direction)
        return KernelFit(samples, scaling, posterior, correction, parts, own, gauge, method)

    def _draws(self, dimension: int) -> int:
        """How many points of a measure: fewer in many coordinates, where the second step's classes are large."""
        size = potentials(dimension, 1.0, WAVES).size
        return min(self.measure_points, max(WORK // (dimension * size**2), 8 * size // dimension, 2))

    def _most(self, dimension: int) -> int:
        """The largest n d for the exact posterior."""
        return self.exact if dimension <= FEW else LARGER * self.exact

    def _smooth(self, x, f, samples, scaling, known):
        """The posterior, some rows, and its errors there without having seen them, scaled."""
        n, d = x.shape
        order = np.random.default_rng(0).permutation(n)
        inflation, stretch = samples.inflation, scaling.stretch(samples.points)

        def of(rows):
            return x[rows], f[rows], inflation[rows], None if stretch is None else stretch[rows]

        points, field, inflated, stretches = of(order)
        few = max(self.subset // d, 16)
        hyper = fit_hyper(points, field, inflated, samples.ambient, known, few, stretches)

        def exact(rows):
            points, field, inflated, stretches = of(rows)
            return condition(points, field, inflated, hyper, samples.ambient, stretches)

        most = self._most(d)
        if n * d <= most:
            posterior = exact(np.arange(n))
            rows = order[: min(n, 128, max(JUDGED // d, 16))]
            return posterior, rows, np.asarray(left_out_residuals(posterior, rows))
        # Features take every sample, which averages noise; a subset is fitted exactly, which is sharper without noise.
        out, rest = order[: min(2000, n // 10)], order[min(2000, n // 10) :]
        candidates: list[PairPosterior | SpectralPosterior] = [exact(rest[: max(most // d, 8)])]
        if d <= MANY:
            points, field, inflated, stretches = of(rest)
            candidates.append(condition_spectral(points, field, inflated, hyper, self.frequencies, stretches))
        there = [evaluate(candidate, scaling, samples.points[out]) for candidate in candidates]
        errors = [f[out] - np.asarray(parts.field(of(out)[3])) for parts in there]
        best = int(np.argmin([samples.weights[out] @ (error**2).sum(1) for error in errors]))
        return candidates[best], out, errors[best]

    def _predicts_better(self, rows, errors, samples, scaling, regress) -> bool:
        """Whether the smooth fit's errors at some rows that it has not seen are smaller than those of gradients alone.

        As lengths in scaled coordinates, also where the metric varies: noise at a simplex's edge has any length in it.
        """
        others = np.setdiff1d(np.random.default_rng(1).permutation(samples.count)[:ENOUGH], rows)
        some = samples.take(np.concatenate([rows, others])[:ENOUGH])
        found = regress(some.points, some.field, some.weights).left_out[: len(rows)]
        points = samples.points[rows]
        gradients = scaling.vectors(samples.field[rows]) - stretched(found, scaling.stretch(points))
        return bool(samples.weights[rows] @ ((errors**2).sum(1) - (np.asarray(gradients) ** 2).sum(1)) < 0)

    def _regressor(self, samples, metric, scaling):
        """Gradient regression of a field given at points, with the varying metric's factors where there are any."""

        def regress(points, field, weights, length: float | None = None) -> GradientFit:
            u = scaling.points(points)
            lengths: tuple[float | None, ...] = (None, 2.0) if length is None else (None, max(length, 0.5), 2.0)
            if len(u) >= 10_000:  # enough to settle finer potentials, such as those of a box's corners
                lengths += (1.0,)
            if metric.constant:
                return regress_gradients(u, scaling.vectors(field), weights, lengths, WAVES, folds=self.folds)
            target = np.asarray(metric.whiten(field, points)) / scaling.size
            return regress_gradients(u, target, weights, lengths, WAVES, scaling.factors(points), folds=self.folds)

        return regress

    def _energy(self, samples, metric, posterior, scaling, points, weights, field, direction, measure) -> Energy:
        """Shares under the measure, scaled to the observed energy at the samples."""
        observed = float(
            np.sum(samples.weights * np.asarray(metric.inner(samples.field, samples.field, samples.points)))
        )
        noise = samples.noise
        if posterior is not None and samples.halves is None:
            # Within what the replicates leave open the fit has decided: a few of them say little.
            noise = float(posterior.hyper.noise) * _noise_unit(samples, scaling)
        noise = min(noise or 0.0, observed)
        if samples.halves is not None and (measure is None or posterior is None):
            # Two independent estimates: the noise drops out of the product of their residuals.
            a, b = samples.halves
            residuals = a - direction, b - direction
            circulation = float(np.sum(weights * np.asarray(metric.inner(*residuals, points))))
            whole = float(np.sum(weights * np.asarray(metric.inner(a, b, points))))
        else:
            residual = field - direction
            circulation = float(np.sum(weights * np.asarray(metric.inner(residual, residual, points))))
            gradient = float(np.sum(weights * np.asarray(metric.inner(direction, direction, points))))
            if posterior is None:  # the raw field's noise is in its residual
                circulation = max(circulation - noise, 0.0)
            whole = circulation + gradient
        share = float(np.clip(circulation / whole, 0.0, 1.0)) if whole > 0 else 0.0
        signal = observed - noise
        return Energy((1.0 - share) * signal, share * signal, noise)

    def _fit_dual(self, samples, scaling) -> DualKernelFit:
        x, f = scaling.points(samples.points), scaling.vectors(samples.field)
        weights = jnp.asarray(samples.weights)
        dual = _fit_dual_host(jnp.asarray(x), jnp.asarray(f), weights, samples.ambient)
        potential, gradient, _ = (np.asarray(part) for part in _dual_parts(dual, x))
        observed = float((samples.weights @ f**2).sum())
        noise = (samples.noise or 0.0) / scaling.size**2
        left = float((samples.weights @ (f - gradient) ** 2).sum())
        circulation = max(left - noise, 0.0)
        total = max(observed - noise, 0.0)
        share = min(circulation / total, 1.0) if total > 0 else 0.0
        unit = scaling.size**2
        parts = Energy((1 - share) * total * unit, share * total * unit, min(noise, observed) * unit)
        gauge = float(samples.weights @ potential) * scaling.energy
        return DualKernelFit(samples, scaling, dual, parts, gauge, "smooth fit (dual form), then projection")

    def local_init(self, count: int, rank: int, key: jax.Array) -> DualFit:
        """See `Projector.local_init`."""
        return empty_dual(count, rank, rank, jnp.float32)

    def local_fit(self, state: DualFit, samples: LocalSamples) -> DualFit:
        """See `Projector.local_fit`."""
        # Conjugate gradients lose float32's digits, and a GPU's default product has fewer still.
        with jax.enable_x64(True):
            points, field, mask = (leaf.astype(jnp.float64) for leaf in (samples.points, samples.field, samples.mask))
            fit = fit_dual(points, field, mask, state.ambient)
            return jax.tree.map(lambda new, old: new.astype(old.dtype), fit, state)

    def local_residual(self, state: DualFit, point, field):
        """See `Projector.local_residual`; the smooth residual, which neither drops nor believes the field's noise."""
        with jax.enable_x64(True):
            fit = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), state)
            _, _, residual = fit.parts(point[None].astype(jnp.float64))
            return residual[0].astype(field.dtype)

    def local_direction(self, state: DualFit, point, field):
        """See `Projector.local_direction`; smooth, so that the field's noise is in neither part."""
        with jax.enable_x64(True):
            fit = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), state)
            _, direction, _ = fit.parts(point[None].astype(jnp.float64))
            return direction[0].astype(field.dtype)


def _threads(unknowns: int) -> contextlib.AbstractContextManager[Any]:
    """One thread for LAPACK where systems are small.

    A likelihood is some fifty of them in a row. Threads that wait for each other spin, so that beside a training run,
    which has the cores, a fit of 1,000 noisy samples took six times as long.
    """
    return threadpool_limits(1, "blas") if unknowns <= ALONE else contextlib.nullcontext()


_dual_parts = jax.jit(lambda dual, u: dual.parts(u))
_dual_variances = jax.jit(lambda dual, u: dual.variances(u))
_fit_dual_host = jax.jit(
    lambda x, f, w, ambient: fit_dual(x, f, jnp.ones_like(w), ambient, iterations=200, weights=w), static_argnums=3
)


def _noise_unit(samples: Samples, scaling: Scaling) -> float:
    """The mean energy, in the metric and in the caller's units, of noise of variance 1 in each scaled coordinate."""
    stretch = scaling.stretch(samples.points)
    each = samples.dimension if stretch is None else np.trace(np.linalg.inv(stretch), axis1=1, axis2=2)
    return float(samples.weights @ (samples.inflation * each)) * scaling.size**2


def _noise_of(samples: Samples, scaling: Scaling) -> float:
    """The variance of the noise in one scaled coordinate, as replicates have it: there are some.

    Of repeated points the energy in the metric is known. Where that varies a few points may have most of it, and two
    estimates say it better in the scaled coordinates.
    """
    if samples.halves is None or scaling.metric.constant:
        return (samples.noise or 0.0) / _noise_unit(samples, scaling)
    apart = 0.5 * scaling.vectors(samples.halves[0] - samples.halves[1])
    mean = samples.dimension * float(samples.weights @ samples.inflation)
    return float(samples.weights @ (apart**2).sum(1)) / mean


def smooth_field(posterior: PairPosterior | SpectralPosterior, scaling: Scaling, points: Array) -> np.ndarray:
    """The smooth fit of the whole field, in the caller's coordinates."""
    parts = evaluate(posterior, scaling, points)
    return scaling.metric_gradient(parts.gradient, points) + scaling.restore(parts.rotation)


def evaluate(posterior: PairPosterior | SpectralPosterior, scaling: Scaling, points: Array, size: int = 4096) -> Parts:
    """The parts at many points in the caller's coordinates, some at a time."""
    some = [points[i : i + size] for i in range(0, max(len(points), 1), size)]
    found = [jax.tree.map(np.asarray, posterior.parts(scaling.points(x), scaling.stretch(x))) for x in some]
    return Parts(*(np.concatenate(part) for part in zip(*found, strict=True)))


def _form(posterior: PairPosterior | SpectralPosterior, count: int) -> str:
    if isinstance(posterior, SpectralPosterior):
        return "Fourier features"
    used = posterior.points.shape[0]
    return "exact" if used == count else f"exact on {used} of {count} samples"


def _chunked(function, u: np.ndarray, size: int = 4096) -> np.ndarray:
    return np.concatenate([np.asarray(function(u[start : start + size])) for start in range(0, len(u), size)])
