"""What samples of a joint update say about circulation, in numbers and in words: `diagnose` gives a `Diagnosis`."""

from hpml.diagnosis.diagnose import diagnose
from hpml.diagnosis.result import BlockShare, CoordinateShare, Diagnosis, Plane

__all__ = ["BlockShare", "CoordinateShare", "Diagnosis", "Plane", "diagnose"]
