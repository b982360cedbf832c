"""Install Melting Pot's substrates: `python -m hpml.marl.engine.install`.

The package's build downloads an archive of trained bots, and its dependencies include TensorFlow; substrates need
neither. The build takes an archive that already lies in the temporary folder, so it gets a folder of its own with an
empty one. Nothing of it is kept in pip's cache: a later install of the whole package must not find the small one.

Only the standard library is used. Where no engine exists for this platform, a sentence says so, and all but Melting Pot
works: that is no failure.
"""

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "2.4.1"
ARCHIVE = "meltingpot-assets-2.3.0.tar.gz"  # the name that this version's build looks for
ENGINE = "dmlab2d>=1.0.2"
# What the substrates import: dm-env and immutabledict describe what is seen, networkx draws the chemistry substrates.
LIGHT = ("dm-env>=1.6", "immutabledict>=4", "ml-collections>=1.0", "networkx>=3.2")


def installed() -> bool:
    """Whether this version's substrates and the engine are there."""
    try:
        right = importlib.metadata.version("dm-meltingpot") == VERSION
    except importlib.metadata.PackageNotFoundError:
        return False
    needed = ("meltingpot", "dmlab2d", "dm_env", "immutabledict", "ml_collections", "networkx")
    return right and all(importlib.util.find_spec(name) is not None for name in needed)


def install() -> str:
    """Install what is missing; a sentence that says what is not there afterwards, empty if all is."""
    if installed():
        return ""
    # Only a finished engine helps: its sources need a build system that a user does not have.
    if problem := _pip("install", "--only-binary", "dmlab2d", ENGINE, *LIGHT):
        return (
            f"Melting Pot is not installed, all else works: pip could not install its engine, dmlab2d ({problem}), "
            "which exists for CPython 3.11 to 3.14 on Linux with glibc 2.35 or newer (x86_64) and on macOS."
        )
    with tempfile.TemporaryDirectory(prefix="hpml-meltingpot-") as folder:
        _empty_archive(Path(folder) / ARCHIVE)
        wheels = str(Path(folder) / "wheels")
        problem = _pip("wheel", "--no-deps", "--wheel-dir", wheels, f"dm-meltingpot=={VERSION}", temporary=folder)
        problem = problem or _pip("install", "--no-deps", *(str(each) for each in Path(wheels).glob("*.whl")))
    if problem:
        return f"Melting Pot is not installed, all else works: pip could not build its substrates ({problem})."
    return ""


def _empty_archive(path: Path) -> None:
    with tarfile.open(path, "w:gz") as archive:
        assets = tarfile.TarInfo("assets")
        assets.type, assets.mode = tarfile.DIRTYPE, 0o755
        archive.addfile(assets)


def _pip(command: str, *arguments: str, temporary: str | None = None) -> str:
    """Run pip quietly; what it said last where it failed, else nothing."""
    kept = [] if temporary is None else ["--no-cache-dir"]
    place = {} if temporary is None else dict.fromkeys(("TMPDIR", "TEMP", "TMP"), temporary)
    line = [sys.executable, "-m", "pip", command, "--quiet", "--disable-pip-version-check", *kept, *arguments]
    done = subprocess.run(line, env=os.environ | place, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    said = [each for each in done.stderr.splitlines() if each.startswith("ERROR:")] or done.stderr.splitlines()
    return said[-1].removeprefix("ERROR: ").rstrip(".") if said else f"pip ended with {done.returncode}"


def main() -> None:
    """Install, and say what is missing."""
    if sentence := install():
        print(sentence, file=sys.stderr)
    else:
        print("Melting Pot is installed.")


if __name__ == "__main__":
    main()
