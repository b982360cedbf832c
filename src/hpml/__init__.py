"""Split the joint update of several learners into the part that climbs one hill and the part that goes in circles."""

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
