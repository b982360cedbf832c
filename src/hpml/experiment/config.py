"""What a training run is asked for: one frozen dataclass, every field with a sentence, straight to the command line."""

import dataclasses
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from hpml.marl.find import resolve
from hpml.marl.projection import ProjectionSettings, preset_values
from hpml.marl.settings import Settings, preset

PROJECTION = ("preset", "share", "history", "keep", "refresh", "safeguard", "lookahead", "probes", "radius")
SEEDS = 2**32  # a seed's keys are made from 32 bits
LEG = 16  # updates of a compiled environment between two looks at the signals, where evaluations allow it
# A run goes on with these changed: they say how it runs and what it writes, not what it learns.
MAY_CHANGE = frozenset(
    {"steps", "workers", "checkpoint_every", "keep", "out", "resume", "device", "tensorboard", "wandb", "video"}
)


@dataclass(frozen=True)
class TrainConfig:
    """A training run. Settings of the learner follow; their defaults come from the preset."""

    env: str = "matrix/rock_paper_scissors"
    """matrix/<game>, meltingpot/<substrate> or a short name such as clean_up; options follow: stag_hunt:horizon=9."""
    algo: str = "mappo"
    """The algorithm: ia2c, ippo, mappo, happo or coma."""
    projection: Literal["none", "graph", "neural", "kernel"] = "none"
    """What splits the actors' update into the part that climbs one hill and the part that goes in circles."""
    projection_preset: Literal["default", "paper"] = "default"
    """paper: graph with k=4, ridge 1e-4, a fit every 8 updates; neural with 2 inner steps at rate 1e-3, every update;
    safeguard 0.01 for both."""
    residual: Literal["drop", "extragradient", "optimistic", "adjust"] = "drop"
    """What happens to the part that goes in circles: dropped, or kept and treated."""
    strength: float = ProjectionSettings.strength
    """Lambda of --residual adjust, which follows F + lambda A F."""
    seeds: int = 1
    """How many seeds train together in this process."""
    seed: int = 0
    """The first seed; the others follow it."""
    steps: int = 0
    """Environment steps of each seed, in whole updates; 0: 200,000 in a matrix game, else the paper's 10,000,000."""
    evaluate_every: int = 0
    """Updates between two evaluations, 0 for twenty in the run; there is always one before it and one at its end."""
    episodes: int = 4
    """Episodes of each evaluation, on seeds of their own; 0 for no evaluations."""
    checkpoint_every: int = 0
    """Updates between two checkpoints; 0 for one every five minutes. There is always one at the end."""
    keep: int = 2
    """How many checkpoints are kept; at least 2, so that a damaged one has a predecessor."""
    workers: int = 0
    """Processes that step a hosted environment; 0 for one a core. On a GPU several seeds form two groups, and each has
    so many. Results do not depend on it."""
    measure: bool = True
    """Measure circulation and noise of every update; it never changes training."""
    out: Path | None = None
    """The run folder; out/train/<env>-<algo>-<projection> unless given."""
    resume: bool = False
    """Go on with the run in the folder from its last checkpoint. Options that are left out are those of the run."""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """What the learner runs on; auto takes a GPU where there is one."""
    tensorboard: bool = True
    """Write curves for TensorBoard."""
    wandb: str = ""
    """The project of Weights & Biases that curves are sent to; nothing is sent unless it is given."""
    video: Literal["none", "mp4", "gif"] = "none"
    """Film an evaluation episode of the first seed at the end."""
    preset: Literal["auto", "paper", "matrix"] = "auto"
    """What the settings below start from: the paper's table, or what suits matrix games; auto goes by environment."""
    settings: Annotated[Settings, tyro.conf.arg(name="")] = field(default_factory=lambda: preset("matrix"))
    projection_share: float = ProjectionSettings.share
    """How much of the residual is treated, 0 to 1; not for --residual adjust."""
    projection_history: int = ProjectionSettings.history
    """Samples of the update field that the projection keeps, one an update."""
    projection_keep: Literal["recent", "reservoir", "thinned"] = ProjectionSettings.keep
    """Which samples are kept."""
    projection_refresh: int | None = None
    """Updates from one fit of the projection to the next. Unless given: 8, or the paper's with its preset."""
    projection_safeguard: float | None = None
    """The least cosine of the changed update with the raw one. Unless given: 0.3, or the paper's with its preset."""
    projection_lookahead: float = ProjectionSettings.lookahead
    """The first step of --residual extragradient, in steps of Adam: 1 moves a parameter by the rate."""
    projection_probes: int = ProjectionSettings.probes
    """Samples off the path before each fit; each costs one more gradient."""
    projection_radius: float = ProjectionSettings.radius
    """How far out the probes lie, in steps of Adam."""

    def __post_init__(self) -> None:
        """One sentence for the first option that cannot be."""
        for name, least in (("seeds", 1), ("seed", 0), ("steps", 0), ("evaluate_every", 0), ("episodes", 0)):
            _at_least(name, getattr(self, name), least)
        for name, least in (("checkpoint_every", 0), ("keep", 1), ("workers", 0)):
            _at_least(name, getattr(self, name), least)
        if self.seed + self.seeds > SEEDS:
            last = self.seed + self.seeds - 1
            raise ValueError(f"--seed {self.seed} with --seeds {self.seeds} ends at {last}: seeds are below {SEEDS}.")
        if self.projection == "none" and self.residual != "drop":
            raise ValueError(f"--residual {self.residual} treats what a projection finds: choose a --projection.")
        assert self.project  # which checks its own
        if self.resume:
            return  # the run's own values are in its folder, and what differs from them is refused there
        for name, value in preset_values(self.projection, self.projection_preset).items():
            given = getattr(self, f"projection_{name}")
            if given not in (None, value):
                raise ValueError(
                    f"--projection-preset {self.projection_preset} has --projection-{name} {value} for "
                    f"{self.projection}, and {given} was asked for: leave one of the two options out."
                )

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds that train together."""
        return tuple(range(self.seed, self.seed + self.seeds))

    @property
    def batch(self) -> int:
        """Environment steps of one update of one seed."""
        return self.settings.environments * self.settings.rollout

    @property
    def updates(self) -> int:
        """How many updates the run has."""
        return -(-self.steps // self.batch)

    @property
    def project(self) -> ProjectionSettings:
        """The projection's settings."""
        own: dict[str, Any] = {name: getattr(self, f"projection_{name}") for name in PROJECTION}
        own = {name: value for name, value in own.items() if value is not None}
        own = preset_values(self.projection, self.projection_preset) | own
        return ProjectionSettings(kind=self.projection, residual=self.residual, strength=self.strength, **own)

    @property
    def folder(self) -> Path:
        """The run folder."""
        if self.out is not None:
            return self.out
        parts = (self.env.replace("/", "-"), self.algo, self.projection)
        return Path("out/train") / "-".join("".join(c if c.isalnum() or c in "_-=." else "_" for c in p) for p in parts)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"--{name.replace('_', '-')} must be at least {least}, got {value}.")


def train_config(env: str = TrainConfig.env, preset_name: str = "auto", **options: Any) -> TrainConfig:
    """A config whose settings are the preset's, with `options` for its fields and for those of `Settings`."""
    base = preset(_preset_for(env) if preset_name == "auto" else preset_name)
    known = {each.name for each in dataclasses.fields(Settings)}
    inner = {name: value for name, value in options.items() if name in known}
    outer = {name: value for name, value in options.items() if name not in known}
    if outer.get("out") is not None:
        outer["out"] = Path(outer["out"])
    return TrainConfig(env=env, preset=preset_name, settings=dataclasses.replace(base, **inner), **outer)  # type: ignore


def complete(config: TrainConfig) -> TrainConfig:
    """The config with everything that was left open filled in."""
    full, _ = resolve(config.env)
    options = config.env.partition(":")[1:]
    steps = config.steps or (200_000 if full.startswith("matrix/") else 10_000_000)
    config = dataclasses.replace(config, env=full + "".join(options), steps=steps)
    every = config.evaluate_every or max(1, config.updates // 20)
    if not config.evaluate_every and every > LEG:
        every -= every % LEG
    project = config.project
    return dataclasses.replace(
        config,
        evaluate_every=every,
        out=config.folder,
        projection_refresh=project.refresh,
        projection_safeguard=project.safeguard,
    )


def to_json(config: TrainConfig) -> dict[str, Any]:
    """The config as JSON has it."""
    return asdict(config) | {"out": str(config.folder)}


def from_json(stored: dict[str, Any]) -> TrainConfig:
    """A config from its stored form."""
    try:
        inner = Settings(**stored["settings"])
        return TrainConfig(**{**as_used(stored), "settings": inner, "out": Path(stored["out"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"config.json is of another version of hpml: {error}.") from error


def as_used(stored: dict[str, Any]) -> dict[str, Any]:
    """A stored config with the values that its run uses.

    Earlier versions wrote what was asked for, or the defaults, where the projection's preset had values of its own.
    """
    own = preset_values(stored.get("projection", "none"), stored.get("projection_preset", "default"))
    return stored | {f"projection_{name}": value for name, value in own.items()}


def _preset_for(env: str) -> str:
    return "matrix" if resolve(env)[0].startswith("matrix/") else "paper"
