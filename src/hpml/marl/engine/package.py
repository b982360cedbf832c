"""Parts of the dm-meltingpot package, without the package's own start-up.

Importing `meltingpot` imports its bots, and with them TensorFlow and JAX. The substrates need neither: their modules
are imported under an empty package of the same name, which is taken out of `sys.modules` again.
"""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

PACKAGE = "meltingpot"
_SHELF: dict[str, ModuleType] = {}
INSTALL = "python -m hpml.marl.engine.install"


def missing() -> str:
    """What is not installed, as a sentence; empty where substrates can be built."""
    absent = [name for name in (PACKAGE, "dmlab2d") if importlib.util.find_spec(name) is None]
    if not absent:
        return ""
    return f"Melting Pot is not installed ({' and '.join(absent)}): run `{INSTALL}`, which needs no TensorFlow."


@cache
def folder() -> Path:
    """Where the package lies."""
    if sentence := missing():
        raise ValueError(sentence)
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


@cache
def substrates() -> tuple[str, ...]:
    """The names of all substrates of the installed package, read without importing it."""
    tree = ast.parse((folder() / "configs" / "substrates" / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "SUBSTRATES":
            strings = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
            return tuple(sorted(each for each in strings if isinstance(each, str)))
    raise ValueError(
        f"the installed dm-meltingpot lists no substrates: run `{INSTALL}` for the version that hpml knows."
    )


@contextmanager
def _bare_package() -> Iterator[None]:
    """The package's folders are importable, and its own start-up does not run."""
    if PACKAGE in sys.modules:
        yield
        return
    if not _SHELF:
        shell = ModuleType(PACKAGE)
        shell.__path__ = [str(folder())]
        _SHELF[PACKAGE] = shell
    sys.modules.update(_SHELF)
    try:
        yield
    finally:
        for name in [each for each in sys.modules if each == PACKAGE or each.startswith(f"{PACKAGE}.")]:
            _SHELF[name] = sys.modules.pop(name)


@cache
def module(name: str) -> ModuleType:
    """A module of the package, such as `configs.substrates.clean_up`."""
    with _bare_package():
        return importlib.import_module(f"{PACKAGE}.{name}")
