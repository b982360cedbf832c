"""What there is to choose from, found by listing folders: a file's name is its name on the command line."""

import importlib
import inspect
import pkgutil

import hpml.projection.projectors
from hpml.projection.projector import Projector


def list_projectors() -> dict[str, type[Projector]]:
    """Every projector by its file's name: the one class of the file that is a `Projector`."""
    found = {}
    for module in pkgutil.iter_modules(hpml.projection.projectors.__path__):
        contents = importlib.import_module(f"{hpml.projection.projectors.__name__}.{module.name}")
        classes = [
            thing
            for _, thing in inspect.getmembers(contents, inspect.isclass)
            if issubclass(thing, Projector) and thing is not Projector and thing.__module__ == contents.__name__
        ]
        if len(classes) != 1:
            raise TypeError(f"{contents.__name__} must define one Projector, it defines {len(classes)}.")
        found[module.name] = classes[0]
    return found


def summary(thing: type) -> str:
    """The first sentence of a docstring."""
    return inspect.cleandoc(thing.__doc__ or "").splitlines()[0]
