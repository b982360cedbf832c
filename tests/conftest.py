"""Settings of every test: JAX on the CPU, array shapes checked at run time, the same random examples every time."""

import os

os.environ["JAX_PLATFORMS"] = os.environ.get("JAX_PLATFORMS", "cpu")
os.environ["MPLBACKEND"] = "Agg"

from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

install_import_hook("hpml", "typecheck.check")

# Compiling takes seconds on the first example, so no deadline; the same examples every run.
settings.register_profile(
    "hpml", deadline=None, derandomize=True, max_examples=15, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("hpml")
