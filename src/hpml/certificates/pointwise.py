"""The lemmas that hold at every point: `lem:gap_residual`, `lem:gap_mapping`, `lem:gap_mapping_inexact`.

They are evaluated at every point of a run, with projected steps computed anew, and reported where they are tightest.
"""

import numpy as np

from hpml.certificates.certificate import Certificate, tightest
from hpml.certificates.constants import retract
from hpml.certificates.setting import Setting


@np.errstate(invalid="ignore")  # 0 x D where the domain has no end
def gap_residual(setting: Setting) -> Certificate:
    """Gap(x) <= Gap_Phi(x) + D |R(x)| (`lem:gap_residual`): Cauchy and Schwarz, in any coordinates."""
    bounds = setting.potential_gaps + setting["D"] * setting.residuals
    return _tightest(setting, "lem:gap_residual", "The gap", setting.gaps, bounds, ("D",), ("bounded", "feasible"))


@np.errstate(invalid="ignore")  # 0 x D where the domain has no end
def gap_mapping(setting: Setting) -> Certificate:
    """Gap_Phi(x) <= (D + eta G) |G_eta(x)| (`lem:gap_mapping`).

    The paper's proof passes through D |G_eta| + eta |G_eta|^2, which is false: it takes eta <grad Phi, x+ - x> >=
    |x+ - x|^2 for an upper bound. Where the step runs into the boundary the product is larger; G |x+ - x| bounds it and
    gives the lemma as stated.
    """
    mapping = _mapping(setting, setting.slopes)
    bounds = (setting["D"] + setting["eta"] * setting["G"]) * mapping
    used, assumed = ("eta", "D", "G"), ("bounded", "euclidean", "feasible")
    return _tightest(setting, "lem:gap_mapping", "The potential's gap", setting.potential_gaps, bounds, used, assumed)


@np.errstate(invalid="ignore")  # 0 x D where the domain has no end
def gap_mapping_inexact(setting: Setting) -> Certificate:
    """Gap_Phi(x) <= (D + eta |g|) |G_eta(x)| + D |g - grad Phi(x)|, the step along g (`lem:gap_mapping_inexact`)."""
    g = setting.directions
    mapping = _mapping(setting, g)
    lengths = np.linalg.norm(g, axis=-1)
    bounds = (setting["D"] + setting["eta"] * lengths) * mapping + setting["D"] * setting.errors
    used, assumed = ("eta", "D", "delta"), ("bounded", "euclidean", "feasible")
    return _tightest(
        setting, "lem:gap_mapping_inexact", "The potential's gap", setting.potential_gaps, bounds, used, assumed
    )


def _mapping(setting: Setting, directions: np.ndarray) -> np.ndarray:
    X, eta = np.asarray(setting.run.points[:-1], np.float64), setting["eta"]
    return np.linalg.norm(retract(setting.run.game.domain, X + eta * directions) - X, axis=-1) / eta


def _tightest(
    setting: Setting,
    label: str,
    claim: str,
    values: np.ndarray,
    bounds: np.ndarray,
    used: tuple[str, ...],
    assumed: tuple[str, ...],
) -> Certificate:
    case, t, k, tolerance = "", 0, 0, 0.0
    if "bounded" not in setting.faults:
        # A point beside the domain moves every inner product by its slip, and mappings by slip / eta.
        tolerance = setting.slip * (setting["G"] + setting["epsilon"] + setting["D"] / setting["eta"])
        t, k = tightest(values, bounds, tolerance)
        case = f"tightest at step {t} of start {k}"
    return Certificate(
        label=label,
        claim=claim,
        value=float(values[t, k]),
        bound=float(bounds[t, k]),
        relation="<=",
        tolerance=tolerance,
        constants=setting.used(*used),
        violated=setting.violated(*assumed),
        unchecked=setting.potential.unchecked,
        case=case or "no case: there is no gap on this domain",
    )
