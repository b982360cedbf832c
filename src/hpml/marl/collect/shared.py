"""Arrays that several processes see: one block of memory, laid out by name.

The memory is a file without a name, handed to the workers as an open descriptor: it goes away with the last process
that holds it, however that ended.
"""

import mmap
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from hpml.marl.env import Spec

POLICY = "policy."  # what the names of a policy's parameters begin with
ALIGNED = 64  # bytes; JAX takes arrays on such addresses without copying


@dataclass(frozen=True)
class Field:
    """Where an array lies in the block."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    offset: int

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


def layout(
    spec: Spec, steps: int, slots: int, policy: Mapping[str, tuple[int, ...]] | None = None, memory: int = 0
) -> tuple[Field, ...]:
    """The arrays of a rollout, time first: what is seen and known has one entry more than what is done.

    With a `policy`, the shapes of its parameters by name, they have their places too, as POLICY and the name.
    """
    wanted: list[tuple[str, tuple[int, ...], str]] = [
        ("vector", (steps + 1, slots, spec.agents, spec.vector), "float32"),
        ("actions", (steps, slots, spec.agents), "int32"),
        ("rewards", (steps, slots, spec.agents), "float32"),
        ("done", (steps, slots), "bool"),
        ("convention", (steps, slots, spec.agents), "int32"),
    ]
    if spec.image is not None:
        wanted.append(("image", (steps + 1, slots, spec.agents, *spec.image), "uint8"))
    if spec.masked:
        wanted.append(("mask", (steps + 1, slots, spec.agents, spec.actions), "bool"))
    if policy is not None:
        wanted += [(name, (steps, slots, spec.agents), "float32") for name in ("draws", "log_probs")]
        wanted += [(POLICY + name, shape, "float32") for name, shape in policy.items()]
    if memory:
        wanted.append(("memory", (steps + 1, slots, spec.agents, memory), "float32"))
    fields, offset = [], 0
    for name, shape, dtype in wanted:
        fields.append(Field(name, shape, dtype, offset))
        offset += -(-fields[-1].nbytes // ALIGNED) * ALIGNED
    return tuple(fields)


def allocate(fields: tuple[Field, ...]) -> int:
    """A descriptor of enough shared memory, filled with zeros."""
    size = max(field.offset + field.nbytes for field in fields)
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("hpml")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, max(size, 1))
    return descriptor


def attach(descriptor: int, fields: tuple[Field, ...]) -> dict[str, np.ndarray]:
    """The arrays by name; they keep the memory alive."""
    memory = mmap.mmap(descriptor, 0)
    arrays = {}
    for field in fields:
        flat = np.frombuffer(memory, field.dtype, prod(field.shape), field.offset)
        arrays[field.name] = flat.reshape(field.shape)
    return arrays
