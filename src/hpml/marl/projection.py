"""The projection inside training: settings, the transformation that they make, and what it logs (`alg:ctde-hpml`).

It stands between the actors' gradients and their optimiser and changes the actors' update direction alone. One look an
update: at the first minibatch, where the likelihood ratios are 1 and nothing is clipped yet, the history grows by one
sample and the change of the direction is formed; the other minibatches of the update get the same change. Passes over
one batch see one field, so this loses little and costs a fraction.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp
import optax
from jax import Array

from hpml.geometry.sketch import WIDTH
from hpml.marl.rollout import minibatches
from hpml.marl.settings import Settings
from hpml.plugin.hodge import hodge_projection
from hpml.plugin.settings import RESIDUAL
from hpml.plugin.treatment import HodgeState
from hpml.projection.projector import Projector
from hpml.projection.projectors.graph import GraphProjector
from hpml.projection.projectors.kernel import KernelProjector
from hpml.projection.projectors.neural import NeuralProjector

KINDS = ("none", "graph", "neural", "kernel")
# What the paper's preset decides: the graph is fitted every 8 updates, the network makes its steps at every update.
PAPER = {"graph": {"refresh": 8, "safeguard": 0.01}, "neural": {"refresh": 1, "safeguard": 0.01}}


@dataclass(frozen=True)
class ProjectionSettings:
    """How the circulating part of the actors' joint update is found and treated."""

    kind: Literal["none", "graph", "neural", "kernel"] = "none"
    """The projector that splits the field; none leaves the update as it is. "adjust" uses none: any kind will do."""
    preset: Literal["default", "paper"] = "default"
    """paper: graph with k = 4, a fit every 8 updates, ridge 1e-4; network at rate 1e-3, 2 steps every update; drop.
    Its refresh and safeguard take the place of those below."""
    residual: Literal["drop", "extragradient", "optimistic", "adjust"] = "drop"
    """What happens to the circulating part: see docs/plugin.md."""
    strength: float = 1.0
    """Lambda of "adjust", in F + lambda A F; docs/projection_in_training.md says why 1."""
    share: float = 1.0
    """How much of the fitted residual is treated, 0 to 1; not for "adjust"."""
    history: int = 12
    """Samples kept, one an update; the memory is 2 (history + refresh) numbers a parameter, brief with a sketch."""
    keep: Literal["recent", "reservoir", "thinned"] = "recent"
    """Which samples are kept."""
    refresh: int = 8
    """Updates from one fit to the next."""
    safeguard: float = 0.3
    """The least cosine of the changed update with the raw one; 0.01 in the paper's preset."""
    lookahead: float = 4.0
    """The first step of "extragradient", in steps of Adam: 1 moves every parameter by the learning rate, in the mean
    square."""
    probes: int = 0
    """Samples off the path before each fit, on the same minibatch; each costs one more gradient every `refresh`."""
    radius: float = 4.0
    """How far out probes lie, in steps of Adam as well."""
    sketch: int = WIDTH
    """Entries of the images that inner products come from, where the actors have four times as many; 0: exact."""

    def __post_init__(self) -> None:
        """One sentence for the first setting that cannot be."""
        if self.kind not in KINDS:
            raise ValueError(f"The projection is one of {', '.join(KINDS)}; got {self.kind!r}.")
        if self.preset not in ("default", "paper"):
            raise ValueError(f"The projection's preset is default or paper; got {self.preset!r}.")
        if self.residual not in RESIDUAL:
            raise ValueError(f"residual is one of {', '.join(RESIDUAL)}; got {self.residual!r}.")
        if self.preset == "paper" and self.kind == "kernel":
            raise ValueError("The paper has no kernel projection: choose graph or neural, or leave the preset out.")
        if not self.strength >= 0 or not self.lookahead > 0:
            raise ValueError("strength must not be negative, and lookahead must be positive.")


def preset_values(kind: str, preset: str) -> dict[str, Any]:
    """The settings that a preset decides itself; none where it leaves them to the user."""
    return dict(PAPER.get(kind, {})) if preset == "paper" else {}


def make_projection(
    settings: ProjectionSettings, training: Settings, agents: int
) -> optax.GradientTransformationExtraArgs | None:
    """The transformation that goes before the actors' optimiser, or None."""
    if settings.kind == "none":
        return None
    paper = settings.preset == "paper"
    settings = replace(settings, **preset_values(settings.kind, settings.preset))
    projector: Projector
    if settings.kind == "graph":
        projector = GraphProjector.paper() if paper else GraphProjector()
    elif settings.kind == "neural":
        projector = NeuralProjector.paper() if paper else NeuralProjector()
    else:
        projector = KernelProjector()
    return hodge_projection(
        projector,
        settings.history,
        settings.refresh,
        settings.residual,
        share=settings.share,
        cautious=not paper,
        keep=settings.keep,
        safeguard=settings.safeguard,
        stride=settings.lookahead * training.actor_rate,
        strength=settings.strength,
        every=training.passes * minibatches(training, agents),
        probes=0 if settings.residual == "adjust" else settings.probes,
        radius=settings.radius * training.actor_rate,
        cross_fit=not (settings.kind == "neural" and paper),
        flat=True,
        sketch=settings.sketch or None,
        agents=not training.share,
    )


def between_looks(state: Any) -> Any:
    """The part of a projection's state that steps without a look go by: neither history nor fit."""
    return state._replace(history=None, chart=None, fits=None) if isinstance(state, HodgeState) else state


def after_looks(looked: Any, state: Any) -> Any:
    """The whole state again, from what it was after the look and what has become of the part."""
    if not isinstance(state, HodgeState):
        return state
    return state._replace(history=looked.history, chart=looked.chart, fits=looked.fits)


def at_rest(state: Any) -> Any:
    """A projection's state between two updates: the next one begins with a look and needs nothing held from before.

    An input that a program does not use is no donation either: XLA would match the buffers behind it to wrong outputs,
    and copy them.
    """
    return state._replace(change=None, lengths=None) if isinstance(state, HodgeState) else state


def projection_logs(state: HodgeState | None) -> dict[str, Array]:
    """What the projection saw at its last look, as scalars of one seed; nothing without one."""
    if state is None:
        return {}
    seen = state.diagnostics
    energy = jnp.where(seen.energy > 0, seen.energy, 1.0)
    logs: dict[str, Any] = {
        "nonpot": seen.nonpotentiality,
        "residual_energy": seen.residual_energy,
        "noise_share": seen.noise,
        "angle": seen.angle,
        "identifiable": seen.identifiable,
    }
    if state.history is not None:
        turning = jnp.maximum(seen.clean_energy, 0.0) / energy
        logs["nonpot_held_out"] = seen.held_out
        logs["residual_clean"] = seen.clean_energy
        logs["potential_share"] = jnp.clip(1.0 - seen.noise - turning, 0.0, 1.0)
    return {f"projection_{name}": value for name, value in logs.items()}
