"""What this machine has, and what of it a run is given."""

import dataclasses
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from hpml.experiment.sweep.job import Job
from hpml.marl.find import resolve

HOSTED = 4  # cores of a run whose environments live in worker processes
# GiB of a GPU: five seeds of MAPPO with the kernel projection and its history on clean_up, with room to spare.
MEMORY = {"hosted": 16.0, "compiled": 2.0}


@dataclass(frozen=True)
class Machine:
    """The `cores` that this process may use, and the GiB of each GPU that JAX can use."""

    cores: int
    gpus: tuple[float, ...] = ()


@cache
def this_machine() -> Machine:
    """What there is, asked without starting JAX: a driver that holds a GPU's memory starves its runs."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(cores, _gpus())


def sized(job: Job, machine: Machine, at_once: int = 0, workers: int = 0, device: str = "") -> Job:
    """A job with its share of a machine.

    - `at_once`: so many runs share the machine; 0: as many as fit.
    - `workers`: processes that step a hosted environment; 0: the suite's number, or as many as the run has cores.
    - `device`: takes the place of the suite's.
    """
    hosted = not resolve(job.config["env"])[0].startswith("matrix/")
    cores = max(1, machine.cores // at_once) if at_once else min(machine.cores, HOSTED)
    workers = workers or job.config["workers"] or cores
    device = device or job.config["device"]
    cores = workers if hosted else 1
    gpu = 0.0
    if machine.gpus and device != "cpu":
        share = MEMORY["hosted" if hosted else "compiled"] / min(machine.gpus)
        gpu = min(1.0, len(machine.gpus) / at_once) if at_once else min(1.0, share)
    config = job.config | {"device": device} | ({"workers": workers} if hosted else {})
    return dataclasses.replace(job, config=config, cores=float(cores), gpu=gpu)


def _gpus() -> tuple[float, ...]:
    """GiB of each GPU; none where JAX has no plug-in for them."""
    if not shutil.which("nvidia-smi") or not any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        return ()
    ask = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(ask, capture_output=True, text=True, check=True, timeout=30).stdout
        gpus = tuple(float(line) / 1024 for line in said.split())
    except (OSError, subprocess.SubprocessError, ValueError):
        return ()
    seen = os.environ.get("CUDA_VISIBLE_DEVICES")
    return gpus if seen is None else gpus[: len([each for each in seen.split(",") if each.strip()])]
