"""`diagnose`: from samples to a `Diagnosis` (`def:nonpot`, `rem:convention_graph`)."""

from typing import Any

from hpml.diagnosis.result import Diagnosis


def diagnose(points: Any, field: Any = None) -> Diagnosis:
    """How much of a sampled field circulates, where, around which loops, and what to do."""
    raise NotImplementedError
