"""Every certificate of a run at once (`sec:theory`)."""

from typing import Any

from hpml.certificates.ascent import lyapunov, step_sum
from hpml.certificates.certificate import Certificate
from hpml.certificates.gap import best_iterate, inexact, output_law
from hpml.certificates.pointwise import gap_mapping, gap_mapping_inexact, gap_residual
from hpml.certificates.potential import Potential
from hpml.certificates.setting import examine
from hpml.dynamics.run import Run

EXACT = (lyapunov, step_sum, gap_residual, gap_mapping, best_iterate, output_law)
INEXACT = (gap_mapping_inexact, inexact)


def certify(
    run: Run, potential: Potential, directions: Any = None, samples: int = 1000, seed: int = 0
) -> tuple[Certificate, ...]:
    """All certificates of a run against a potential, in the paper's order; `examine` explains the arguments.

    On a run that follows inexact directions those for exact ascent say "assumption violated": `thm:inexact` is for it.
    """
    setting = examine(run, potential, directions, samples, seed)
    return tuple(kind(setting) for kind in (*EXACT, *INEXACT))
