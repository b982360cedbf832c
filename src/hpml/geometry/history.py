"""A ring of a trainer's past samples with rolling inner products (the buffer of `alg:neural-hpml`, `alg:ctde-hpml`).

The buffers are the parameters' own pytree with a leading row axis. Three matrices are kept up to date at O(n d) a push:

    D[i, j] = |x_i - x_j|_M^2,    A[i, j] = <F_i, x_j - x_i>_M,    Q[i, j] = <F_i, F_j>_M,

which do not change when all points move together. They are all that a chart needs (`span.py`). Where the trees are
`Sketched`, a row's short image lies beside it, and the matrices are those of the images. The rows themselves then serve
for combinations alone: of consecutive samples they may be brief, the field and the steps from point to point.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from hpml.geometry.arrays import Array
from hpml.geometry.leaves import Leaves, Tree, leaf_metric
from hpml.geometry.sketch import Sketched, from_brief
from hpml.native.products import available, combined_rows, row_sums, written_rows

KEEP = ("recent", "reservoir", "thinned")

# Entries of a buffer that one step of the CPU's loop works on: fewer, and starting a step costs more than it saves;
# more, and the C library hands the memory back after every update and has to fetch it page by page again.
CHUNK_ENTRIES = 1 << 20
CHUNK_WIDTH = 1 << 16  # terms that are added up in float32: with 200,000 of one sign a sum is wrong by 2e-6
CACHE_ENTRIES = 1 << 22  # a buffer that the processor keeps beside its cores is read as it lies, as often as needed
CACHE_WIDTH = 1 << 18  # terms, as above: more are cut into chunks for their rounding
LONG = 1 << 16  # entries of a row that several threads write faster than one
FEW_ROWS = 24  # a combination of so many reads these alone; of more, a product with the whole buffer is as fast
FEW_LANES = 16  # seeds side by side for which that loop is written out one by one


class History(eqx.Module):
    """Samples (x_i, F_i) in `rows` rows, of which at most `capacity` are kept. The last row is for what is left out.

    - `points`, `field`: the parameters' tree with a leading axis of rows.
    - `latest`: the last point in full, where rows of `points` hold the step to it from the point before; else None.
    - `rolling`: D, A and Q, each as a float32 sum of two parts: float64 would not survive in a float32 program.
    - `times`: the push that wrote each row, -1 where it is empty.
    - `kept`: the rows that the way of keeping points holds now.
    - `locked`: rows that must not be overwritten yet, because a fit still uses them.
    - `newest`: the row of the last sample, which is there even when it is not kept.
    - `count`: the number of pushes so far.
    """

    points: Tree
    field: Tree
    latest: Tree
    rolling: Float[Array, "2 3 rows rows"]
    times: Int[Array, " rows"]
    kept: Bool[Array, " rows"]
    locked: Bool[Array, " rows"]
    newest: Int[Array, ""]
    count: Int[Array, ""]
    key: Array
    capacity: int = eqx.field(static=True)
    keep: str = eqx.field(static=True)

    @property
    def valid(self) -> Bool[Array, " rows"]:
        """The rows that hold kept samples."""
        return self.kept

    @property
    def matrices(self) -> Float[Array, "3 rows rows"]:
        """D, A and Q in float64."""
        with jax.enable_x64(True):
            return self.rolling[0].astype(jnp.float64) + self.rolling[1].astype(jnp.float64)


class Products(eqx.Module):
    """Inner products of one sample (x, F) with every row, in float64.

    `distance` |x_i - x|^2, `toward` <F_i, x - x_i>, `back` <F, x_i - x>, `gram` <F_i, F>, `energy` |F|^2. Of a second
    vector G at the same point, where one was given: `gap_back` <G, x_i - x>, `gap_gram` <F_i, G>.
    """

    distance: Float[Array, " rows"]
    toward: Float[Array, " rows"]
    back: Float[Array, " rows"]
    gram: Float[Array, " rows"]
    energy: Float[Array, ""]
    gap_back: Float[Array, " rows"] | None = None
    gap_gram: Float[Array, " rows"] | None = None


def no_products(rows: int, gap: bool) -> Products:
    """Products that say nothing, to stand where none were formed."""
    with jax.enable_x64(True):
        zero, none = jnp.zeros(rows, jnp.float64), jnp.zeros((), jnp.float64)
        return Products(zero, zero, zero, zero, none, *((zero, zero) if gap else ()))


def empty_row(history: History) -> tuple[Tree, Tree, Tree]:
    """A point and a field of zeros, like those of one row, and the last point."""
    points, field = jax.tree.map(lambda buffer: jnp.zeros_like(buffer[0]), (history.points, history.field))
    return points, field, history.latest


def history_init(
    params: Tree, capacity: int, keep: str = "recent", spare: int = 1, key: Any = 0, latest: Tree = None
) -> History:
    """An empty history for parameters like these.

    - `capacity`: the most samples that are kept.
    - `keep`: "recent", the last ones; "reservoir", a uniform sample of all time (Algorithm R); "thinned", ages that
      grow geometrically, from the newest back to the first.
    - `spare`: rows beyond the capacity, at least one; rows that a fit uses stay untouched for that many pushes.
    - `key`: a seed or a key of two words, for the reservoir.
    - `latest`: where rows are to hold steps, some point in full; `params` then is like what is pushed. Only for
      "recent": no step from sample to sample may be missing.
    """
    if capacity < 2:
        raise ValueError(f"A history needs a capacity of at least 2, got {capacity}: one sample compares with nothing.")
    if keep not in KEEP:
        raise ValueError(f'keep must be "recent", "reservoir" or "thinned", got {keep!r}.')
    if latest is not None and keep != "recent":
        raise ValueError(f'Steps lead from one sample to the next: keep must be "recent" for them, got {keep!r}.')
    leaves = jax.tree.leaves(params)
    if not leaves or sum(math.prod(jnp.shape(leaf)) for leaf in leaves) == 0:
        raise ValueError("The parameters are an empty tree: a history needs at least one array with entries.")
    jax.tree.map(buffer_dtype, latest)
    rows = capacity + max(int(spare), 1) + 1

    def buffer(leaf: Any) -> Array:
        return jnp.zeros((rows, *jnp.shape(leaf)), buffer_dtype(leaf) if latest is None else leaf.dtype)

    if not isinstance(key, int | np.integer):
        key = jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key
    else:
        key = jax.random.PRNGKey(key)
    return History(
        points=jax.tree.map(buffer, params),
        field=jax.tree.map(buffer, params),
        latest=jax.tree.map(jnp.zeros_like, latest),
        rolling=jnp.zeros((2, 3, rows, rows), jnp.float32),
        times=jnp.full(rows, -1, jnp.int32),
        kept=jnp.zeros(rows, bool),
        locked=jnp.zeros(rows, bool),
        newest=jnp.zeros((), jnp.int32),
        count=jnp.zeros((), jnp.int32),
        key=key,
        capacity=int(capacity),
        keep=keep,
    )


def history_push(history: History, params: Tree, field: Tree, metric: Any = None) -> History:
    """The history with one more sample, in one pass over both buffers.

    A sample that is not finite is left out: it counts as a push and nothing else changes.
    """
    check_like(history, params, "params")
    check_like(history, field, "field")
    return push_products(history, params, field, products_with(history, params, field, leaf_metric(metric, params)))


def push_products(
    history: History, params: Tree, field: Tree, products: Products, when: Any = True, latest: Tree = None
) -> History:
    """The history with one more sample whose inner products are known; as it was where `when` is false.

    Then zeros go into the last row: a conditional would have to hand the buffers through, and copies them. Where rows
    hold steps, `params` has the step from `history.latest`, and `latest` is the point.
    """
    slot, kept = _choose_row(history)
    rows = jnp.arange(len(history.times))
    # The rows written below depend on every product, so that XLA may write in place once the buffers have been read.
    kinds = jax.tree.leaves(products)  # they have to fit into float32
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(part.astype(jnp.float32))) for part in kinds]) & when)
    with jax.enable_x64(True):
        matrices = history.matrices
        own = rows == slot
        columns = jnp.stack([products.distance, products.toward, products.gram])
        cross = jnp.stack([products.distance, products.back, products.gram])
        corner = jnp.stack([jnp.zeros_like(products.energy), jnp.zeros_like(products.energy), products.energy])
        updated = jnp.where(own[None, None, :], columns[:, :, None], matrices)
        updated = jnp.where(own[None, :, None], cross[:, None, :], updated)
        updated = jnp.where((own[:, None] & own[None, :])[None], corner[:, None, None], updated)
        rolling = _split(jnp.where(finite, updated, matrices))

    at = jnp.where(finite, slot, len(rows) - 1)

    structure: Any = jax.tree.structure(history.points)
    trees = (jax.tree.leaves(tree) for tree in (history.points, history.field, params, field))
    written = [_write_row(X, F, x, f, at, finite) for X, F, x, f in zip(*trees, strict=True)]
    points, fields = (jax.tree.unflatten(structure, buffers) for buffers in zip(*written, strict=True))
    return History(
        points=points,
        field=fields,
        latest=jax.tree.map(lambda old, new: jnp.where(finite, new, old), history.latest, latest),
        rolling=rolling,
        times=jnp.where((rows == slot) & finite, history.count, history.times),
        kept=jnp.where(finite, kept, history.kept),
        locked=history.locked,
        newest=jnp.where(finite, slot, history.newest),
        count=history.count + jnp.asarray(when).astype(jnp.int32),
        key=history.key,
        capacity=history.capacity,
        keep=history.keep,
    )


def _write_row(X: Array, F: Array, x: Any, f: Any, at: Array, finite: Array) -> tuple[Array, Array]:
    """Both buffers of a leaf with x and f in one row, or with zeros where they are not finite."""
    x, f = jnp.asarray(x, X.dtype), jnp.asarray(f, F.dtype)
    if X.dtype == jnp.float32 and x.size >= LONG and available():
        return jax.lax.platform_dependent(X, F, x, f, at, finite, cpu=_write_in_c, default=_write_in_xla)
    return _write_in_xla(X, F, x, f, at, finite)


def _write_in_c(X: Array, F: Array, x: Array, f: Array, at: Array, finite: Array) -> tuple[Array, Array]:
    buffers = X.reshape(len(X), -1), F.reshape(len(F), -1)
    points, field = written_rows(*buffers, x.reshape(-1), f.reshape(-1), at, finite)
    return points.reshape(X.shape), field.reshape(F.shape)


def _write_in_xla(X: Array, F: Array, x: Array, f: Array, at: Array, finite: Array) -> tuple[Array, Array]:
    write = lambda buffer, row: jax.lax.dynamic_update_index_in_dim(buffer, jnp.where(finite, row, 0), at, 0)  # noqa: E731
    return write(X, x), write(F, f)


def lock_kept(history: History, when: Bool[Array, ""]) -> History:
    """The history with exactly the kept rows locked, where `when` is true."""
    return eqx.tree_at(lambda h: h.locked, history, jnp.where(when, history.kept, history.locked))


def products_with(history: History, params: Tree, field: Tree, metric: Leaves, gap: Tree = None) -> Products:
    """Inner products of one sample with every row, and those of a second vector `gap` at the same point."""
    if isinstance(history.points, Sketched):  # the images have the metric in them
        history = eqx.tree_at(lambda h: (h.points, h.field), history, (history.points.image, history.field.image))
        params, field, gap = params.image, field.image, None if gap is None else gap.image
        metric = Leaves(None, None)
    singles = all(buffer.dtype == jnp.float32 for buffer in jax.tree.leaves(history.points))
    if metric.columns is None and singles and available():
        run = functools.partial(jax.lax.platform_dependent, cpu=_products_in_c, default=_products_in_xla)
        return run(history, params, field, metric, gap)
    return _products_in_xla(history, params, field, metric, gap)


def _products_in_c(history: History, params: Tree, field: Tree, metric: Leaves, gap: Tree) -> Products:
    """From one reading of both buffers, every term in float64."""
    buffers = zip(jax.tree.leaves(history.points), jax.tree.leaves(history.field), strict=True)
    beside = [
        [jnp.asarray(leaf, jnp.float32).reshape(-1) for leaf in jax.tree.leaves(tree)] for tree in (params, field, gap)
    ]
    sums: Any = 0.0
    energy: Any = 0.0
    for i, (X, F) in enumerate(buffers):
        x, f, g = (leaves[i] if leaves else None for leaves in beside)
        assert x is not None
        assert f is not None
        more, length = row_sums(X.reshape(len(X), -1), F.reshape(len(F), -1), x, f, g, metric.weight(i, X.dtype))
        with jax.enable_x64(True):
            sums, energy = sums + more, energy + length
    with jax.enable_x64(True):
        distance, toward, back, gram, gap_back, gap_gram = jnp.where(history.times >= 0, sums, 0.0)
        if gap is None:
            return Products(distance, toward, back, gram, energy)
        return Products(distance, toward, back, gram, energy, gap_back, gap_gram)


def _products_in_xla(history: History, params: Tree, field: Tree, metric: Leaves, gap: Tree) -> Products:
    """From several readings, in parts.

    Differences x_i - x are taken entry by entry in the buffers' dtype, exact for nearby floats, and summed in parts, so
    that float32 distances of nearby vectors are right. <F_i, x - x_i> = A[i, newest] + <F_i, x - x_newest> needs the
    field's buffer in a plain matrix-vector product only; its rounding adds up over the pushes that a row lives through.

    XLA's CPU backend adds up the d float32 terms of such a product in a row: with d = 1,000,000 terms of one sign it is
    wrong by 2e-5. So what F and the step share with the newest field goes through Q, and the product sees the rest.
    """
    buffers = zip(*(jax.tree.leaves(tree) for tree in (history.points, history.field, params, field)), strict=True)
    gaps = None if gap is None else [jnp.asarray(g).reshape(-1) for g in jax.tree.leaves(gap)]
    step, newest, values = [], [], []
    for X, F, x, f in buffers:
        x, f = (jnp.asarray(v, X.dtype).reshape(-1) for v in (x, f))
        last_x, last_f = (jax.lax.dynamic_index_in_dim(B, history.newest, 0, keepdims=False) for B in (X, F))
        step.append(x - last_x.reshape(-1))
        newest.append(last_f.reshape(-1))
        values.append((X.reshape(X.shape[0], -1), F.reshape(F.shape[0], -1), x, f))
    fields = [f for _, _, _, f in values]
    lowered_field = metric.lower(fields)
    shared_field, rest_field = _take_out(fields, newest)
    shared_step, rest_step = _take_out(step, newest)
    rest_field, rest_step = metric.lower(rest_field), metric.lower(rest_step)
    lowered_gap = None if gaps is None else metric.lower(gaps)
    with jax.enable_x64(True):
        zero = jnp.zeros(len(history.times), jnp.float64)
        distance, back, gram, advance, energy = zero, zero, zero, zero, jnp.zeros((), jnp.float64)
        gap_back, gap_gram = zero, zero
    for i, (X, F, x, f) in enumerate(values):
        if not x.size:
            continue
        w = metric.weight(i, X.dtype)
        root = None if w is None else jnp.sqrt(w)
        beside = [f] if gaps is None else [f, gaps[i].astype(X.dtype)]
        k = len(beside)
        vectors = beside if root is None else [v * root for v in beside]
        if metric.columns is not None:
            U = jnp.asarray(metric.columns, X.dtype).T
            vectors = [*vectors, *(U if root is None else U / root)]
        squares, dots = _displacement_sums(X, x, vectors, root)
        against = [rest_field[i], rest_step[i]] + ([] if lowered_gap is None else [lowered_gap[i].astype(F.dtype)])
        right = _field_sums(F, against)
        with jax.enable_x64(True):
            if metric.columns is not None:
                along = [(v @ jnp.asarray(metric.columns, v.dtype)).astype(jnp.float64) for v in beside]
                distance = distance + (dots[k:] ** 2).sum(0)
                back = back + (dots[k:] * along[0][:, None]).sum(0)
                if gaps is not None:
                    gap_back = gap_back + (dots[k:] * along[1][:, None]).sum(0)
            distance, back = distance + squares, back + dots[0]
            gram, advance = gram + right[0], advance + right[1]
            if gaps is not None:
                gap_back, gap_gram = gap_back + dots[1], gap_gram + right[2]
            energy = energy + _product(f[None], lowered_field[i])[0].astype(jnp.float64)
    with jax.enable_x64(True):
        written = history.times >= 0
        _, A, Q = history.matrices
        known = Q[:, history.newest]
        gram = gram + shared_field.astype(jnp.float64) * known
        toward = A[:, history.newest] + advance + shared_step.astype(jnp.float64) * known
        distance, toward, back, gram = (jnp.where(written, part, 0.0) for part in (distance, toward, back, gram))
        if gaps is None:
            return Products(distance, toward, back, gram, energy)
        gap_back, gap_gram = (jnp.where(written, part, 0.0) for part in (gap_back, gap_gram))
        return Products(distance, toward, back, gram, energy, gap_back, gap_gram)


def row_products(history: History, row: Int[Array, ""]) -> Products:
    """Inner products of the sample in one row with every row, read off the matrices."""
    with jax.enable_x64(True):
        D, A, Q = history.matrices
        return Products(D[:, row], A[:, row], A[row], Q[:, row], Q[row, row])


def combine_rows(
    history: History, rows: Int[Array, " n"], on_points: Float[Array, " n"], on_field: Float[Array, " n"], at: Tree
) -> Tree:
    """sum_i a_i (x_i - x) + b_i F_i over these rows, a tree like the parameters, with x = `at`; no image of it.

    The rounding of a X - (sum a) x is that of points perturbed by one unit in their last place, the accuracy that the
    points have themselves, so the sum runs on the buffers as they are. Where rows hold steps the a_i are those of steps
    (`span.on_steps`), and there is no x.
    """

    def leaf(X: Array, F: Array, x: Any) -> Array:
        dtype = jnp.promote_types(X.dtype, jnp.float32)
        a, b = on_points.astype(dtype), on_field.astype(dtype)
        given = (X, F, jnp.asarray(x, dtype) if history.latest is None else None, rows, a, b)
        if dtype == jnp.float32 and available():
            return jax.lax.platform_dependent(*given, cpu=_combine_in_c, default=_combine_in_xla)
        return _combine_in_xla(*given)

    trees = (history.points, history.field, at)
    return jax.tree.map(leaf, *(tree.whole if isinstance(tree, Sketched) else tree for tree in trees))


def _combine_in_c(X: Array, F: Array, x: Array | None, rows: Array, a: Array, b: Array) -> Array:
    x = None if x is None else x.reshape(-1)
    return combined_rows(X.reshape(len(X), -1), F.reshape(len(F), -1), x, rows, a, b).reshape(X.shape[1:])


def _combine_in_xla(X: Array, F: Array, x: Array | None, rows: Array, a: Array, b: Array) -> Array:
    total = _combine_few(X, F, rows, a, b) if len(rows) <= FEW_ROWS else _combine_all(X, F, rows, a, b)
    return total if x is None else total - a.sum() * x


def _combine_all(X: Array, F: Array, rows: Array, a: Array, b: Array) -> Array:
    """A product with the whole buffers; the rows that do not count have the coefficient 0."""
    shape = X.shape[1:]
    a, b = (jnp.zeros(len(X), c.dtype).at[rows].add(c) for c in (a, b))
    X, F = (_in_full(B.reshape(len(B), -1), a.dtype) for B in (X, F))
    return (a @ X + b @ F).reshape(shape)


def _in_full(rows: Array, dtype: Any) -> Array:
    return from_brief(rows, dtype) if rows.dtype == jnp.uint16 else rows


@jax.custom_batching.custom_vmap
def _combine_few(X: Array, F: Array, rows: Array, a: Array, b: Array) -> Array:
    """One loop over the entries in which every row that counts is read once, and no other."""
    total = jnp.zeros(X.shape[1:], a.dtype)
    for i in range(len(rows)):
        x, f = (_in_full(jax.lax.dynamic_index_in_dim(B, rows[i], 0, keepdims=False), a.dtype) for B in (X, F))
        total = total + (a[i] * x + b[i] * f)
    return total


@_combine_few.def_vmap
def _(lanes: int, batched: Any, *args: Array) -> tuple[Array, bool]:
    """The same for several seeds, one after the other: a gather of rows that differ between them is slow."""
    if lanes > FEW_LANES:
        return jax.vmap(_combine_all, [0 if has else None for has in batched])(*args), True
    of = lambda lane: [value[lane] if has else value for value, has in zip(args, batched, strict=True)]  # noqa: E731
    return jnp.stack([_combine_few(*of(lane)) for lane in range(lanes)]), True


def as_rows(history: History, point: Tree, field: Tree) -> tuple[Tree, Tree]:
    """A point and a field that fit the history, in the dtypes of its rows."""
    return jax.tree.map(lambda leaf, buffer: leaf.astype(buffer.dtype), (point, field), (history.points, history.field))


def check_like(history: History, tree: Tree, name: str) -> None:
    """A `ValueError` where a tree does not fit the history's buffers."""
    structure: Any = jax.tree.structure(tree)
    if structure != jax.tree.structure(history.points):
        raise ValueError(f"{name} must have the tree structure that the history was made with.")
    for leaf, buffer in zip(jax.tree.leaves(tree), jax.tree.leaves(history.points), strict=True):
        if jnp.shape(leaf) != buffer.shape[1:]:
            raise ValueError(f"{name} has a leaf of shape {jnp.shape(leaf)}, the history holds {buffer.shape[1:]}.")
        if history.latest is None:
            buffer_dtype(leaf)


def buffer_dtype(leaf: Any) -> Any:
    """The dtype in which a history holds such an array: half precision would lose what nearby points differ by."""
    dtype = jnp.result_type(leaf)
    if not jnp.issubdtype(dtype, jnp.floating):
        raise ValueError(f"A history holds real floating-point arrays, got dtype {dtype}: leave it out (optax.masked).")
    return jnp.promote_types(dtype, jnp.float32)


def _split(values: Float[Array, "..."]) -> Float[Array, "2 ..."]:
    high = values.astype(jnp.float32)
    return jnp.stack([high, (values - high.astype(jnp.float64)).astype(jnp.float32)])


def _product(F: Array, vector: Array) -> Array:
    return jnp.matmul(F, vector, precision=jax.lax.Precision.HIGHEST)


def _take_out(vector: Sequence[Array], along: Sequence[Array]) -> tuple[Array, list[Array]]:
    """c and v - c u, with c = <v, u> / <u, u> as far as rounding lets it be: any c will do."""
    dots = [jnp.stack([jnp.vdot(v, u), jnp.vdot(u, u)]) for v, u in zip(vector, along, strict=True)]
    top, square = jnp.sum(jnp.stack([dot.astype(jnp.float32) for dot in dots]), 0)  # the same c for leaves of any dtype
    c = top / jnp.where(square > 0, square, 1.0)
    c = jnp.where(jnp.isfinite(c), c, 0.0)
    return c, [v - c.astype(v.dtype) * u for v, u in zip(vector, along, strict=True)]


def _products(rows: Array, vectors: Sequence[Array]) -> Array:
    """rows v for each vector, (vectors, rows); few go one by one: XLA's CPU backend is slower on them together."""
    if len(vectors) > 4:
        return _product(rows, jnp.stack(vectors, 1)).T
    return jnp.stack([_product(rows, v) for v in vectors])


def _one_lane(f: Callable[..., Tree]) -> Callable[..., Tree]:
    """`f`, and under a `jax.vmap` over one lane `f` of that lane: XLA's CPU backend forms some terms twice there."""
    run = jax.custom_batching.custom_vmap(f)

    @run.def_vmap
    def _(size: int, batched: Any, *args: Tree) -> tuple[Tree, Tree]:
        if size > 1:
            out = jax.vmap(f, jax.tree.map(lambda has: 0 if has else None, tuple(batched)))(*args)
        else:
            alone = jax.tree.map(lambda x, has: jnp.squeeze(x, 0) if has else x, args, tuple(batched))
            out = jax.tree.map(lambda x: x[None], f(*alone))
        return out, jax.tree.map(lambda _: True, out)

    return run


def _in_chunks(sums: Any, size: int, rows: int) -> Any:
    """Sums over entries, some thousand at a time, added up in float64; `sums(start, width)` gives float32 arrays."""
    width = min(size, CHUNK_WIDTH, max(256, CHUNK_ENTRIES // rows // 256 * 256))
    whole = size // width
    _, parts = jax.lax.scan(lambda _, i: (None, sums(i * width, width)), None, jnp.arange(whole))
    with jax.enable_x64(True):
        total = jax.tree.map(lambda part: part.astype(jnp.float64).sum(0), parts)
    if whole * width < size:
        last = sums(whole * width, size - whole * width)
        with jax.enable_x64(True):
            total = jax.tree.map(lambda part, more: part + more.astype(jnp.float64), total, last)
    return total


def _field_sums(F: Array, vectors: Sequence[Array]) -> Array:
    """F v for each of some vectors, (vectors, rows) in float64.

    The vectors stay apart: side by side they would be copied, which costs as much as some rows.
    """
    run = functools.partial(jax.lax.platform_dependent, cpu=_field_in_chunks, default=_field_at_once)
    return _one_lane(run)(F, vectors)


def _field_at_once(F, vectors):
    out = _product(F, jnp.stack(vectors, 1)).T
    with jax.enable_x64(True):
        return out.astype(jnp.float64)


def _field_in_chunks(F, vectors):
    if F.size <= CACHE_ENTRIES and F.shape[1] <= CACHE_WIDTH:
        out = _products(F, vectors)
        with jax.enable_x64(True):
            return out.astype(jnp.float64)

    # By chunks the rows are read from memory once for all vectors.
    def sums(start, width):
        part = jax.lax.optimization_barrier(jax.lax.dynamic_slice_in_dim(F, start, width, 1))
        return _products(part, [jax.lax.dynamic_slice_in_dim(v, start, width) for v in vectors])

    return _in_chunks(sums, F.shape[1], F.shape[0])


def _displacement_sums(X: Array, x: Array, vectors: Sequence[Array], root: Array | None) -> tuple[Array, Array]:
    """|W (x_i - x)|^2 and (x_i - x) W v for a diagonal W and each of some vectors, in float64."""
    run = functools.partial(jax.lax.platform_dependent, cpu=_sums_in_chunks, default=_sums_at_once)
    return _one_lane(run)(X, x, vectors, root)


def _sums_at_once(X, x, vectors, root):
    dx = X - x if root is None else (X - x) * root
    squares, dots = (dx * dx).sum(1), _product(dx, jnp.stack(vectors, 1)).T
    with jax.enable_x64(True):
        return squares.astype(jnp.float64), dots.astype(jnp.float64)


def _sums_in_chunks(X, x, vectors, root):
    # XLA's CPU backend writes the differences to memory: chunk by chunk they stay in the cache.
    def sums(start, width):
        # Without the barrier the difference is fused into each reduction, which then no longer runs vectorised.
        dx = jax.lax.dynamic_slice_in_dim(X, start, width, 1) - jax.lax.dynamic_slice_in_dim(x, start, width)
        if root is not None:
            dx = dx * jax.lax.dynamic_slice_in_dim(root, start, width)
        dx = jax.lax.optimization_barrier(dx)
        return (dx * dx).sum(1), _products(dx, [jax.lax.dynamic_slice_in_dim(v, start, width) for v in vectors])

    return _in_chunks(sums, X.shape[1], X.shape[0])


def _choose_row(history: History) -> tuple[Int[Array, ""], Bool[Array, " rows"]]:
    """The row to write, and the rows kept afterwards."""
    kept, times = history.kept, history.times
    full = kept.sum() >= history.capacity
    accepted: Array = jnp.array(True)
    victim: Array = jnp.argmin(jnp.where(kept, times, jnp.iinfo(times.dtype).max))
    if history.keep == "reservoir":
        draw = jax.random.randint(jax.random.fold_in(history.key, history.count), (), 0, history.count + 1)
        accepted = ~full | (draw < history.capacity)
        victim = jnp.argmax(kept & (jnp.cumsum(kept) == draw + 1))
    elif history.keep == "thinned":
        victim = _least_relative_gap(kept, times, history.count)
    rows = jnp.arange(len(times))
    kept = kept & ~((rows == victim) & full & accepted)
    free = ~kept & ~history.locked & (rows < len(times) - 1)
    slot = jnp.argmin(jnp.where(free, times, jnp.iinfo(times.dtype).max))
    return slot.astype(jnp.int32), jnp.where(rows == slot, accepted, kept)


def _least_relative_gap(kept: Array, times: Array, now: Array) -> Array:
    """The kept row whose two neighbours in time are closest for their age: ages stay near geometric without it."""
    age = jnp.where(kept, now - times, jnp.iinfo(times.dtype).max)
    order = jnp.argsort(age)
    ages = age[order].astype(jnp.float32)
    inside = (jnp.arange(len(times)) > 0) & (jnp.arange(len(times)) < kept.sum() - 1)
    gap = jnp.where(inside, (jnp.roll(ages, -1) - jnp.roll(ages, 1)) / ages, jnp.inf)
    return order[jnp.argmin(gap)]
