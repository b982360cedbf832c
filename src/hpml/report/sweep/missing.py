"""What is missing: cells that a suite asked for and that are not there, runs under way, runs that failed."""

from dataclasses import dataclass
from typing import Any

from hpml.experiment.sweep.asked import Asked, read_requests, without_requests
from hpml.experiment.sweep.suite import parse_suite
from hpml.marl.find import resolve
from hpml.report.sweep.identity import environment_name
from hpml.report.sweep.study import Study


@dataclass(frozen=True)
class Gap:
    """A cell with less than was asked for: the seeds that have all their steps, and the steps of the slowest."""

    suite: str
    environment: str
    method: str
    seeds: int
    wanted_seeds: int
    steps: float
    wanted_steps: int

    @property
    def words(self) -> str:
        """How far it is: seeds that are finished, and the steps of the slowest."""
        if self.steps == 0 and self.seeds == 0:
            return "nothing yet"
        return f"{self.seeds} of {self.wanted_seeds}, {100 * self.steps / self.wanted_steps:.0f}\u00a0%"


def gaps(study: Study) -> tuple[list[Gap], list[str]]:
    """Cells that are not finished, and a sentence for each suite that cannot be read."""
    found: list[Gap] = []
    troubles: list[str] = []
    reached = _reached(study)
    told: set[tuple[str, str]] = set()
    for name, text in study.found.suites.items():
        try:
            wanted = wanted_cells(text.decode())
        except (ValueError, UnicodeDecodeError, KeyError, TypeError) as error:
            troubles.append(f"The suite {name} cannot be read, so what it asks for is not known: {error}")
            continue
        for (environment, method), (seeds, steps) in wanted.items():
            told.add((environment, method.casefold()))
            own = reached.get((environment, method.casefold()), {})
            done = sum(own.get(seed, -1) >= steps for seed in seeds)
            if done < len(seeds):
                least = min((own.get(seed, 0.0) for seed in seeds), default=0.0)
                found.append(Gap(name, environment, method, done, len(seeds), least, steps))
    for key, group in _unfinished(study).items():
        if (key[0], key[1].casefold()) not in told:
            found.append(group)
    return found, troubles


def failures(study: Study) -> list[list[Any]]:
    """Runs whose last attempt did not end well: the run, how often it was tried, the outcome, the reason."""
    bad = [record for record in study.found.records if record.outcome in ("failed", "lost")]
    return [[record.name, record.attempts, record.outcome, record.reason or "no reason was kept"] for record in bad]


def wanted_cells(text: str) -> dict[tuple[str, str], tuple[tuple[int, ...], int]]:
    """What a suite asks for: {(environment, method's label): (seeds, steps)}, each as it was asked for last."""
    suite = parse_suite(without_requests(text))
    found = {}
    for asked in read_requests(text) or [Asked("", suite.steps)]:
        try:
            wanted = suite.named(asked.only)
        except ValueError:  # the suite has changed since, and has no such cell any more
            continue
        for environment in wanted["env"]:
            own = suite.scenario(environment)
            count = asked.seeds or own.seeds or suite.seeds
            for method in suite.methods_of(environment):
                if method.key in wanted["method"]:
                    seeds = tuple(range(suite.first_seed, suite.first_seed + count))
                    steps = max(1, round((own.steps or suite.steps) * asked.steps / suite.steps))
                    found[environment_name(_full(environment)), method.label] = (seeds, steps)
    return found


def _full(environment: str) -> str:
    full, _ = resolve(environment)
    return full + "".join(environment.partition(":")[1:])


def _reached(study: Study) -> dict[tuple[str, str], dict[int, float]]:
    """{(environment, method in small letters): {seed: steps}}, the most that any run of the seed has."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    extents = study.reached
    for number, seed, steps in zip(extents["run"], extents["seed"], extents["steps"], strict=True):
        run = study.found.runs[int(number)]
        own = found.setdefault((run.environment, run.method.casefold()), {})
        own[int(seed)] = max(own.get(int(seed), 0.0), float(steps))
    return found


def _unfinished(study: Study) -> dict[tuple[str, str], Gap]:
    """Cells with a run that has not the steps it was asked for itself."""
    reached = _reached(study)
    found: dict[tuple[str, str], Gap] = {}
    for environment, method in sorted({(run.environment, run.method) for run in study.found.runs}):
        runs = [run for run in study.found.runs if (run.environment, run.method) == (environment, method)]
        wanted = {seed: max(run.asked for run in runs if seed in run.seeds) for run in runs for seed in run.seeds}
        own = reached.get((environment, method.casefold()), {})
        late = [seed for seed, steps in wanted.items() if own.get(seed, 0.0) < steps]
        if late:
            done, least = len(wanted) - len(late), min(own.get(seed, 0.0) for seed in late)
            found[environment, method] = Gap("", environment, method, done, len(wanted), least, max(wanted.values()))
    return found
