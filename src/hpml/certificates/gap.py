"""The gap bounds of whole runs: `thm:gap`, `thm:gap_L2` and, for inexact directions, `thm:inexact`.

All three take the run's own steps: a run that does not climb the potential is what they can fail on.
"""

import numpy as np

from hpml.certificates.certificate import Certificate
from hpml.certificates.setting import Setting

ASSUMED = ("bounded", "euclidean", "feasible", "step", "gradient", "eta")  # and exact directions, but for the last


@np.errstate(invalid="ignore")  # 0 x D where the domain has no end
def best_iterate(setting: Setting) -> Certificate:
    """Gap(x_best) <= (D + eta G) (2 (Phi_max - Phi_min) / (T eta))^1/2 + D epsilon (`thm:gap`).

    x_best is the point of each start whose step is the shortest.
    """
    gaps, case = _best(setting)
    return _certificate(setting, "thm:gap", "The best point's gap", gaps, _stationarity(setting), "epsilon", case)


@np.errstate(invalid="ignore")  # 0 x D where the domain has no end
def output_law(setting: Setting) -> Certificate:
    """The mean gap of a point drawn from x_0 .. x_{T-1} has the bound of `thm:gap` with D E_T (`thm:gap_L2`).

    E_T^2 is the mean of |R|^2 over the same points.
    """
    energy = np.sqrt((setting.residuals**2).mean(0))
    bounds = _stationarity(setting) + setting["D"] * energy
    k = int(np.argmin(bounds - setting.gaps.mean(0))) if "bounded" not in setting.faults else 0
    case = f"mean over the run, tightest for start {k}, E_T = {energy[k]:.3g}"
    return _certificate(
        setting, "thm:gap_L2", "The mean gap", (k, setting.gaps.mean(0)[k]), float(bounds[k]), None, case
    )


@np.errstate(invalid="ignore")  # 0 x D where the domain has no end
def inexact(setting: Setting) -> Certificate:
    """Gap(x_best) <= (D + eta (G + delta)) (4 (Phi_max - Phi_min) / (T eta) + 4 delta^2)^1/2 + D (epsilon + delta).

    `thm:inexact`: delta is the largest |g_t - grad Phi(x_t)| over the directions that the run is meant to follow.
    """
    gaps, case = _best(setting)
    delta, D, eta = setting["delta"], setting["D"], setting["eta"]
    stationarity = np.sqrt(4 * _height(setting) / (setting["T"] * eta) + 4 * delta**2)
    bound = (D + eta * (setting["G"] + delta)) * stationarity + D * delta
    return _certificate(setting, "thm:inexact", "The best point's gap", gaps, float(bound), "epsilon", case, ("delta",))


def _height(setting: Setting) -> float:
    return setting["Phi_max"] - setting["Phi_min"]


def _stationarity(setting: Setting) -> float:
    rate = np.sqrt(2 * _height(setting) / (setting["T"] * setting["eta"]))
    return float((setting["D"] + setting["eta"] * setting["G"]) * rate)


def _best(setting: Setting) -> tuple[tuple[int, float], str]:
    """The start whose best iterate has the largest gap, and that gap."""
    steps = np.argmin(setting.mappings, axis=0)
    gaps = setting.gaps[steps, np.arange(len(steps))]
    k = int(np.argmax(gaps))
    return (k, float(gaps[k])), f"point {steps[k]} of start {k}, the worst of {len(steps)} starts"


def _certificate(
    setting: Setting,
    label: str,
    claim: str,
    value: tuple[int, float],
    bound: float,
    residual: str | None,
    case: str,
    also: tuple[str, ...] = (),
) -> Certificate:
    if residual is not None:
        bound = bound + setting["D"] * setting[residual]
    # |Gap(x)| <= D |U(x)| <= D (G + epsilon) at every point.
    most = setting["D"] * (setting["G"] + setting["epsilon"])
    names = ("eta", "T", "D", "L", "G", "Phi_max", "Phi_min", *((residual,) if residual else ()), *also, "departure")
    return Certificate(
        label=label,
        claim=claim,
        value=float(value[1]),
        bound=bound,
        relation="<=",
        tolerance=setting.slip * (setting["G"] + setting["epsilon"]),
        constants=setting.used(*names),
        violated=setting.violated(*ASSUMED, *(() if "delta" in also else ("exact",))),
        unchecked=setting.unchecked("L"),
        case=case,
        vacuous=bool(bound >= most),
    )
