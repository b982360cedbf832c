"""BenchMARL's MAPPO on Melting Pot with our layers: prints frames a second as JSON. Run by training_throughput.py.

    PYTHON benchmarks/peer_benchmarl.py bach_or_stravinsky_in_the_matrix__repeated 6

PYTHON is that of an environment with benchmarl 1.5.2; TensorFlow, which Melting Pot wants for its bots, is not needed.
"""

import itertools
import json
import statistics
import sys
import tempfile
import time
from unittest.mock import MagicMock

import torch
import torchrl  # noqa: F401 (before the stand-in below: it looks for the real package)

sys.modules["tensorflow"] = MagicMock()
import meltingpot.substrate  # noqa: F401

del sys.modules["tensorflow"]
from benchmarl.experiment.callback import Callback

FRAMES = 256
WARM = 2  # rounds before those that are timed
ends = []


class Clock(Callback):
    """Notes when each round of learning is over; outside of `main`, because BenchMARL pickles it."""

    def on_train_end(self, training_td, group):
        """A round is over."""
        ends.append(time.perf_counter())


def main() -> None:
    from benchmarl.algorithms import MappoConfig
    from benchmarl.environments import MeltingPotTask
    from benchmarl.experiment import Experiment, ExperimentConfig
    from benchmarl.models import CnnConfig

    name, updates = sys.argv[1], int(sys.argv[2])
    config = ExperimentConfig.get_from_yaml()
    config.sampling_device = config.train_device = config.buffer_device = "cpu"
    config.share_policy_params, config.lr = False, 3e-4
    config.on_policy_collected_frames_per_batch = config.on_policy_minibatch_size = FRAMES
    config.on_policy_n_envs_per_worker, config.on_policy_n_minibatch_iters = 2, 4
    config.max_n_iters, config.max_n_frames = updates, None
    config.evaluation = config.render = config.create_json = False
    config.loggers, config.checkpoint_interval = [], 0
    config.save_folder = tempfile.mkdtemp()
    layers = CnnConfig(
        cnn_num_cells=[16],
        cnn_kernel_sizes=8,
        cnn_strides=8,
        cnn_paddings=0,
        cnn_activation_class=torch.nn.ReLU,
        mlp_num_cells=[128, 128],
        mlp_layer_class=torch.nn.Linear,
        mlp_activation_class=torch.nn.ReLU,
    )
    Experiment(
        task=getattr(MeltingPotTask, name.upper()).get_from_yaml(),
        algorithm_config=MappoConfig.get_from_yaml(),
        model_config=layers,
        critic_model_config=layers,
        seed=0,
        config=config,
        callbacks=[Clock()],
    ).run()
    rounds = [b - a for a, b in itertools.pairwise(ends[WARM:])]
    print(json.dumps({"frames": FRAMES / statistics.mean(rounds), "rounds": rounds}))


if __name__ == "__main__":
    main()
