"""How learning is compiled on the CPU."""

import functools
from typing import Any

import jax

WANTED = {
    # XLA's fusions for YNNPACK made a critic's gradient 2.5 times slower (jaxlib 0.10.2, 32 units, 16,384 samples), and
    # an update on bach_or_stravinsky took 21.7 ms with them and 17.6 without; on clean_up they change nothing.
    "xla_cpu_experimental_ynn_fusion_type": "",
    # 17 to 22 % less time to compile, 2 to 12 % more steps for each second of processor time.
    "xla_backend_optimization_level": 1,
}


@functools.cache
def cpu_options() -> dict[str, Any]:
    """Compiler options for `jax.jit`; none on other devices, and none where XLA does not know them."""
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda x: x + 1.0, compiler_options=WANTED)(0.0)
    except jax.errors.JaxRuntimeError:
        return {}
    return dict(WANTED)
