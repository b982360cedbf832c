"""The paper's plug-in, one call away (`alg:ctde-hpml`)."""

from typing import Any

import optax

from hpml.plugin.hodge import hodge_projection
from hpml.projection.projector import Projector
from hpml.projection.projectors.graph import GraphProjector
from hpml.projection.projectors.neural import NeuralProjector


def ctde_hpml(kind: str = "graph", history: int = 64, **options: Any) -> optax.GradientTransformationExtraArgs:
    """CTDE-HPML with the paper's settings, before the actors' optimiser; `options` go to `hodge_projection`.

    The paper follows the projected direction wherever it leads and whatever the history can tell: there is no safeguard
    and no caution unless you ask for them.

    - "graph": k = 4, unit weights, the potential lifted with ridge 1e-4, a new graph every 8 updates.
    - "neural": a potential network at rate 1e-3 with 2 inner steps every update.
    """
    if kind not in ("graph", "neural"):
        raise ValueError(f'kind must be "graph" or "neural", got {kind!r}.')
    projector: Projector = GraphProjector.paper() if kind == "graph" else NeuralProjector.paper()
    settings: dict[str, Any] = {"refresh": 8 if kind == "graph" else 1, "safeguard": None, "cautious": False, **options}
    return hodge_projection(projector, history, **settings)
