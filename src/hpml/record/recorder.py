"""`hpml.Recorder`: samples of a training run, in two lines, in a file of bounded size that `hpml diagnose` reads."""

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hpml.record.flatten import blocks_of, leaves_of, write_flat
from hpml.record.ring import KINDS, LABEL_BYTES, Ring, create_ring, open_ring, ring_layout
from hpml.record.sketch import Sketch, make_sketch

try:
    import fcntl
except ImportError:  # not on Windows: there, two recorders of one file are not kept apart
    fcntl = None  # type: ignore[assignment]

KEEP = ("recent", "reservoir", "thinned")


class Recorder:
    """Writes parameters and updates of a training loop to one safetensors file of bounded size.

        recorder = hpml.Recorder("run.safetensors")
        recorder.log(params, update)          # in the loop

    - `capacity`: the most samples that are kept.
    - `keep`: "recent", the last ones; "reservoir", a uniform sample of all time; "thinned", ages that grow
      geometrically, from the newest back to the first.
    - `every`: only every so many calls of `log` are looked at; the others cost nothing.
    - `sign`: +1 where updates are directions of ascent, what is added to the parameters; -1 where `log` is given
      gradients of a loss.
    - `blocks`: each agent's name and number of coordinates, or the numbers alone; the entries at the top of the
      parameters' tree unless given.
    - `sketch`: keep a random sketch of so many numbers in place of each vector, for large models. Distances and angles
      remain, to about 1 / sqrt(sketch); single coordinates are lost, shares by agent are not.
    - `seed`: of the reservoir and the sketch. `dtype`: "float32" or "float64".
    - `overwrite`: start a new file; otherwise a recording that is there goes on, where it fits.

    The file is made at the first `log` and can be read at any moment. What was logged survives a killed process;
    `flush()`, and `close()` at the end of a `with`, make it survive a power cut too. A sample that is not finite is
    left out, with one warning, and so is one that a full disk has no room for; `skipped` counts them. Logging never
    changes what it is given.
    """

    def __init__(
        self,
        path: Any,
        capacity: int = 1024,
        keep: str = "recent",
        every: int = 1,
        sign: int = 1,
        blocks: Mapping[str, int] | Sequence[int] | None = None,
        sketch: int | None = None,
        seed: int = 0,
        dtype: str = "float32",
        overwrite: bool = False,
    ):
        if capacity < 2:
            raise ValueError(f"A recording needs a capacity of at least 2, got {capacity}.")
        if keep not in KEEP:
            raise ValueError(f'keep must be "recent", "reservoir" or "thinned", got {keep!r}.')
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}.")
        if sign not in (1, -1):
            raise ValueError(f"sign must be +1 for updates that are added or -1 for gradients of losses, got {sign!r}.")
        if dtype not in KINDS:
            raise ValueError(f'dtype must be "float32" or "float64", got {dtype!r}.')
        if sketch is not None and sketch < 1:
            raise ValueError(f"sketch must be at least 1, got {sketch}.")
        self.path, self.capacity, self.keep, self.every, self.sign = Path(path), capacity, keep, every, sign
        self.sketch, self.seed, self.dtype, self.skipped = sketch, seed, dtype, 0
        if self.path.is_dir():
            raise ValueError(f"{path} is a folder: give the name of a file, such as run.safetensors.")
        if self.path.suffix != ".safetensors":
            raise ValueError(f"A recording is a .safetensors file: name it {self.path.stem}.safetensors.")
        if overwrite:
            self.path.unlink(missing_ok=True)
        if blocks is not None and not isinstance(blocks, Mapping):
            blocks = {f"agent {i + 1}": int(size) for i, size in enumerate(blocks)}
        self.blocks = None if blocks is None else {str(name): int(size) for name, size in blocks.items()}
        self._calls = self._count = 0
        self._told: set[str] = set()
        self._ring: Ring | None = None
        self._sketch: Sketch | None = None
        self._dimension = 0
        self._lock: int | None = None

    def log(self, params: Any, update: Any, second: Any = None, label: str | None = None, weight: float = 1.0) -> None:
        """Record one sample.

        - `params`, `update`: arrays of any kind, or trees, modules or sequences of them, of one structure.
        - `second`: a second, independent estimate of the update: with it noise is told from circulation. Either every
          sample of a recording has one or none has.
        - `label`: what the agents are doing, if known ("rock"); loops are named by it. At most 64 bytes are kept.
        - `weight`: how much the sample counts.
        """
        self._calls += 1
        if (self._calls - 1) % self.every:
            return
        if not weight > 0:
            raise ValueError(f"weight must be positive, got {weight}: leave out the samples that should not count.")
        vectors = [leaves_of(tree) for tree in ((params, update) if second is None else (params, update, second))]
        sizes = [sum(leaf.size for leaf in leaves) for leaves in vectors]
        if self._ring is None:
            self._start(params, sizes[0], len(vectors) - 1)
        ring = self._opened()
        if set(sizes) != {self._dimension}:
            wrong = f"params and updates must have {self._dimension} numbers each, got {', '.join(map(str, sizes))}: "
            if len(set(sizes)) > 1:
                raise ValueError(wrong + "give zeros where a gradient is missing.")
            raise ValueError(wrong + "a recording holds samples of one length.")
        if (ring.field.ndim == 3) != (len(vectors) == 3):
            raise ValueError("Either every sample of a recording has a second estimate, or none has.")
        step = int(ring.count[0]) + 1
        slot = self._slot(ring, step)
        if slot is not None:
            fields = [ring.field[slot]] if ring.field.ndim == 2 else [half[slot] for half in ring.field]
            self._write(ring, slot, step, vectors, [ring.points[slot], *fields], label, weight)
        ring.count[0] = self._count = step

    def add(self, points: Any, field: Any, labels: Sequence[str] | None = None) -> None:
        """Record many samples at once, such as those of `hpml.probe`: (n, d) each, or (2, n, d) for two estimates."""
        X, F = np.asarray(points), np.asarray(field)
        if X.ndim != 2 or F.shape not in (X.shape, (2, *X.shape)):
            raise ValueError(f"points must be (n, d) and field (n, d) or (2, n, d), got {X.shape} and {F.shape}.")
        for i in range(len(X)):
            label = None if labels is None else labels[i]
            if F.ndim == 3:
                self._log_now(X[i], F[0, i], F[1, i], label)
            else:
                self._log_now(X[i], F[i], None, label)

    def _log_now(self, params: Any, update: Any, second: Any, label: str | None) -> None:
        every, sign = self.every, self.sign
        try:
            self.every, self.sign = 1, 1  # probes are in ascent sign already, and all of them are wanted
            self.log(params, update, second, label)
        finally:
            self.every, self.sign = every, sign

    @property
    def count(self) -> int:
        """How many samples the recording was given, kept or not."""
        return self._count

    def flush(self) -> None:
        """Hand what was logged to the disk."""
        if self._ring is not None:
            self._ring.flush()

    def close(self) -> None:
        """Flush, and let the file go; a later `log` opens it again."""
        self.flush()
        self._ring = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _opened(self) -> Ring:
        assert self._ring is not None
        return self._ring

    def _start(self, params: Any, dimension: int, estimates: int) -> None:
        if dimension == 0:
            raise ValueError("The parameters are empty: a recording needs at least one number.")
        blocks = blocks_of(params) if self.blocks is None else self.blocks
        if sum(blocks.values()) != dimension:
            raise ValueError(f"blocks sum to {sum(blocks.values())}, but the parameters have {dimension} numbers.")
        self._dimension = dimension
        kept = dict(blocks)
        if self.sketch is not None and self.sketch < dimension:
            self._sketch = make_sketch(list(blocks.values()), self.sketch, self.seed)
            kept = dict(zip(blocks, self._sketch.blocks, strict=True))
        layout = ring_layout(self.capacity, sum(kept.values()), estimates, self.dtype)
        metadata = {
            "blocks": json.dumps(kept),
            "dimension": str(dimension),
            "keep": self.keep,
            "sign": "ascent",
            "logged": "ascent" if self.sign > 0 else "gradients of losses",
            "sketch": "" if self._sketch is None else json.dumps({"size": self._sketch.size, "seed": self.seed}),
        }
        found = self.path.exists()
        if not found:
            create_ring(self.path, layout, metadata)
        ring = open_ring(self.path)
        shapes = {name: tensor.shape for name, tensor in ring.tensors.items()}
        same = shapes == {name: shape for name, (_, _, shape) in layout.items()}
        if not same or any(ring.metadata.get(name) != value for name, value in metadata.items()):
            raise ValueError(
                f"{self.path} holds a recording of another shape or setting: choose another path, or pass "
                "overwrite=True."
            )
        self._take_lock()
        self._ring = ring
        if found:
            warnings.warn(
                f"{self.path} holds a recording already, which goes on; overwrite=True starts anew.",
                RuntimeWarning,
                stacklevel=4,
            )

    def _take_lock(self) -> None:
        """Two writers would mix their rows; the lock goes with the process, however it ends."""
        if fcntl is None:
            return
        lock = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ValueError(
                f"{self.path} is being written by another recorder: close that one, or choose another path."
            ) from error
        self._lock = lock

    def _slot(self, ring: Ring, step: int) -> int | None:
        """The row to write, or None where this sample is not kept."""
        if self.keep == "recent":
            return (step - 1) % self.capacity
        if step <= self.capacity:
            return step - 1
        if self.keep == "reservoir":
            draw = int(np.random.default_rng((self.seed, step)).integers(step))
            return draw if draw < self.capacity else None
        return _least_relative_gap(np.asarray(ring.stamps), step)

    def _write(self, ring: Ring, slot: int, step: int, vectors: list, rows: list, label: Any, weight: float) -> None:
        """One row: unstamp, copy, stamp."""
        if not ring.has_room(slot):
            self._leave_out("The disk is full: the recording keeps what it has, and what has no room is left out.")
            return
        ring.stamps[slot] = 0
        finite = True
        for i, (leaves, row) in enumerate(zip(vectors, rows, strict=True)):
            if self._sketch is None:
                write_flat(leaves, row)
            else:
                flat = np.empty(self._dimension)
                write_flat(leaves, flat)
                row[:] = self._sketch(flat)
            if i and self.sign < 0:
                np.negative(row, out=row)
            with np.errstate(over="ignore", invalid="ignore"):
                # The product is far quicker than a look at each number, and finite for all but huge ones.
                finite = finite and bool(np.isfinite(np.dot(row, row)) or np.isfinite(row).all())
        if not finite:
            self._leave_out("A sample that is not finite was left out of the recording.")
            return
        ring.weights[slot] = weight
        text = b"" if label is None else str(label).encode()[:LABEL_BYTES]
        ring.labels[slot] = np.frombuffer(text.ljust(LABEL_BYTES, b"\0"), np.uint8)
        ring.stamps[slot] = step

    def _leave_out(self, why: str) -> None:
        self.skipped += 1
        if why not in self._told:
            self._told.add(why)
            warnings.warn(why, stacklevel=4)


def _least_relative_gap(stamps: np.ndarray, step: int) -> int:
    """The row whose two neighbours in time are closest for their age: ages stay near geometric without it."""
    empty = np.flatnonzero(stamps == 0)
    if len(empty):
        return int(empty[0])
    order = np.argsort(step - stamps)
    ages = (step - stamps)[order].astype(np.float64)
    if len(order) < 3:
        return int(order[0])
    gap = (ages[2:] - ages[:-2]) / ages[1:-1]
    return int(order[1 + np.argmin(gap)])
