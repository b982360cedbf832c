"""Lyapunov improvement of projected ascent (`thm:lyapunov`) and the bound on the sum of its steps below it."""

import numpy as np

from hpml.certificates.certificate import Certificate, tightest
from hpml.certificates.setting import Setting

ASSUMED = ("euclidean", "feasible", "step", "gradient", "eta", "exact")


def lyapunov(setting: Setting) -> Certificate:
    """Phi(x_{t+1}) - Phi(x_t) >= (1/eta - L/2) |x_{t+1} - x_t|^2 at every step (`thm:lyapunov`).

    The proof needs no bounded domain. Where eta <= 1/L this implies the theorem's second inequality.
    """
    rise = np.diff(setting.heights, axis=0)
    needed = (1 / setting["eta"] - setting["L"] / 2) * (setting.moves**2).sum(-1)
    t, k = tightest(needed, rise, setting.rounding)
    return Certificate(
        label="thm:lyapunov",
        claim="The potential's rise in a step",
        value=float(rise[t, k]),
        bound=float(needed[t, k]),
        relation=">=",
        tolerance=setting.rounding,
        constants=setting.used("eta", "L", "departure"),
        violated=setting.violated(*ASSUMED),
        unchecked=setting.unchecked("L"),
        case=f"tightest at step {t} of start {k}",
    )


def step_sum(setting: Setting) -> Certificate:
    """The sum over t of |G_eta(x_t)|^2 <= 2 (Phi_max - Phi_min) / eta: no cycle can last (below `thm:lyapunov`)."""
    sums = (setting.mappings**2).sum(0)
    k = int(np.argmax(sums))
    height = setting["Phi_max"] - setting["Phi_min"]
    return Certificate(
        label="thm:lyapunov, sum of steps",
        claim="The sum of squared steps over eta squared",
        value=float(sums[k]),
        bound=2 * height / setting["eta"],
        relation="<=",
        tolerance=2 * setting.rounding * setting["T"] / setting["eta"],
        constants=setting.used("eta", "L", "Phi_max", "Phi_min", "departure"),
        violated=setting.violated(*ASSUMED, "bounded"),
        unchecked=setting.unchecked("L"),
        case=f"largest for start {k}",
    )
