"""What the paper reports: its scenarios, their names in its tables, and the tables themselves.

Values are normalised returns in per cent, mean and standard error over 5 seeds after 10,000,000 steps, from
`tab:meltingpot_full` and `tab:meltingpot_summary`. The paper gives no raw returns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

STEPS, SEEDS = 10_000_000, 5
LONG = 20  # letters of a name that still fits a column


@dataclass(frozen=True)
class Scenario:
    """A scenario of the paper: its `name` here, the column it has in the full table, and its `title`."""

    name: str
    column: str
    title: str


SCENARIOS = (
    Scenario("bos_repeated", "BoS-R", "Bach or Stravinsky Repeated"),
    Scenario("pure_coordination_repeated", "PC-R", "Pure Coordination Repeated"),
    Scenario("rationalizable_coordination_repeated", "RC-R", "Rationalizable Coordination Repeated"),
    Scenario("stag_hunt_repeated", "SH-R", "Stag Hunt Repeated"),
    Scenario("prisoners_dilemma_repeated", "PD-R", "Prisoners Dilemma Repeated"),
    Scenario("collaborative_cooking_circuit", "CC-Cir", "Collaborative Cooking: Circuit"),
    Scenario("collaborative_cooking_crowded", "CC-Crowd", "Collaborative Cooking: Crowded"),
    Scenario("collaborative_cooking_figure_eight", "CC-F8", "Collaborative Cooking: Figure Eight"),
    Scenario("commons_harvest_partnership", "CH-Part", "Commons Harvest: Partnership"),
    Scenario("clean_up", "Clean Up", "Clean Up"),
)
SUMMARY = {"bos_repeated": "BoS-Rep", "collaborative_cooking_circuit": "CC-Circuit", "clean_up": "Clean Up"}
"""The three scenarios of `tab:meltingpot_summary` with their columns there."""

METHODS = ("IA2C", "IPPO", "MAPPO", "HAPPO", "COMA", "HPML-MAPPO (Graph)", "HPML-MAPPO (Neural)")

_MEANS = """
83.7 83.7 87.1 78.1 29.6 88.3 65.8 84.6 22.1 70.6
100.0 7.4 52.5 65.7 0.0 30.7 75.5 39.0 25.0 84.4
86.3 53.5 65.0 100.0 61.6 96.9 42.1 100.0 89.8 86.2
93.6 88.7 76.6 97.0 57.7 82.7 50.3 97.5 68.5 81.1
0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0
100.0 100.0 100.0 100.0 98.3 100.0 100.0 96.2 92.3 100.0
88.7 99.6 99.3 96.2 100.0 99.9 99.5 99.6 100.0 98.7
"""
_ERRORS = """
7.5 7.5 7.8 5.2 29.6 4.5 5.9 3.9 1.1 3.0
4.1 7.4 5.6 32.9 0.0 30.7 4.8 1.7 0.3 4.2
3.6 2.5 0.8 4.1 30.9 4.9 1.9 4.1 3.7 3.6
3.9 12.2 10.3 5.2 29.9 7.2 11.1 0.8 10.0 4.5
0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0 0.0
0.0 0.0 0.0 0.0 5.6 0.0 0.8 3.5 12.7 25.9
12.2 0.2 0.2 3.5 4.7 0.0 5.3 0.2 6.3 0.2
"""


def _table(text: str) -> dict[str, dict[str, float]]:
    names = [scenario.name for scenario in SCENARIOS]
    rows = [[float(cell) for cell in line.split()] for line in text.strip().splitlines()]
    return {method: dict(zip(names, row, strict=True)) for method, row in zip(METHODS, rows, strict=True)}


NORMALISED = _table(_MEANS)
"""`tab:meltingpot_full`: mean normalised return in per cent, by method and scenario."""
ERRORS = _table(_ERRORS)
"""Its standard errors."""
MACRO = dict(zip(METHODS, (69.4, 48.0, 78.1, 79.4, 0.0, 98.7, 98.2), strict=True))
"""Its macro averages."""
MACRO_ERRORS = dict(zip(METHODS, (3.4, 4.7, 3.3, 3.9, 0.0, 3.0, 1.6), strict=True))
SHOWN = dict(zip(METHODS, (80.9, 71.7, 89.8, 85.8, 0.0, 100.0, 95.8), strict=True))
"""The average over three scenarios in `tab:meltingpot_summary`."""
RESIDUAL = {"HPML-MAPPO (Graph)": 0.074, "HPML-MAPPO (Neural)": 411.326}
"""Training-average raw residual energy in `tab:meltingpot_summary`; the paper has none for the other methods."""


def paper_order(name: str) -> tuple[int, str]:
    """Where a scenario stands: the paper's in its order, others after them by name."""
    names = [scenario.name for scenario in SCENARIOS]
    return (names.index(name) if name in names else len(names), name)


def column_of(name: str) -> str:
    """A scenario's column: the paper's abbreviation, the name without its family, or a long one's first letters."""
    known = {scenario.name: scenario.column for scenario in SCENARIOS}
    plain = name.removeprefix("matrix/").removeprefix("meltingpot/")
    if name in known or len(plain) <= LONG:
        return known.get(name, plain)
    start, _, end = plain.replace("_in_the_matrix", "").partition("__")
    return "-".join(part for part in (_initials(start), _initials(end)) if part)


def abbreviations(names: Sequence[str]) -> str:
    """What the columns stand for, as a sentence; empty where they are the names themselves."""
    short = [f"{column_of(name)} = {title_of(name)}" for name in names if column_of(name) not in (title_of(name), name)]
    return f"Abbreviations: {', '.join(short)}." if short else ""


def _initials(words: str) -> str:
    return "".join(word[0].upper() for word in words.split("_") if word)


def title_of(name: str) -> str:
    """A scenario's title for people."""
    known = {scenario.name: scenario.title for scenario in SCENARIOS}
    return known.get(name, name.partition("/")[2].replace("__", ": ").replace("_", " ") or name)
