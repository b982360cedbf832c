"""Pictures as indices into a book of squares.

The engine draws from a few sprites: a batch of some hundred thousand squares has tens to some hundreds of different
ones. A network that reads square by square then has to read each different one once, and look the others up: the same
function of the same pixels, for a small part of the arithmetic and of the memory.
"""

import math

import numpy as np
from jaxtyping import Int, UInt8

from hpml.native.play import library, load

# More different squares than this, and reading all of them is as good.
MOST = 8192
# The book's length is this times a power of four, so that a learner is compiled for one length or two.
LEAST = 256


def index(
    images: UInt8[np.ndarray, "*batch height width channels"], side: int
) -> tuple[Int[np.ndarray, "*batch cells"], UInt8[np.ndarray, "book pixels"]] | None:
    """Each square's place in the book, and the book; None where there are too many different squares.

    The first axis is time: a picture is likely to look like the one before it.
    """
    path = library()
    found = _by_bits(images, side) if path is None else _by_book(images, side, path)
    if found is None:
        return None
    places, different = found
    length = LEAST
    while length < len(different):
        length *= 4
    book = np.zeros((length, different.shape[-1]), np.uint8)
    book[: len(different)] = different
    return places.reshape(*images.shape[:-3], -1), book


def _by_book(images: np.ndarray, side: int, path: str) -> tuple[np.ndarray, np.ndarray] | None:
    """Places and different squares, in C."""
    images, picture = np.ascontiguousarray(images), images.shape[-3:]
    cells, pixels = -(-picture[0] // side) * -(-picture[1] // side), side * side * picture[2]
    count, apart = math.prod(images.shape[:-3]), math.prod(images.shape[1:-3])
    places, squares = np.empty((count, cells), np.int32), np.empty((MOST, pixels), np.uint8)
    shape, marks, square = (
        np.array([*picture, side], np.int64),
        np.zeros(4 * MOST, np.uint16),
        np.empty(pixels, np.uint8),
    )
    at = lambda array: array.ctypes.data  # noqa: E731
    different = load(path).index_squares(
        at(shape), at(images), count, apart, at(places), at(squares), MOST, at(marks), len(marks), at(square)
    )
    return None if different < 0 else (places, squares[:different])


def _by_bits(images: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Places and different squares, in NumPy.

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
    n, cell = np.divmod(first, rows * columns)
    r, c = np.divmod(cell, columns)
    squares = line.reshape(-1, rows, side, columns, side * channels)
    return places.astype(np.int32), squares[n, r, :, c].reshape(len(different), -1)


def _odd(count: int, number: int) -> np.ndarray:
    """Fixed random odd words."""
    draw = np.random.default_rng([20261115, number, count])
    return draw.integers(0, 2**64, count, np.uint64) | np.uint64(1)
