"""Split the joint update of several learners into the part that climbs one hill and the part that goes in circles."""

from hpml.geometry.domain import Ball, Box, Simplices
from hpml.geometry.metric import Dense, Diagonal, Euclidean, LowRank, Shahshahani, Varying

__all__ = [
    "Ball",
    "Box",
    "Dense",
    "Diagonal",
    "Euclidean",
    "LowRank",
    "Shahshahani",
    "Simplices",
    "Varying",
]
