"""Pictures as indices into a book of squares.

The engine draws from a few sprites: a batch of some hundred thousand squares has tens to some hundreds of different
ones. A network that reads square by square then has to read each different one once, and look the others up: the same
function of the same pixels, for a small part of the arithmetic and of the memory.
"""

import numpy as np
from jaxtyping import Int, UInt8

# More different squares than this, and reading all of them is as good.
MOST = 8192
# The book's length is this times a power of four, so that a learner is compiled for one length or two.
LEAST = 256


def index(
    images: UInt8[np.ndarray, "*batch height width channels"], side: int
) -> tuple[Int[np.ndarray, "*batch cells"], UInt8[np.ndarray, "book pixels"]] | None:
    """Each square's place in the book, and the book; None where there are too many different squares.

    Two squares count as equal when 64 random bits of theirs are: for 8,192 squares that errs once in 10^11 batches.
    """
    *lead, height, width, channels = images.shape
    rows, columns = -(-height // side), -(-width // side)
    if (rows * side, columns * side) != (height, width):
        spare = [(0, 0)] * len(lead) + [(0, rows * side - height), (0, columns * side - width), (0, 0)]
        images = np.pad(images, spare)
    # A row of a square is `side * channels` bytes that lie together: it is read as words where it can be.
    line = np.ascontiguousarray(images).reshape(-1, columns, side * channels)
    words = line.view(np.uint64) if side * channels % 8 == 0 else line.astype(np.uint64)
    strokes = (words @ _odd(words.shape[-1], 1)).reshape(-1, rows, side, columns)
    marks = np.einsum("nrsc,s->nrc", strokes ^ (strokes >> np.uint64(31)), _odd(side, 2)).reshape(-1)
    different, first, places = np.unique(marks, return_index=True, return_inverse=True)
    if len(different) > MOST:
        return None
    length = LEAST
    while length < len(different):
        length *= 4
    book = np.zeros((length, side * side * channels), np.uint8)
    n, cell = np.divmod(first, rows * columns)
    r, c = np.divmod(cell, columns)
    squares = line.reshape(-1, rows, side, columns, side * channels)
    book[: len(different)] = squares[n, r, :, c].reshape(len(different), -1)
    return places.astype(np.int32).reshape(*lead, rows * columns), book


def _odd(count: int, number: int) -> np.ndarray:
    """Fixed random odd words."""
    draw = np.random.default_rng([20261115, number, count])
    return draw.integers(0, 2**64, count, np.uint64) | np.uint64(1)
