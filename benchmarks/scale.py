"""What the graph projection costs from a thousand to a million samples, and against a peer at five thousand.

    python benchmarks/scale.py [--quick] [--peer-python PATH]

Each size runs in a process of its own, which first times the bare neighbour search (cKDTree build and query on all
cores, the samples in the order they came) and then `hpml.project(X, F, GraphProjector(neighbours=16))`, the whole of
it. Peak memory is the process's. Targets at n = 1,000,000, d = 3: at most 6 times the bare search, and 8 GB.

The peer is dynamo (PyPI: dynamo-release), whose Hodge step is `dynamo.tools.graph_operators.potential` on the k-NN
graph's edge flow: a public package that takes sampled vector fields through a neighbour graph to a Hodge potential. Its
time is the Hodge step alone, on a graph that was built for it; ours is the whole projection. Install it in an
environment of its own and pass that environment's python.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

NEIGHBOURS, DIMENSION = 16, 3
RATIO, MEMORY = 6.0, 8.0  # times the bare search; GB
PEER_COUNT, PEER_RATIO = 5_000, 100.0
INSTALL = (
    "python -m venv peer && peer/bin/pip install dynamo-release six 'statsmodels<0.15'; --peer-python peer/bin/python"
)

# Run by the peer's python, with nothing of ours: the edge flow of a k-NN graph in, the seconds of the Hodge step out.
PEER = """
import sys, time, json
import numpy as np
from scipy.sparse import csr_matrix
import dynamo
from dynamo.tools import graph_operators as peer
data = np.load(sys.argv[1])
i, j, omega, n = data["i"], data["j"], data["omega"], int(data["n"])
forward = omega > 0
adjacency = csr_matrix((np.abs(omega), (np.where(forward, i, j), np.where(forward, j, i))), shape=(n, n))
graph = peer.build_graph(adjacency)
start = time.perf_counter()
phi = peer.potential(graph)
seconds = time.perf_counter() - start
np.save(sys.argv[2], phi)
print(json.dumps({"seconds": seconds, "version": dynamo.__version__}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="stop at 100,000 samples")
    parser.add_argument("--peer-python", help="the python of an environment that has dynamo-release")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    console = wide_console()
    scale_table(console, [1_000, 10_000, 100_000] + ([] if options.quick else [1_000_000]))
    peer_table(console, options.peer_python or sys.executable)


def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Uniform in the unit ball, a bowl with cosines and a swirl."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(count, DIMENSION))
    z *= rng.uniform(size=(count, 1)) ** (1 / DIMENSION) / np.linalg.norm(z, axis=1, keepdims=True)
    S = np.array([[0.0, -1.0, 0.4], [1.0, 0.0, 0.2], [-0.4, -0.2, 0.0]])
    return z, -z - 0.6 * np.sin(2 * z) + 4.0 / (1.0 + (z**2).sum(1, keepdims=True)) * (z @ S.T)


def measure(count: int) -> dict:
    """Seconds of the bare search and of the projection, in one process; small sizes are repeated."""
    from scipy.spatial import cKDTree

    import hpml

    X, F = samples(count)
    projector = hpml.GraphProjector(neighbours=NEIGHBOURS)
    rounds = max(1, min(7, 300_000 // count))
    hpml.project(X[:2_000], F[:2_000], projector)  # imports and first calls are not what is measured
    bare, whole = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        cKDTree(X).query(X, NEIGHBOURS + 1, workers=-1)
        bare.append(time.perf_counter() - start)
        start = time.perf_counter()
        p = hpml.project(X, F, projector)
        whole.append(time.perf_counter() - start)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {
        "count": count,
        "bare": float(np.median(bare)),
        "whole": float(np.median(whole)),
        "memory": memory,
        "method": p.method,
        "residual": p.fit.solution.residual,
    }


def scale_table(console: Console, counts: list[int]) -> None:
    table = Table(title=f"graph projection, d = {DIMENSION}, k = {NEIGHBOURS}")
    for column in ("n", "method", "bare k-NN, s", "projection, s", "ratio", "peak memory, GB", "Poisson residual"):
        table.add_column(column, justify="right")
    rows = []
    for count in counts:
        child = [sys.executable, __file__, "--one", str(count)]
        rows.append(
            json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        )
        row = rows[-1]
        table.add_row(
            f"{count:,}",
            row["method"],
            f"{row['bare']:.4f}",
            f"{row['whole']:.4f}",
            f"{row['whole'] / row['bare']:.2f}",
            f"{row['memory']:.2f}",
            f"{row['residual']:.1e}",
        )
    console.print(table)
    n, t = (np.array([row[key] for row in rows]) for key in ("count", "whole"))
    console.print(f"seconds grow as n^{np.polyfit(np.log(n), np.log(t), 1)[0]:.2f} from {n[0]:,} to {n[-1]:,} samples")
    last = rows[-1]
    if last["count"] == 1_000_000:
        ratio, memory = last["whole"] / last["bare"], last["memory"]
        console.print(
            f"at n = 1,000,000: {ratio:.2f} times the bare search ({verdict(ratio <= RATIO)}, target {RATIO:g})"
        )
        console.print(f"at n = 1,000,000: {memory:.2f} GB at peak ({verdict(memory <= MEMORY)}, target {MEMORY:g})")


def peer_table(console: Console, python: str) -> None:
    import hpml

    if shutil.which(python) is None:
        console.print(f"there is no {python}: give the python of an environment that has dynamo as --peer-python")
        return
    if subprocess.run([python, "-c", "import dynamo"], capture_output=True).returncode:
        console.print(f"[yellow]no dynamo in {python}: {INSTALL}[/yellow]")
        return
    X, F = samples(PEER_COUNT)
    projector = hpml.GraphProjector(neighbours=NEIGHBOURS, weighting="unit")  # the peer's Laplacian has unit weights
    p = hpml.project(X, F, projector)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        p = hpml.project(X, F, projector)
        seconds.append(time.perf_counter() - start)
    ours = float(np.median(seconds))
    with tempfile.TemporaryDirectory() as folder:
        given, answer = Path(folder) / "flow.npz", Path(folder) / "phi.npy"
        i, j = p.flow.edges.T
        np.savez(given, i=i, j=j, omega=p.flow.omega, n=PEER_COUNT)
        child = [python, "-c", PEER, str(given), str(answer)]
        reply = json.loads(subprocess.run(child, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
        theirs = np.load(answer)
    theirs = theirs - theirs.mean()
    difference = min(np.abs(sign * theirs - p.potential).max() for sign in (1, -1)) / np.abs(p.potential).max()
    table = Table(title=f"n = {PEER_COUNT:,}: the whole projection against dynamo's Hodge step")
    for column in ("", "seconds", "ratio"):
        table.add_column(column, justify="right")
    table.add_row("hpml.project", f"{ours:.3f}", "1")
    table.add_row(
        f"dynamo {reply['version']}, potential()", f"{reply['seconds']:.1f}", f"{reply['seconds'] / ours:.0f}"
    )
    console.print(table)
    ratio = reply["seconds"] / ours
    console.print(f"{ratio:.0f} times faster ({verdict(ratio >= PEER_RATIO)}, target {PEER_RATIO:g})")
    console.print(f"largest difference of the two potentials: {difference:.1e} of the largest value")


def wide_console() -> Console:
    return Console(width=max(Console().width, 120))  # a pipe has 80 columns, too few for the tables


def verdict(met: bool) -> str:
    return "met" if met else "missed"


if __name__ == "__main__":
    main()
