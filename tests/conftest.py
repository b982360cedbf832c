"""Settings of every test: JAX on the CPU, array shapes checked at run time, the same random examples every time."""

import atexit
import gc
import os
import shutil
import tempfile
from pathlib import Path

os.environ["JAX_PLATFORMS"] = os.environ.get("JAX_PLATFORMS", "cpu")
os.environ["MPLBACKEND"] = "Agg"

# Compiling is most of the work: what one test process has compiled, the others load, from a folder that they inherit.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="hpml-compiled-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"  # writing a small program takes longer
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import jax
import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

install_import_hook("hpml", "typecheck.check")

# Tracing makes millions of objects that live: looking through them all for garbage was a sixth of the time.
gc.set_threshold(50_000, 50, 100)

# Compiling takes seconds on the first example, so no deadline; the same examples every run.
settings.register_profile(
    "hpml", deadline=None, derandomize=True, max_examples=15, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("hpml")


@pytest.fixture(scope="module", autouse=True)
def room_for_programs():
    """Let go of compiled programs when there are many: Linux gives a process 65,530 pieces of memory, XLA takes some of
    them for each program, and a process that has none left crashes."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()
        gc.collect()
