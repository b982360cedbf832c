"""Long arrays in short pieces: each piece stays in the cache, and the pieces run on all cores.

NumPy gives up the interpreter's lock inside its loops, so plain threads are enough.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

# Some 2 MB of float64 for one column of a piece and its temporaries: about one core's share of the cache.
PIECE = 1 << 15


def in_chunks(work: Callable[[slice], None], count: int, size: int = PIECE) -> None:
    """Call `work` on slices that cover range(count), on all cores; it writes into arrays that it was given."""
    pieces = [slice(start, min(start + size, count)) for start in range(0, count, max(size, 1))]
    threads = min(os.cpu_count() or 1, len(pieces))
    if threads < 2:
        for piece in pieces:
            work(piece)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, pieces))
