"""Numbers of unit size: what is squared is first divided by a power of two, so that no units can leave float64.

A flow has the units of points times field, and samples of either may have the size 1e140.
"""

import numpy as np

from hpml.geometry.arrays import Array


def power_of_two(values: Array) -> float:
    """The largest power of two that is no larger than the largest size of the values, 1 where there is none.

    Dividing by it is exact, so nothing but over- and underflow can change.
    """
    largest = float(np.max(np.abs(values), initial=0.0))
    return float(np.exp2(np.floor(np.log2(largest)))) if largest > 0 else 1.0
