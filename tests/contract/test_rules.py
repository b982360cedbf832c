"""Every update rule keeps one list of truths. They are found by listing their folder, so a new file is tested too."""

import jax
import numpy as np
import pytest

import hpml
from hpml.catalogue import list_rules
from hpml.dynamics.oracle import PRODUCT
from hpml.dynamics.rules.hpml import HPML
from hpml.dynamics.run import run
from hpml.games.families.linear import Linear, swirl
from hpml.games.families.normal_form import bimatrix, prisoners_dilemma
from hpml.geometry.arrays import in_double

N = 64
# A rule that is slow by default may be quick here; the truths stay the same.
QUICK: dict[str, dict] = {
    "hpml": {"projector": hpml.GraphProjector(), "samples": N},
    "neural_hpml": {
        "projector": hpml.NeuralProjector(schedule="online", width=8),
        "samples": N,
        "memory": 16,
        "batch": 32,
        "warm": 100,
    },
}
RULES = {name: kind(**QUICK.get(name, {})) for name, kind in list_rules().items()}
RULES |= {
    f"hpml {how}": HPML(**QUICK["hpml"], residual=how, step=0.1) for how in ("extragradient", "optimistic", "adjust")
}
RULES["hpml around the iterate"] = HPML(**QUICK["hpml"], reach=0.3, refresh=30)

# Evaluations before the first step, and in each step; a new rule says its own.
COST = {
    "simultaneous": (0, 1),
    "extragradient": (0, 2),
    "optimistic": (0, 1),
    "mirror_prox": (0, 2),
    "symplectic": (0, 1 + 2 * PRODUCT),
    "consensus": (0, 1 + PRODUCT),
    "negative_momentum": (0, 1),
    "anchored": (0, 2),
    "hpml": (N, 0),
    "hpml extragradient": (N, 2),
    "hpml optimistic": (N, 1),
    "hpml adjust": (0, 1 + 2 * PRODUCT),
    "hpml around the iterate": (N, None),  # sampled anew every 30 steps
    "neural_hpml": (N, 1),
}
# Rules that follow the projection alone rest where it does, not where the field does.
OTHER_FIXED_POINTS = ("hpml", "hpml around the iterate", "neural_hpml")
# These change the direction by products with the Jacobian, which need not vanish where the field pushes at a boundary.
OTHER_BOUNDARY_POINTS = (*OTHER_FIXED_POINTS, "symplectic", "consensus", "hpml adjust")
# How far from the maximum a rule may end: what its sampled projection or its slower rate leaves.
LEFT = {"anchored": 0.1, "hpml": 0.02, "hpml around the iterate": 0.02, "neural_hpml": 0.1}

CYCLE = bimatrix([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
SQUARE = Linear([[-1.0, -2.0], [2.0, -1.0]], hpml.Box([-0.4, -1.0], [1.0, 0.3]))
GAMES = {"simplices": CYCLE, "ball": swirl(), "box": SQUARE}


@pytest.fixture(params=RULES, scope="module")
def name(request):
    return request.param


def starts(game, count=2):
    return np.asarray(game.domain.sample(jax.random.key(3), count), np.float64)


@pytest.fixture(scope="module")
def paths(name):
    return {kind: run(game, RULES[name], starts(game), steps=12) for kind, game in GAMES.items()}


_retract = in_double(lambda domain, points: domain.retract(points))


@pytest.mark.parametrize("kind", GAMES)
def test_a_run_stays_in_the_domain_and_finite(paths, kind):
    points = paths[kind].points[1:].reshape(-1, GAMES[kind].domain.dimension)
    np.testing.assert_allclose(_retract(GAMES[kind].domain, points), points, atol=1e-9)
    assert np.isfinite(paths[kind].directions).all()


def test_a_step_follows_its_direction(name, paths):
    """x + eta g, brought back; agents that take turns are brought back one by one, so within the domain alone."""
    path, game = paths["ball"], GAMES["ball"]
    before, g = path.points[:-1].reshape(-1, 2), path.directions.reshape(-1, 2)
    after = _retract(game.domain, before + RULES[name].step * g)
    inside = np.linalg.norm(after, axis=1) < (0.95 if name == "negative_momentum" else 2.0)
    assert inside.sum() >= 12
    np.testing.assert_allclose(path.points[1:].reshape(-1, 2)[inside], after[inside], atol=1e-9)


def test_every_evaluation_is_counted(name, paths):
    before, each = COST[name]
    spent = paths["ball"].evaluations
    assert spent[0] == before
    if each is None:
        assert spent[-1] == N
    else:
        np.testing.assert_array_equal(np.diff(spent), each)


def test_one_seed_one_run(name, paths):
    again = run(GAMES["ball"], RULES[name], starts(GAMES["ball"]), steps=12)
    np.testing.assert_array_equal(again.points, paths["ball"].points)


def test_a_start_does_not_depend_on_the_others(name, paths):
    alone = run(GAMES["ball"], RULES[name], starts(GAMES["ball"])[1:2], steps=12)
    exact = "neural" not in name  # float32 sums in another order
    np.testing.assert_allclose(alone.points[:, 0], paths["ball"].points[:, 1], atol=1e-9 if exact else 1e-3)


def test_noise_changes_a_run_and_has_a_seed(name, paths):
    first, same, other = (
        run(GAMES["ball"], RULES[name], starts(GAMES["ball"]), steps=6, noise=0.1, seed=seed).points
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)
    assert not np.allclose(first, paths["ball"].points[:7])


@pytest.mark.parametrize("more", [0, 1, 7])
def test_a_budget_is_never_overspent(name, more):
    before, each = COST[name]
    path = run(GAMES["ball"], RULES[name], starts(GAMES["ball"]), steps=9, budget=before + more)
    assert path.evaluations[-1] <= before + more
    if each:
        assert len(path.directions) == more // each
    else:
        assert len(path.directions) == 9


def test_fixed_points_of_the_field_stay_fixed(name):
    game = CYCLE
    still = run(game, RULES[name], np.zeros((2, 4)), steps=5).points
    if name in OTHER_FIXED_POINTS:
        assert np.abs(still[-1]).max() > 1e-6
    else:
        np.testing.assert_allclose(still, 0.0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in RULES if name not in OTHER_BOUNDARY_POINTS])
def test_boundary_equilibria_stay_fixed(name):
    game = prisoners_dilemma()
    corner = np.asarray(game.equilibrium)[None]
    still = run(game, RULES[name], corner, steps=3).points
    np.testing.assert_allclose(still, np.broadcast_to(corner, still.shape), atol=1e-9)


def test_a_potential_game_is_climbed_to_its_maximum(name):
    """F is the gradient of -(x - c)^T H (x - c) / 2 with the top away from the start and the middle."""
    H, top = np.diag([1.0, 0.5]), np.array([0.3, -0.4])

    class Hill(Linear):
        def field(self, point):
            return -H @ (point - top)

    game = Hill(-H)
    path = run(game, RULES[name], starts(game), steps=300)
    assert np.linalg.norm(path.points[-1] - top, axis=1).max() < LEFT.get(name, 1e-3)


def test_each_start_may_have_its_own_step(name):
    rule = RULES[name]
    begin = np.repeat(starts(GAMES["ball"], 1), 2, axis=0)
    both = run(GAMES["ball"], _with_step(rule, np.array([[0.05], [0.2]])), begin, steps=5).points
    for k, step in enumerate((0.05, 0.2)):
        alone = run(GAMES["ball"], _with_step(rule, step), begin[:1], steps=5).points
        np.testing.assert_allclose(both[:, k], alone[:, 0], atol=1e-3 if "neural" in name else 1e-9)


@pytest.mark.parametrize("step", [0.0, -0.1, np.nan, np.inf])
def test_a_step_must_be_positive(name, step):
    with pytest.raises(ValueError, match="step"):
        _with_step(RULES[name], step)


def _with_step(rule, step):
    return type(rule)(**{**{key: getattr(rule, key) for key in rule.__dataclass_fields__}, "step": step})
