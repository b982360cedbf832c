"""The checker of types under test: integers pass for floats, and NumPy arrays for JAX ones, as JAX itself has it."""

import beartype
import jax
import numpy as np

check = beartype.beartype(
    conf=beartype.BeartypeConf(
        is_pep484_tower=True,
        hint_overrides=beartype.FrozenDict({jax.Array: jax.Array | np.ndarray | np.generic}),
    )
)
