"""A measure as weights of the samples, for projectors that know the field at the samples alone (`def:proj`)."""

from typing import Any

import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import Array
from hpml.geometry.metric import Metric
from hpml.geometry.samples import Measure, Samples, draw_measure
from hpml.projection.discrete.neighbours import nearest

DRAWS = 64  # points of a given measure for each sample: its weight is known to about an eighth


def measure_weights(samples: Samples, metric: Metric, measure: Measure, key: Any) -> Float[Array, " n"]:
    """The share of the measure that is closest to each sample; a tenth is spread evenly, so that none drops out.

    The samples' own weights where no measure is given.
    """
    if measure is None:
        return np.asarray(samples.weights)
    n = samples.count
    drawn, shares = draw_measure(measure, samples, key, min(DRAWS * n, 1 << 20))
    found = nearest(np.asarray(drawn), np.asarray(samples.points), metric, 1)
    return 0.9 * np.bincount(found.index[:, 0], np.asarray(shares)[found.rows], n) + 0.1 / n
