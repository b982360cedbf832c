"""Split the joint update of several learners into the part that climbs one hill and the part that goes in circles."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hpml.geometry.domain import Ball, Box, Simplices, Space
    from hpml.geometry.metric import Dense, Diagonal, Euclidean, LowRank, Shahshahani, Varying
    from hpml.plugin.hodge import hodge_projection
    from hpml.plugin.preset import ctde_hpml
    from hpml.projection.affine import affine_projection
    from hpml.projection.nonpotentiality import nonpotentiality
    from hpml.projection.project import Projection, project
    from hpml.projection.projectors.graph import GraphProjector
    from hpml.projection.projectors.kernel import KernelProjector
    from hpml.projection.projectors.neural import NeuralProjector
    from hpml.record.probe import probe
    from hpml.record.recorder import Recorder

__all__ = [
    "Ball",
    "Box",
    "Dense",
    "Diagonal",
    "Euclidean",
    "GraphProjector",
    "KernelProjector",
    "LowRank",
    "NeuralProjector",
    "Projection",
    "Recorder",
    "Shahshahani",
    "Simplices",
    "Space",
    "Varying",
    "affine_projection",
    "ctde_hpml",
    "hodge_projection",
    "nonpotentiality",
    "probe",
    "project",
]

# Names are imported when they are first used: the processes that step environments import hpml.marl without JAX.
_HOMES = {
    "geometry.domain": ("Ball", "Box", "Simplices", "Space"),
    "geometry.metric": ("Dense", "Diagonal", "Euclidean", "LowRank", "Shahshahani", "Varying"),
    "plugin.hodge": ("hodge_projection",),
    "plugin.preset": ("ctde_hpml",),
    "projection.affine": ("affine_projection",),
    "projection.nonpotentiality": ("nonpotentiality",),
    "projection.project": ("Projection", "project"),
    "projection.projectors.graph": ("GraphProjector",),
    "projection.projectors.kernel": ("KernelProjector",),
    "projection.projectors.neural": ("NeuralProjector",),
    "record.probe": ("probe",),
    "record.recorder": ("Recorder",),
}
_HOME = {name: f"hpml.{home}" for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
