"""What sweeps have asked of a suite: kept at the end of its copy beside the results, the newest last.

A later request decides about the cells that it names and leaves the others to those before it: a suite that is run in
parts by `--only` is known as a whole.
"""

import json
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass

MARK = "\n[[asked]]"
BEFORE = "\n[asked]"  # of a time when only the last request was kept


@dataclass(frozen=True)
class Asked:
    """One request: the `command`, `steps` that take the place of the suite's, `seeds` (0: the suite's), and `only`."""

    command: str
    steps: int
    seeds: int = 0
    only: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The request as a table of a suite's file."""
        told = [f"command = {json.dumps(self.command)}", f"steps = {self.steps}"]
        told += [f"seeds = {self.seeds}"] if self.seeds else []
        return ["", "[[asked]]  # of this suite, the newest last", *told, f"only = {json.dumps(list(self.only))}"]


def without_requests(text: str) -> str:
    """A suite's own text."""
    return text.partition(MARK)[0].partition(BEFORE)[0].rstrip("\n") + "\n"


def read_requests(text: str) -> list[Asked]:
    """The requests at the end of a suite's copy."""
    raw = tomllib.loads(text)
    found = raw.get("asked", [])
    return [
        Asked(
            str(each.get("command", "")),
            int(each.get("steps", raw["steps"])),
            int(each.get("seeds", 0)),
            tuple(word for condition in each.get("only", ()) for word in str(condition).split()),
        )
        for each in (found if isinstance(found, list) else [found])
    ]


def with_requests(text: str, requests: Sequence[Asked]) -> str:
    """A suite's own text with requests; of those that ask for the same, the last."""
    kept: dict[tuple[int, int, tuple[str, ...]], Asked] = {}
    for each in requests:
        kept.pop((each.steps, each.seeds, each.only), None)
        kept[each.steps, each.seeds, each.only] = each
    lines = [line for each in kept.values() for line in each.lines]
    return without_requests(text) + "\n".join(lines) + "\n"
