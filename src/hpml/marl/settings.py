"""What all algorithms share: the same network, batch and budget for each of them (`tab:hparams`)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Hyperparameters of training. The defaults are the paper's; what its table leaves open is marked "chosen"."""

    environments: int = 2
    """Environments that a seed steps side by side: 1 or an even number, so that the batch has independent halves."""
    rollout: int = 128
    """Steps of each environment between two updates."""
    minibatch: int = 4096
    """Agents' samples in a minibatch; a batch that is not larger is used whole."""
    passes: int = 4
    """Passes over each batch (chosen)."""
    actor_rate: float = 3e-4
    """The actors' learning rate, Adam."""
    critic_rate: float = 3e-4
    """The critic's learning rate, Adam."""
    epsilon: float = 1e-5
    """Adam's epsilon."""
    clip: float = 0.2
    """How far from 1 the ratio of new to old probabilities is rewarded, in the methods that clip."""
    entropy: float = 0.01
    """The weight of the policies' entropy."""
    discount: float = 0.99
    """The discount factor (chosen)."""
    trace: float = 0.95
    """Lambda of the advantages and of COMA's targets (chosen)."""
    max_gradient: float = 0.5
    """The longest gradient of each agent, and of the critic; longer ones are scaled down (chosen)."""
    normalise_advantages: bool = True
    """Advantages get mean 0 and deviation 1 over the batch, for each agent on its own; a batch that is calmer than the
    last hundred or so keeps its calm (chosen)."""
    normalise_values: bool = True
    """The critic learns returns with a running mean and deviation taken out, for each agent (chosen)."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this before learning; reported returns never are."""
    normalise_rewards: bool = False
    """Rewards are divided by the running deviation of each agent's discounted sums before learning."""
    share: bool = False
    """All agents use one actor, which is told whose turn it is."""
    hidden: int = 128
    """Units in the layers of actor and critic (chosen)."""
    sprites: int = 16
    """Features of each square of the picture (chosen)."""
    memory: int = 0
    """Units of a recurrent memory (GRU) in the actors; 0 for none."""
    chunk: int = 16
    """Steps that gradients flow back through with a memory."""

    def __post_init__(self) -> None:
        """One sentence for the first setting that cannot be."""
        for name in ("environments", "rollout", "minibatch", "passes", "hidden", "sprites", "chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("actor_rate", "critic_rate", "epsilon", "max_gradient", "reward_scale", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}.")
        for name in ("discount", "trace"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must lie between 0 and 1, got {getattr(self, name)}.")
        if self.entropy < 0 or self.memory < 0:
            raise ValueError("entropy and memory must not be negative.")
        if self.environments > 1 and self.environments % 2:
            raise ValueError(f"environments must be 1 or even, so that the batch has halves; got {self.environments}.")
        halves = 2 if self.environments == 1 else 1
        if self.rollout % (halves * self.steps_back):
            raise ValueError(
                f"rollout must be a multiple of {halves * self.steps_back}, got {self.rollout}: with one environment "
                "it is cut into two halves, with a memory into chunks."
            )

    @property
    def steps_back(self) -> int:
        """Steps of a chunk: 1 where the actors have no memory."""
        return self.chunk if self.memory else 1


def preset(name: str) -> Settings:
    """Settings by name: `paper` for pictures, `matrix` for the small games in JAX."""
    presets = {
        "paper": Settings(),
        "matrix": Settings(environments=64, rollout=16, minibatch=4096, hidden=32, actor_rate=3e-3, critic_rate=3e-3),
    }
    if name not in presets:
        raise ValueError(f"there is no preset {name!r}: choose one of {', '.join(presets)}.")
    return presets[name]
