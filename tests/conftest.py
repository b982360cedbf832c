"""Settings of every test: JAX on the CPU, array shapes checked at run time, the same random examples every time."""

import os

os.environ["JAX_PLATFORMS"] = os.environ.get("JAX_PLATFORMS", "cpu")
os.environ["MPLBACKEND"] = "Agg"

from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# Integers pass for floats, as Python's own numeric tower has it.
install_import_hook("hpml", "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))")

# Compiling takes seconds on the first example, so no deadline; the same examples every run.
settings.register_profile(
    "hpml", deadline=None, derandomize=True, max_examples=15, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("hpml")
