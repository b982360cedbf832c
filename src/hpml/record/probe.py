"""`hpml.probe`: samples off the path around some parameters, which is what shows circulation (`rem:failed_loops`).

A history of iterates lies along a path, and along a path some potential explains any field. Points around the path
close loops.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hpml.geometry.arrays import as_matrix
from hpml.record.flatten import flatten, unflatten

DIRECTIONS = ("ball", "gaussian", "path-plane")


class Probe(NamedTuple):
    """`points` (n, d) around the parameters and the `field` there: (n, d), or (2, n, d) for two estimates."""

    points: Float[np.ndarray, "n d"]
    field: np.ndarray


def probe(
    field_fn: Callable,
    params: Any,
    count: int = 256,
    radius: float | None = None,
    directions: str = "ball",
    path: Any = None,
    estimates: int = 1,
    sign: int = 1,
    batch: int = 64,
    key: Any = None,
) -> Probe:
    """Evaluate the update at points around `params`; both come back flat, in the order of the parameters' tree.

    - `field_fn(params)`: the joint update at given parameters, as a tree like them. With `estimates=2` it is
      `field_fn(params, key)`, called with two keys at each point: two independent estimates tell noise from rotation.
    - `radius`: how far out; a tenth of the parameters' length unless given, or 1 where they are zero.
    - `directions`: "ball", uniform in the ball; "gaussian", normal with root mean square distance `radius`;
      "path-plane", uniform in a disc of the plane that the run moves in. In many dimensions the plane sees the rotation
      that the run feels, where a ball's few points see little of any.
    - `path`: recent parameters, for the plane: (t, d), or a list of trees. Without it the plane is that of the field
      and of its change along itself.
    - `sign`: -1 where `field_fn` gives gradients of a loss.
    - `batch`: how many points are evaluated at once, where `field_fn` is JAX and can be vmapped; else one by one.
    """
    if not callable(field_fn):
        raise ValueError("field_fn must be a function of the parameters: pass gradients, not gradients(params).")
    if directions not in DIRECTIONS:
        raise ValueError(f"directions must be one of {', '.join(DIRECTIONS)}; got {directions!r}.")
    if count < 1 or batch < 1 or estimates not in (1, 2) or sign not in (1, -1):
        raise ValueError("count and batch must be at least 1, estimates 1 or 2, sign +1 or -1.")
    centre = flatten(params)
    if not len(centre) or not np.isfinite(centre).all():
        raise ValueError("params must have at least one number, and only finite ones.")
    length = float(np.linalg.norm(centre))
    radius = (0.1 * length if length > 0 else 1.0) if radius is None else float(radius)
    if not (np.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be positive, got {radius}.")
    key = jax.random.key(0) if key is None else key
    draw, noise = jax.random.split(key)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(draw)).ravel())
    keys = jax.random.split(noise, (estimates, count)) if estimates == 2 else None

    evaluate = _evaluator(field_fn, params, batch, sign)
    if directions == "path-plane":
        plane = _path_plane(path, centre, radius, lambda X: evaluate(X, None if keys is None else keys[0, : len(X)]))
        steps = _in_ball(rng, count, len(plane)) @ plane
    elif directions == "ball":
        steps = _in_ball(rng, count, len(centre))
    else:
        steps = rng.standard_normal((count, len(centre))) / np.sqrt(len(centre))
    points = centre + radius * steps
    if keys is None:
        return Probe(points, evaluate(points, None))
    return Probe(points, np.stack([evaluate(points, some) for some in keys]))


def _in_ball(rng: np.random.Generator, count: int, d: int) -> np.ndarray:
    steps = rng.standard_normal((count, d))
    steps /= np.linalg.norm(steps, axis=1, keepdims=True)
    return steps * rng.random((count, 1)) ** (1.0 / d)


def _path_plane(path: Any, centre: np.ndarray, radius: float, evaluate: Callable) -> np.ndarray:
    """Two orthonormal directions, or one where there is no second."""
    if path is not None:
        rows = path if isinstance(path, np.ndarray | jax.Array) else np.stack([flatten(row) for row in path])
        X = as_matrix(rows, "path")
        if X.shape[1] != len(centre):
            raise ValueError(f"path must have {len(centre)} columns like params, got {X.shape[1]}.")
        spans = X - X.mean(0)
    else:
        here = evaluate(centre[None])[0]
        size = np.linalg.norm(here)
        if not size > 0:
            raise ValueError("The field is zero at params, so it spans no plane: give the recent parameters as path.")
        there = evaluate((centre + radius * here / size)[None])[0]
        spans = np.stack([here, there]) / size
    _, s, axes = np.linalg.svd(spans, full_matrices=False)
    kept = axes[:2][s[:2] > 1e-7 * s[0]]
    if not s[0] > 0:
        raise ValueError("path does not move, so it spans no plane: give parameters from a longer stretch.")
    return kept


def _evaluator(field_fn: Callable, params: Any, batch: int, sign: int) -> Callable:
    """(m, d) points, and keys where the field takes one, to the (m, d) field."""

    def single(vector: Any, key: Any) -> Any:
        tree = unflatten(params, vector)
        return field_fn(tree) if key is None else field_fn(tree, key)

    def flat(vector: Any, key: Any) -> jax.Array:
        leaves = jax.tree.leaves(single(vector, key))
        return jnp.concatenate([jnp.ravel(jnp.asarray(leaf)) for leaf in leaves])

    def together(X: np.ndarray, keys: Any) -> np.ndarray:
        pieces = []
        with jax.enable_x64(double):
            for start in range(0, len(X), batch):
                piece = slice(start, start + batch)
                some = None if keys is None else keys[piece]
                pieces.append(np.asarray(mapped(jnp.asarray(X[piece], jnp.result_type(float)), some), np.float64))
        return np.concatenate(pieces)

    def one_by_one(X: np.ndarray, keys: Any) -> np.ndarray:
        return np.stack([flatten(single(x, None if keys is None else keys[i])) for i, x in enumerate(X)])

    mapped = jax.jit(jax.vmap(flat))
    leaves = jax.tree.leaves(params)
    double = any(getattr(leaf, "dtype", None) == np.float64 for leaf in leaves) or jnp.result_type(float) == np.float64
    way = one_by_one if any(hasattr(leaf, "new_tensor") for leaf in leaves) else together

    def evaluate(X: np.ndarray, keys: Any = None) -> np.ndarray:
        nonlocal way
        if way is together:
            try:
                F = together(X, keys)
            except Exception:  # NumPy code cannot be traced; an error of the user's own appears again below
                way = one_by_one
        if way is one_by_one:
            F = one_by_one(X, keys)
        if F.shape != X.shape:
            raise ValueError(f"field_fn must return {X.shape[1]} numbers like params, got {F.shape[1]}.")
        return sign * F

    return evaluate
