"""`prop:metric_discrete`: the metric edge flow of a metric gradient is the potential's difference, to a measured order.

The paper bounds the error by the second order of the edge length; the trapezoid rule reaches the third.
"""

import numpy as np
import pytest

from hpml.geometry.metric import Dense, Diagonal, Euclidean, LowRank, Shahshahani
from hpml.projection.discrete.flow import edge_flow
from hpml.projection.discrete.graph import make_graph


def potential(X):
    return np.sin(X[:, 0]) * np.exp(0.5 * X[:, 1]) + X[:, 2] ** 3


def differential(X):
    e = np.exp(0.5 * X[:, 1])
    return np.stack([np.cos(X[:, 0]) * e, 0.5 * np.sin(X[:, 0]) * e, 3 * X[:, 2] ** 2], 1)


A = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.5]])
METRICS = [Euclidean(), Diagonal([1.0, 4.0, 0.2]), Dense(A), LowRank(np.ones(3), A[:, :1]), Shahshahani(4)]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: type(metric).__name__)
def test_the_error_is_third_order(metric):
    rng = np.random.default_rng(0)
    starts = rng.dirichlet(np.full(4, 4.0), size=200)[:, :3]
    way = rng.normal(size=starts.shape)
    errors, lengths = [], 0.02 * 0.5 ** np.arange(4)
    for h in lengths:
        X = np.concatenate([starts, starts + h * way])
        graph = make_graph(np.stack([np.arange(200), np.arange(200, 400)], 1), np.ones(200), 400)
        omega = edge_flow(graph, X, np.asarray(metric.raise_index(differential(X), X)), metric)
        errors.append(np.abs(omega - (potential(X[200:]) - potential(X[:200]))).mean())
    order = np.polyfit(np.log(lengths), np.log(errors), 1)[0]
    assert order == pytest.approx(3.0, abs=0.1)


def test_one_end_alone_is_second_order():
    # What the proposition bounds: the differential at x alone.
    starts = np.random.default_rng(1).uniform(0.2, 0.8, (200, 3))
    way = np.random.default_rng(2).normal(size=starts.shape)
    lengths = 0.02 * 0.5 ** np.arange(4)
    errors = [
        np.abs(h * (differential(starts) * way).sum(1) - (potential(starts + h * way) - potential(starts))).mean()
        for h in lengths
    ]
    assert np.polyfit(np.log(lengths), np.log(errors), 1)[0] == pytest.approx(2.0, abs=0.1)
