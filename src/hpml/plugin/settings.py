"""What the settings of `hpml.hodge_projection` may be: a sentence for each that cannot work.

Numbers that scale something may be arrays, as `optax.inject_hyperparams` hands over those that follow a schedule; what
these hold is then the schedule's business. What shapes depend on must be whole numbers of Python.
"""

import math
from typing import Any

import jax
import numpy as np

from hpml.geometry.history import KEEP
from hpml.plugin.probes import DIRECTIONS
from hpml.plugin.treatment import Treatment
from hpml.projection.projector import check_projector
from hpml.projection.projectors.neural import NeuralProjector

RESIDUAL = ("drop", "extragradient", "optimistic", "adjust")


def check_settings(treat: Treatment, history: Any, keep: Any) -> None:
    """A `ValueError` for the first setting that cannot work."""
    check_projector(treat.projector)
    _whole("history", history, 2, "samples")
    _whole("refresh", treat.refresh, 1, "updates")
    _whole("every", treat.every, 1, "updates")
    _whole("probes", treat.probes.number, 0, "samples off the path")
    _whole("seed", treat.seed, None)
    if treat.sketch is not None:
        _whole("sketch", treat.sketch, 256, "entries to mean anything, or None for exact products")
        if treat.sketch % 2 == 0:
            raise ValueError(f"sketch must be odd, got {treat.sketch}: rows of even width would meet in few places.")
    _one_of("residual", treat.residual, RESIDUAL)
    for name in ("cautious", "cross_fit", "flat", "agents"):
        value = getattr(treat, name)
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{name} is True or False, got {value!r}: with optax.inject_hyperparams a static one.")
    _one_of("keep", keep, KEEP)
    _one_of("probe_in", treat.probes.directions, DIRECTIONS)
    _number("share", treat.share, "the part of the residual that is treated, between 0 and 1", 0.0, 1.0)
    _number("strength", treat.strength, "a number of at least 0", 0.0)
    if treat.safeguard is not None:
        _number("safeguard", treat.safeguard, "a cosine from 0 to below 1, or None", 0.0, np.nextafter(1.0, 0.0))
    if treat.lookahead is not None and treat.stride is not None:
        raise ValueError("lookahead and stride both say how far the first step goes: give one of them.")
    for name in ("lookahead", "stride"):
        value = getattr(treat, name)
        if value is not None:
            _number(name, value, "a positive number: about the learning rate", np.nextafter(0.0, 1.0))
    if treat.residual == "extragradient" and treat.lookahead is None and treat.stride is None:
        raise ValueError('residual="extragradient" needs lookahead or stride, for its first step: the learning rate.')
    if treat.probes.number:
        about = "a positive number: about the learning rate under Adam"
        _number("radius", treat.probes.radius, about, np.nextafter(0.0, 1.0))
    if treat.cross_fit and isinstance(treat.projector, NeuralProjector) and treat.projector.schedule == "online":
        raise ValueError("cross_fit needs fits that start anew: a network trained online has seen every row.")
    if treat.flat and treat.metric is not None:
        raise ValueError("flat works in M = I: leave the metric out, or flat.")
    if treat.agents and treat.metric is not None:
        raise ValueError("agents asks for lengths in M = I: leave the metric out, or agents.")


def _whole(name: str, value: Any, least: int | None, of: str = "") -> None:
    if isinstance(value, jax.Array):
        raise ValueError(
            f"{name} must be a whole number of Python: with optax.inject_hyperparams name it a static one."
        )
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or (least is not None and value < least):
        bound = "" if least is None else f" of at least {least}"
        raise ValueError(f"{name} must be a whole number{bound}{of and ' ' + of}, got {value!r}.")


def _number(name: str, value: Any, meaning: str, low: float, high: float = math.inf) -> None:
    if isinstance(value, jax.Array):
        return
    fine = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not fine or not math.isfinite(value) or not low <= value <= high:
        raise ValueError(f"{name} is {meaning}; got {value!r}.")


def _one_of(name: str, value: Any, options: tuple[str, ...]) -> None:
    if value not in options:
        raise ValueError(f"{name} must be one of {', '.join(options)}; got {value!r}.")
