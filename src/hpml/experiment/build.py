"""From a config to the things that train: the environment, the algorithm, the projection, the device."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from difflib import get_close_matches

import jax

import hpml.marl.algorithms
from hpml.experiment.config import TrainConfig
from hpml.experiment.course import Course
from hpml.marl.algorithm import Algorithm
from hpml.marl.find import environment, resolve
from hpml.marl.learner import Trainer
from hpml.marl.projection import make_projection


def algorithm_names() -> tuple[str, ...]:
    """The algorithms there are, by their files' names."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(hpml.marl.algorithms.__path__)))


def algorithm(name: str) -> Algorithm:
    """An algorithm by its file's name."""
    if name not in algorithm_names():
        near = get_close_matches(name, algorithm_names()) or algorithm_names()
        raise ValueError(f"There is no algorithm {name!r}: did you mean {', '.join(near)}?")
    module = importlib.import_module(f"{hpml.marl.algorithms.__name__}.{name}")
    (found,) = [
        thing
        for _, thing in inspect.getmembers(module, inspect.isclass)
        if issubclass(thing, Algorithm) and thing.__module__ == module.__name__
    ]
    return found()


def use_device(name: str) -> str:
    """Choose what JAX runs on, and say what it is; a `ValueError` where it is not there."""
    if name == "cpu":
        jax.config.update("jax_platforms", "cpu")
    try:
        devices = jax.devices("gpu" if name == "gpu" else None)
    except RuntimeError as error:
        raise ValueError(
            "JAX finds no GPU here: install JAX with CUDA (pip install 'jax[cuda12]'), or leave --device out."
        ) from error
    jax.config.update("jax_default_device", devices[0])
    return devices[0].device_kind


def plan(config: TrainConfig) -> Callable[[], Course]:
    """What makes the course of a config at its first update; a `ValueError` where it asks for what is not there."""
    env = environment(config.env)
    projection = make_projection(config.project, config.settings, env.spec.agents)
    trainer = Trainer(env.spec, algorithm(config.algo), config.settings, projection)
    if config.video != "none" and (env.spec.image is None or env.spec.image[-1] != 3):
        raise ValueError(f"{env.spec.name} has no picture to film: leave --video out.")
    if env.compiled:
        from hpml.experiment.compiled import CompiledCourse

        return lambda: CompiledCourse(trainer, env, config.all_seeds, config.measure)
    from hpml.experiment.hosted import HostedCourse
    from hpml.experiment.turns import Turns

    full, options = resolve(config.env)
    family, _, name = full.partition("/")

    def course(seeds: tuple[int, ...]) -> HostedCourse:
        return HostedCourse(trainer, env, (family, name, options), seeds, config.workers, config.measure)

    def start() -> Course:
        seeds, half = config.all_seeds, (len(config.all_seeds) + 1) // 2
        if len(seeds) < 2 or jax.default_backend() == "cpu":  # learning needs the same cores as playing
            return course(seeds)
        return Turns([course(seeds[:half]), course(seeds[half:])])

    return start
