"""Parts of the dm-meltingpot package, without the package's own start-up.

Importing `meltingpot` imports its bots, and with them TensorFlow and JAX. The substrates need neither: their modules
are imported under an empty package of the same name, which is taken out of `sys.modules` again.
"""

import ast
import importlib
import importlib.metadata
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
    there = {PACKAGE: _folder() is not None, "dmlab2d": importlib.util.find_spec("dmlab2d") is not None}
    absent = [name for name, found in there.items() if not found]
    if not absent:
        return ""
    return f"Melting Pot is not installed ({' and '.join(absent)}): run `{INSTALL}`, which needs no TensorFlow."


def folder() -> Path:
    """Where the package lies."""
    place = _folder()
    if place is None:
        raise ValueError(missing())
    return place


@cache
def _folder() -> Path | None:
    # By what was installed, not by what `import meltingpot` finds: a file of that name may lie nearer.
    try:
        place = Path(str(importlib.metadata.distribution("dm-meltingpot").locate_file(PACKAGE)))
    except importlib.metadata.PackageNotFoundError:
        return None
    return place if place.is_dir() else None


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
    others = _taken_out()
    if not _SHELF:
        shell = ModuleType(PACKAGE)
        shell.__path__ = [str(folder())]
        _SHELF[PACKAGE] = shell
    sys.modules.update(_SHELF)
    try:
        yield
    finally:
        _SHELF.update(_taken_out())
        sys.modules.update(others)


def _taken_out() -> dict[str, ModuleType]:
    ours = [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]
    return {name: sys.modules.pop(name) for name in ours}


@cache
def module(name: str) -> ModuleType:
    """A module of the package, such as `configs.substrates.clean_up`."""
    with _bare_package():
        return importlib.import_module(f"{PACKAGE}.{name}")
