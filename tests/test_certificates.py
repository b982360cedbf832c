"""Certificates: they hold where they should, fail where they should, and say on what they rest."""

import equinox as eqx
import numpy as np
import pytest
from ascent import SAMPLES, Ascent, ascend, random_normal_form, random_quadratic, starts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml.certificates.certify import certify
from hpml.certificates.potential import Given, Projected, Quadratic
from hpml.certificates.setting import examine
from hpml.diagnostics.gaps import stampacchia_gap
from hpml.dynamics.rules.simultaneous import Simultaneous
from hpml.dynamics.run import run
from hpml.games.families.linear import Linear, swirl
from hpml.games.families.normal_form import bimatrix
from hpml.games.game import evaluate
from hpml.geometry.domain import Box, Space
from hpml.projection.project import project
from hpml.projection.projectors.graph import GraphProjector

RUN_LEVEL = {"thm:lyapunov", "thm:gap", "thm:gap_L2", "thm:inexact"}
CONCAVE = Quadratic(np.diag([-1.0, -0.5]))
BOWL = Linear(np.array([[-1.0, 0.2], [-0.2, -0.5]]), Box([-1.0, -1.0], [1.0, 2.0]))
STARTS = np.array([[0.5, 0.5], [-0.9, 1.9]])


def verdicts(certificates):
    return {c.label: c.verdict for c in certificates}


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["box", "ball", "simplices"]),
    share=st.sampled_from([1.0, 0.99, 0.5, 0.01]),
)
def test_all_hold_on_exact_ascent_of_random_quadratics(seed, kind, share):
    rng = np.random.default_rng(seed)
    game, potential = random_quadratic(kind, rng)
    L = np.linalg.norm(potential.matrix, 2)
    path = ascend(game, potential, share / L, rng)
    for certificate in certify(path, potential, samples=SAMPLES):
        assert certificate.verdict == "holds", certificate.sentence()
    # With the run's own constants every bound is tighter, and still holds.
    for certificate in certify(path, potential, samples=0):
        assert certificate.verdict == "holds", certificate.sentence()


@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.95, 0.3]))
def test_all_hold_on_exact_ascent_of_random_games_whose_constants_are_estimated(seed, share):
    rng = np.random.default_rng(seed)
    game, potential = random_normal_form(rng)
    points = starts_of(game, rng, 200)
    step = share / potential.smoothness(points).value / 1.3  # the run may meet more curvature than these points do
    certificates = certify(ascend(game, potential, step, rng), potential, samples=SAMPLES)
    for certificate in certificates:
        assert certificate.verdict == "holds", certificate.sentence()
    assert certificates[0].constants["L"].source == "estimated"
    assert any("1/L" in open_end for open_end in certificates[0].unchecked)


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["box", "ball", "simplices"]),
    error=st.sampled_from([1e-3, 0.1, 1.0, 30.0]),
)
def test_the_inexact_ones_hold_with_any_error_and_the_exact_ones_stand_back(seed, kind, error):
    rng = np.random.default_rng(seed)
    game, potential = random_quadratic(kind, rng)
    path = ascend(game, potential, rng.uniform(0.1, 1.0) / np.linalg.norm(potential.matrix, 2), rng, error=error)
    setting = examine(path, potential, samples=SAMPLES)
    assert setting["delta"] == pytest.approx(error)
    found = verdicts(certify(path, potential, samples=SAMPLES))
    assert found["thm:inexact"] == "holds"
    assert found["lem:gap_mapping_inexact"] == "holds"
    assert "fails" not in found.values()


def test_a_run_of_the_wrong_sign_fails_all_four_run_level_ones():
    """The run descends; the directions it is meant to follow are the gradient's, so that no accuracy excuses it."""
    path = run(BOWL, Ascent(CONCAVE, 0.9, sign=-1.0), STARTS, 400)
    meant = -np.asarray(path.directions)
    certificates = certify(path, CONCAVE, directions=meant)
    assert {label for label, verdict in verdicts(certificates).items() if verdict == "fails"} == RUN_LEVEL
    by_label = {c.label: c for c in certificates}
    assert by_label["thm:gap"].constants["departure"].value > 1.0
    assert "departs from exact ascent" in by_label["thm:gap"].sentence()
    assert by_label["thm:inexact"].constants["delta"].value < 1e-12
    # What the run recorded is honest about its sign: the exact ones fail without being told what was meant.
    recorded = verdicts(certify(path, CONCAVE))
    assert {label for label, verdict in recorded.items() if verdict == "fails"} == RUN_LEVEL - {"thm:inexact"}
    # With the error that it has, 2 |grad Phi|, the inexact bound is true and says nothing.
    assert {c.label: c.vacuous for c in certify(path, CONCAVE)}["thm:inexact"]


@pytest.mark.parametrize("step", [1.01, 3.0])
def test_a_step_above_the_limit_is_an_assumption_violated(step):
    """L = 1. At 3.0 the inequalities themselves break; the verdict is the same."""
    path = run(BOWL, Ascent(CONCAVE, step), STARTS, 200)
    for certificate in certify(path, CONCAVE):
        if certificate.label in RUN_LEVEL:
            assert certificate.verdict == "assumption violated"
            assert any("above 1/L" in fault for fault in certificate.violated)
            assert "does not apply" in certificate.sentence()
        elif certificate.label.startswith("lem"):
            assert certificate.verdict == "holds"
    if step == 3.0:
        assert not {c.label: c.holds for c in certify(path, CONCAVE)}["thm:gap_L2"]


def test_at_the_limit_the_theorem_applies():
    found = verdicts(certify(run(BOWL, Ascent(CONCAVE, 1.0), STARTS, 50), CONCAVE))
    assert set(found.values()) == {"holds"}


def test_constants_are_those_of_the_closed_form():
    """On the box [-1, 1] x [-1, 2]: D^2 = 13, G^2 = 1 + 1, Phi from -3/2 to 0, |R| = .2 |x|."""
    setting = examine(run(BOWL, Ascent(CONCAVE, 0.5), STARTS, 20), CONCAVE)
    assert setting["D"] == pytest.approx(np.sqrt(13.0))
    assert setting["L"] == pytest.approx(1.0)
    assert setting["G"] == pytest.approx(np.sqrt(2.0), rel=1e-6)
    assert setting["Phi_max"] == pytest.approx(0.0, abs=1e-6)
    assert setting["Phi_min"] == pytest.approx(-1.5, rel=1e-6)
    assert setting["epsilon"] == pytest.approx(0.2 * np.sqrt(5.0), rel=1e-6)
    assert setting["departure"] < 1e-12
    sources = {name: constant.source for name, constant in setting.constants.items()}
    assert sources["D"] == sources["L"] == "computed"
    assert sources["G"] == sources["epsilon"] == "estimated"


def test_the_bounds_are_the_papers():
    """The same box and potential, every constant known: written out from the statements."""
    T, eta, delta = 20, 0.5, 0.1
    path = run(BOWL, Ascent(CONCAVE, eta, error=delta), STARTS, T)
    setting = examine(path, CONCAVE)
    found = {c.label: c for c in certify(path, CONCAVE)}
    D, G, height, epsilon = np.sqrt(13.0), np.sqrt(2.0), 1.5, 0.2 * np.sqrt(5.0)
    rate = (D + eta * G) * np.sqrt(2 * height / (T * eta))
    inexact = (D + eta * (G + delta)) * np.sqrt(4 * height / (T * eta) + 4 * delta**2) + D * (epsilon + delta)
    X, k = path.points[:-1], int(found["thm:gap_L2"].case.split("start ")[1][0])
    energy = np.sqrt(np.mean(0.04 * (X[:, k] ** 2).sum(-1)))
    assert found["thm:gap"].bound == pytest.approx(rate + D * epsilon, rel=1e-5)
    assert found["thm:gap_L2"].bound == pytest.approx(rate + D * energy, rel=1e-5)
    assert found["thm:inexact"].bound == pytest.approx(inexact, rel=1e-5)
    assert found["thm:lyapunov, sum of steps"].bound == pytest.approx(2 * height / eta, rel=1e-5)
    best = np.argmin(np.linalg.norm(np.diff(path.points, axis=0), axis=-1), axis=0)
    gaps = [stampacchia_gap(BOWL, X[t, k][None])[0] for k, t in enumerate(best)]
    assert found["thm:gap"].value == found["thm:inexact"].value == pytest.approx(max(gaps))
    mapping = np.linalg.norm(np.diff(path.points, axis=0), axis=-1) / eta
    assert found["thm:lyapunov, sum of steps"].value == pytest.approx((mapping**2).sum(0).max())
    assert setting.used("delta")["delta"].value == pytest.approx(delta)


def test_curvature_is_found_from_gradients_alone_and_a_wrong_claim_is_caught():
    rng = np.random.default_rng(0)
    game, potential = random_quadratic("ball", rng)
    L = np.linalg.norm(potential.matrix, 2)
    path = ascend(game, potential, 0.5 / L, rng)
    found = examine(path, Given(potential.value, potential.gradient), samples=SAMPLES)
    assert found["L"] == pytest.approx(L, rel=1e-3)
    assert found.constants["L"].source == "estimated"
    claimed = examine(path, Given(potential.value, potential.gradient, 1e-3 * L), samples=SAMPLES)
    assert claimed.constants["L"].source == "given"
    assert "bends" in claimed.faults["eta"]
    careful = certify(path, Given(potential.value, potential.gradient, 2 * L), samples=SAMPLES)[0]
    assert careful.verdict == "holds"
    assert any("given" in open_end for open_end in careful.unchecked)


def test_a_gradient_that_is_not_the_potentials_is_an_assumption_violated():
    path = run(BOWL, Ascent(CONCAVE, 0.5), STARTS, 20)
    twice = Given(CONCAVE.value, lambda x: 1.5 * CONCAVE.gradient(x), 1.5)
    assert "gradient" in examine(path, twice).faults


def test_dropped_coordinates_are_an_assumption_violated():
    A = np.random.default_rng(1).normal(size=(3, 3))
    path = run(bimatrix(A, A, coordinates="dropped"), Simultaneous(0.1), np.full((1, 4), 0.2), 30)
    field = Given(lambda x: np.zeros(len(x)), lambda x: np.zeros_like(x))
    found = certify(path, field, samples=SAMPLES)
    for certificate in found:
        if certificate.label == "lem:gap_residual":
            assert certificate.verdict == "holds"  # Cauchy and Schwarz need no projection
        else:
            assert certificate.verdict == "assumption violated"
            assert any("dropped" in fault for fault in certificate.violated)
    # With two actions each the dropped coordinates are boxes, and nothing is violated.
    pair = run(bimatrix(A[:2, :2], A[:2, :2], coordinates="dropped"), Simultaneous(0.1), np.full((1, 2), 0.3), 5)
    assert "euclidean" not in examine(pair, field, samples=SAMPLES).faults


def test_other_updates_and_domains_are_told():
    mirror = run(bimatrix(np.eye(3), np.eye(3)), Simultaneous(0.1), np.full((1, 4), 0.05), 20, retraction="softmax")
    nothing = Given(lambda x: np.zeros(len(x)), lambda x: np.zeros_like(x))
    assert "step" in examine(mirror, nothing, samples=SAMPLES).faults
    free = run(Linear(-np.eye(2), Space(2)), Ascent(Quadratic(-np.eye(2)), 0.5), STARTS, 20)
    found = {c.label: c for c in certify(free, Quadratic(-np.eye(2)))}
    assert found["thm:lyapunov"].verdict == "holds"  # its proof needs no bounded domain
    assert found["thm:gap"].verdict == "assumption violated"
    assert all(c.sentence() for c in found.values())
    away = run(BOWL, Ascent(Quadratic(np.eye(2)), 0.5), STARTS, 20, retraction="identity")
    assert "feasible" in examine(away, Quadratic(np.eye(2))).faults


def test_a_raw_run_against_its_projected_potential_is_not_exact_ascent():
    path = run(swirl(2.0), Simultaneous(0.1), np.array([[0.5, 0.0]]), 50)
    found = verdicts(certify(path, Quadratic(-np.eye(2)), samples=SAMPLES))
    assert found["thm:lyapunov"] == found["thm:gap"] == "assumption violated"
    assert found["thm:inexact"] == found["lem:gap_residual"] == "holds"


def test_a_projections_own_ascent_is_certified():
    """Phi is the projection's potential, R what it left over; the game's own gap is bounded."""
    rng = np.random.default_rng(0)
    game = swirl(1.0)
    X = rng.uniform(-0.7, 0.7, size=(40, 2))
    potential = Projected(project(X, evaluate(game, X)))
    path = run(game, Ascent(potential, 0.3), np.array([[0.6, 0.1], [-0.2, 0.5]]), 60)
    certificates = certify(path, potential, samples=SAMPLES)
    assert set(verdicts(certificates).values()) == {"holds"}
    assert certificates[0].unchecked
    wrong = run(game, Ascent(potential, 0.3, sign=-1.0), np.array([[0.6, 0.1], [-0.2, 0.5]]), 60)
    assert verdicts(certify(wrong, potential, samples=SAMPLES))["thm:lyapunov"] == "fails"
    # The graph's lift is no gradient of its potential between the samples, and that is seen.
    lifted = Projected(project(X, evaluate(game, X), GraphProjector.paper()))
    assert "gradient" in examine(path, lifted, samples=SAMPLES).faults


def test_bad_input_is_told():
    path = run(BOWL, Ascent(CONCAVE, 0.5), STARTS, 3)
    with pytest.raises(ValueError, match="directions must have shape"):
        examine(path, CONCAVE, directions=np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match="square matrix"):
        Quadratic(np.zeros((2, 3)))
    short = eqx.tree_at(lambda r: (r.points, r.directions), path, (path.points[:1], path.directions[:0]))
    with pytest.raises(ValueError, match="at least one step"):
        examine(short, CONCAVE)
