"""`hpml.project`: one call from samples to potential, direction and residual (`def:proj`)."""

from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array, as_key, as_matrix, kind_of
from hpml.geometry.chart import Chart, chart_of
from hpml.geometry.metric import Euclidean, Metric
from hpml.geometry.samples import Measure, Samples, draw_measure, gather_samples
from hpml.projection.discrete.flow import EdgeFlow
from hpml.projection.projector import Energy, Fit, Prediction, Projector, check_projector
from hpml.projection.projectors.kernel import KernelProjector


class Projection(eqx.Module):
    """A field split into its closest metric gradient and the residual, at the caller's samples.

    `potential` has mean zero in the caller's weights, with the graph projector on each component of its graph.
    `nonpotentiality` is the share of the field's energy that is circulation, in-sample and with the noise taken out
    where it is known; `hpml.nonpotentiality` gives the held-out value with an interval.
    """

    direction: Float[Array, "n d"]
    residual: Float[Array, "n d"]
    potential: Float[Array, " n"]
    energy: Energy
    fit: Fit
    chart: Chart | None

    def __repr__(self) -> str:
        n, d = self.direction.shape
        return f"Projection(n={n}, d={d}, nonpotentiality={self.nonpotentiality:.3f}, method={self.method!r})"

    @property
    def nonpotentiality(self) -> float:
        """The share of the field's energy that is circulation, in [0, 1]."""
        return self.energy.nonpotentiality

    @property
    def flow(self) -> EdgeFlow:
        """The edge flow behind the split; the graph projector alone has one."""
        flow = getattr(self.fit, "flow", None)
        if flow is None:
            raise AttributeError("Only the graph projector has an edge flow: pass projector=hpml.GraphProjector().")
        return flow

    @property
    def method(self) -> str:
        """Which estimator was used, in one or two words."""
        return getattr(self.fit, "method", type(self.fit).__name__)

    def at(self, points: Any) -> Float[Array, "q d"]:
        """The projected field at new points."""
        return _finite(self._leave(np.asarray(self.fit.direction(self._enter(points)))))

    def potential_at(self, points: Any) -> Float[Array, " q"]:
        """The potential at new points."""
        return _finite(np.asarray(self.fit.potential(self._enter(points))))

    def predict(self, points: Any) -> Prediction:
        """Potential, direction and residual at new points with their uncertainty (kernel projector).

        In a chart (d > 2n) its coordinates' deviations are taken for independent. Of points beside the samples' span
        little is known: the more of a point's way from the centre leads there, the more the deviation is the field's
        own size.
        """
        predict = getattr(self.fit, "predict", None)
        if predict is None:
            raise AttributeError(
                f"This fit ({self.method}) has no uncertainty: use at() and potential_at(), or the kernel projector."
            )
        found = predict(self._enter(points))
        if self.chart is None:
            return found
        samples: Samples = predict.__self__.samples  # those of the chart
        size = float(samples.weights @ (samples.field**2).sum(1)) / self.direction.shape[1]
        away, inside = self.chart.beside(as_matrix(points, "points")), (self._enter(points) ** 2).sum(1)
        unknown = (away / np.where(away + inside > 0, away + inside, 1.0))[:, None]

        def spread(deviation):
            known = np.asarray(self.chart.variances(np.square(deviation)))
            return np.sqrt((1.0 - unknown) * known + unknown * size * self.chart.unit_variances())

        return Prediction(
            found.potential,
            self._leave(found.direction),
            self._leave(found.residual),
            np.sqrt(found.potential_std**2 + size * away),
            spread(found.direction_std),
            spread(found.residual_std),
        )

    def _enter(self, points: Any) -> np.ndarray:
        X = as_matrix(points, "points")
        if X.shape[1] != self.direction.shape[1]:
            raise ValueError(f"points must have {self.direction.shape[1]} columns like the samples, got {X.shape[1]}.")
        return X if self.chart is None else np.asarray(self.chart.encode_points(X))

    def _leave(self, vectors: np.ndarray) -> np.ndarray:
        return vectors if self.chart is None else np.asarray(self.chart.decode(vectors))


def project(
    points: Any,
    field: Any,
    projector: Projector | None = None,
    metric: Metric | None = None,
    measure: Measure = None,
    weights: Any = None,
    key: Any = None,
) -> Projection:
    """Split a sampled field into its closest metric gradient and the residual.

    - `points` (n, d) and `field` (n, d) in ascent sign, or (2, n, d) for two independent estimates of it.
    - `projector`: `KernelProjector()` unless given.
    - `metric`: M, Euclidean unless given.
    - `measure`: mu, the law in which the split is orthogonal: the samples themselves (None), a domain with its uniform
      law, or a sampler `(key, count) -> points`.
    - `weights`: how much each sample counts; zero leaves it out (its row is still predicted).
    - `key`: a JAX random key, or a whole number, for what is drawn: the same answer for the same key.
    """
    key = as_key(key)
    metric = Euclidean() if metric is None else metric
    projector = KernelProjector() if projector is None else projector
    if not isinstance(metric, Metric):
        raise ValueError(f"metric must be a metric such as hpml.Diagonal(m) or hpml.Dense(M), got {kind_of(metric)}.")
    check_projector(projector)
    metric = metric.remembered()
    samples = gather_samples(points, field, weights, metric)
    chart, inner, inner_metric, inner_measure = _enter_chart(samples, metric, measure)
    fit = projector.fit(inner, inner_metric, inner_measure, key)
    potential, direction = (np.asarray(part) for part in fit.at_samples())
    if chart is not None:
        direction = np.asarray(chart.decode(direction))

    X, F = np.asarray(points, np.float64), np.asarray(field, np.float64)
    F = F.mean(0) if F.ndim == 3 else F
    every_potential, every_direction = potential[samples.rows], direction[samples.rows]
    left_out = samples.rows < 0
    if left_out.any():
        inside = X[left_out] if chart is None else chart.encode_points(X[left_out])
        every_potential[left_out] = fit.potential(inside)
        outside = np.asarray(fit.direction(inside))
        every_direction[left_out] = outside if chart is None else chart.decode(outside)
    if not np.isfinite(every_direction).all():
        raise ValueError("The projection is no number: is the metric finite at the samples and between them?")
    return Projection(every_direction, F - every_direction, every_potential, fit.energy(), fit, chart)


def _finite(values: np.ndarray) -> np.ndarray:
    if not np.isfinite(values).all():
        raise ValueError("Some points lie so far from the samples that the answer there is no number: leave them out.")
    return values


def _enter_chart(samples: Samples, metric: Metric, measure: Measure) -> tuple[Chart | None, Samples, Metric, Measure]:
    """Coordinates of the samples' span where it is much smaller than the space, and the measure seen in them.

    Nothing is known of the field beside the span, so that what a measure does there cannot matter: its points are
    those that lie below them in the span.
    """
    if samples.dimension <= 2 * samples.count or not metric.constant:
        return None, samples, metric, measure
    chart, inner = chart_of(samples, metric)
    if measure is None:
        return chart, inner, Euclidean(), None
    given = measure

    def below(key: Any, count: int) -> Any:
        return chart.encode_points(draw_measure(given, samples, key, count)[0])

    return chart, inner, Euclidean(), below
