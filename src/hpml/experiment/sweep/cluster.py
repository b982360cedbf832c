"""A Ray cluster before any run starts: whether it answers, what its machines have, whether they all see the place.

`ray.init` waits for minutes where nothing answers, and ends the process where something else does. So the port is tried
first, and then a process of its own connects, for a limited time.
"""

import contextlib
import os
import platform
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any

from hpml.experiment.sweep.claim import Busy
from hpml.experiment.sweep.machine import Machine, this_machine
from hpml.experiment.sweep.place import CLAIMS, Folder, open_place

KNOCK = 5.0  # seconds for the port to answer
GREET = 45.0  # seconds for a process to start and connect
ASK = 120.0  # seconds for every machine to answer; a fresh one starts a Python process and imports hpml
TRY = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"
HOW = "see docs/cluster.md"


def connect(address: str) -> tuple[Any, bool]:
    """Ray, connected to a cluster, and whether it was not before."""
    ray = _ray()
    if ray.is_initialized():
        return ray, False
    address = _reachable(address)
    try:
        tried = subprocess.run([sys.executable, "-c", TRY, address], capture_output=True, text=True, timeout=GREET)
    except subprocess.TimeoutExpired as error:
        raise ValueError(f"What answers at {address} is no Ray cluster, or one that hangs: {HOW}.") from error
    if tried.returncode:
        raise ValueError(_why(address, tried.stderr.strip()))
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    return ray, True


def nodes(ray: Any) -> dict[str, dict[str, Any]]:
    """The machines that are there now and can run something, by their number in Ray."""
    return {node["NodeID"]: node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU")}


def check(ray: Any, place: str = "") -> Machine:
    """What the machines can give to runs; a `ValueError` where one has another hpml, or does not see the place.

    The machine that is returned has the most cores of all, and the GPUs of the one that has some but the least memory.
    """
    token = uuid.uuid4().hex
    with _marked(place, token) if place else contextlib.nullcontext():
        found = on_each(ray, inspect, (place, token), ASK)
    mine = _version()
    for node, said in found:
        host = _host(node)
        if isinstance(said, BaseException):
            raise ValueError(f"The machine {host} of the cluster cannot run hpml ({_short(said)}): {HOW}.") from said
        if said["hpml"] != mine:
            raise ValueError(
                f"The machine {host} of the cluster has hpml {said['hpml']} and this one {mine}: install the same."
            )
        if said["place"]:
            raise ValueError(_unseen(place, host, said["place"]))
        if said["locks"]:
            raise ValueError(
                f"Locks in {place} do not reach the machine {host} of the cluster: give it as file://{place}, where "
                "runs are claimed by files."
            )
    if not found:
        raise ValueError("No machine of the cluster has cores for runs: start one with ray start --address=...")
    cores = max(min(said["cores"], int(node["Resources"]["CPU"])) for node, said in found)
    gpus = [said["gpus"][: int(node["Resources"].get("GPU", 0))] for node, said in found]
    return Machine(max(1, cores), min((each for each in gpus if each), key=min, default=()))


def inspect(place: str, token: str) -> dict[str, Any]:
    """What this machine has, and what is wrong with the place and its locks seen from here."""
    trouble, locks = "", False
    if place:
        try:
            opened = open_place(place)
            trouble = "" if opened.read(_token(token)) else "not there"
            locks = not trouble and isinstance(opened, Folder) and _taken(opened, token)
        except Exception as error:  # whatever the driver of a store raises
            trouble = _short(error)
    machine = this_machine()
    return {
        "hpml": _version(),
        "cores": machine.cores,
        "gpus": machine.gpus,
        "place": trouble,
        "locks": locks,
    }


def _taken(place: Folder, token: str) -> bool:
    """Whether this process gets a lock that another one holds."""
    try:
        with place.work(token):
            return True
    except Busy:
        return False


@contextlib.contextmanager
def _marked(place: str, token: str) -> Iterator[None]:
    """A file at the place for others to see, and in a folder a lock for them to find taken."""
    opened = open_place(place)
    try:
        opened.write(_token(token), b"seen")
    except ValueError:
        raise
    except OSError as error:
        raise ValueError(f"{place} cannot be written to ({_short(error)}).") from error
    try:
        with opened.work(token) if isinstance(opened, Folder) else contextlib.nullcontext():
            yield
    finally:
        for name in (_token(token), f"{CLAIMS}/{token}.lock"):
            with contextlib.suppress(OSError):
                opened.remove(name)


def _token(token: str) -> str:
    return f"{CLAIMS}/{token}.token"


def here() -> bool:
    """The answer of a machine that is there."""
    return True


def ask(ray: Any, node: str, question: Callable[..., Any], *arguments: Any) -> Any:
    """Ask a machine something; Ray's reference to the answer."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(question).remote(*arguments)


def on_each(
    ray: Any, question: Callable[..., Any], arguments: tuple[Any, ...], seconds: float
) -> list[tuple[dict[str, Any], Any]]:
    """What each machine answers, or its error."""
    known = nodes(ray)
    asked = {name: ask(ray, name, question, *arguments) for name in known}
    if asked:
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=seconds)
    found: list[tuple[dict[str, Any], Any]] = []
    for name, ref in asked.items():
        try:
            found.append((known[name], ray.get(ref, timeout=0)))
        except ray.exceptions.GetTimeoutError:
            found.append((known[name], TimeoutError(f"no answer within {seconds:g} seconds")))
        except ray.exceptions.RayTaskError as error:
            found.append((known[name], error.cause if isinstance(error.cause, Exception) else error))
        except ray.exceptions.RayError as error:
            if name in nodes(ray):  # else it is gone, and gets no run
                found.append((known[name], error))
    return found


def _host(node: dict[str, Any]) -> str:
    return node.get("NodeManagerHostname") or node.get("NodeManagerAddress") or node["NodeID"]


def _reachable(address: str) -> str:
    """The address that is meant; one sentence where nothing is there."""
    if address == "auto":
        return os.environ.get("RAY_ADDRESS") or address
    if address.startswith("ray://"):
        raise ValueError(
            f"{address} is an address for Ray's client, which ends all runs when its line breaks: run hpml sweep on a "
            f"machine of the cluster with --ray auto; {HOW}."
        )
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        raise ValueError(f"--ray {address} is no address: give host:port of the cluster's head, or auto; {HOW}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=KNOCK).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"No Ray cluster answers at {address} ({_short(error)}): start one with ray start --head, or check the "
            f"address; {HOW}."
        ) from error
    return address


def _why(address: str, said: str) -> str:
    """Why a process could not connect, in one sentence."""
    if "Version mismatch" in said:
        lines = [line.strip() for line in said[said.index("Version mismatch") :].splitlines()]
        versions = [line.partition(":")[2].strip() for line in lines if line.startswith(("Ray:", "Python:"))]
        theirs = f"Ray {versions[0]} and Python {versions[1]}" if len(versions) >= 2 else "other versions"
        return (
            f"The cluster at {address} has {theirs}, and this process has Ray {metadata.version('ray')} and Python "
            f"{platform.python_version()}: both must be the same; {HOW}."
        )
    if address == "auto":
        return (
            f"This machine belongs to no Ray cluster: start one with ray start --head, or give --ray host:port; {HOW}."
        )
    last = said.splitlines()[-1] if said else "it ended without a word"
    return (
        f"The Ray cluster at {address} cannot be joined from here ({last[:200]}): this machine must be part of it (ray "
        f"start --address={address}); {HOW}."
    )


def _unseen(place: str, host: str, trouble: str) -> str:
    if "://" in place and not place.startswith(("file://", "local://")):
        return (
            f"The machine {host} of the cluster cannot read {place} ({trouble}): it needs the same access as this one."
        )
    return (
        f"The machine {host} of the cluster does not see {place} ({trouble}): results must lie in a folder that all "
        "machines share, or in a store such as s3://bucket/name."
    )


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ValueError('A cluster is reached with Ray: pip install "hpml[cluster]".') from error
    return ray


def _version() -> str:
    try:
        return metadata.version("hpml")
    except metadata.PackageNotFoundError:
        return "unknown"


def _short(error: BaseException) -> str:
    said = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), "")
    return said.strip().rstrip(".").lower() if isinstance(error, OSError) else said.strip() or type(error).__name__
