"""A random sketch of long vectors that keeps their inner products, so that recordings of large models stay small.

Every coordinate is added, with a random sign, to one of r buckets. Inner products come out right on average, with a
standard deviation of at most sqrt(2 / r) times the two lengths, and that is all a projection uses. What is lost: which
coordinate did what inside a block. Each agent's block has its own buckets, so shares by agent remain.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Float, Int

from hpml.geometry.arrays import Array


class Sketch(eqx.Module):
    """R^d to R^r: `bucket` (d,) says where each coordinate goes, `sign` (d,) with which sign; `blocks` are the sizes
    inside the sketch."""

    bucket: Int[Array, " d"]
    sign: Float[Array, " d"]
    blocks: tuple[int, ...] = eqx.field(static=True)

    @property
    def size(self) -> int:
        """The number r of buckets."""
        return sum(self.blocks)

    def __call__(self, vector: Float[Array, " d"]) -> Float[np.ndarray, " r"]:
        """The sketch of one vector."""
        return np.bincount(self.bucket, self.sign * vector, self.size)


def make_sketch(blocks: Sequence[int], size: int, seed: int) -> Sketch:
    """A sketch of `size` numbers in all, shared evenly among the blocks; a block that fits is kept as it is."""
    if size < len(blocks):
        raise ValueError(f"sketch must be at least {len(blocks)}, one number for each block, got {size}.")
    kept = _share(blocks, size)
    rng = np.random.default_rng(seed)
    bucket, sign, start = [], [], 0
    for d, r in zip(blocks, kept, strict=True):
        whole = d == r
        bucket.append(start + (np.arange(d) if whole else rng.integers(r, size=d)))
        sign.append(np.ones(d, np.float32) if whole else rng.choice(np.array([-1.0, 1.0], np.float32), d))
        start += r
    return Sketch(np.concatenate(bucket), np.concatenate(sign), tuple(kept))


def _share(blocks: Sequence[Any], size: int) -> list[int]:
    """Buckets for each block, the smallest blocks served first, so that what they do not need goes to the others."""
    kept = [0] * len(blocks)
    left = size
    for served, i in enumerate(sorted(range(len(blocks)), key=lambda i: blocks[i])):
        kept[i] = min(blocks[i], left // (len(blocks) - served))
        left -= kept[i]
    return kept
