"""The command line: `hpml mechanism`, `hpml train`, `hpml sweep`, `hpml report`, `hpml diagnose` and `hpml list`."""

import argparse
import dataclasses
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hpml.catalogue import (
    list_algorithms,
    list_environments,
    list_games,
    list_projectors,
    list_rules,
    summary,
)
from hpml.diagnosis import diagnose as diagnose_samples
from hpml.experiment.config import TrainConfig, from_json, train_config
from hpml.experiment.store import read_config
from hpml.experiment.sweep.suite import read_suite, suite_names
from hpml.geometry import domain, metric
from hpml.marl.find import short_names
from hpml.mechanism.config import MechanismConfig
from hpml.mechanism.suite import EXPERIMENTS, run_mechanism
from hpml.record.samples import LIMIT
from hpml.report.diagnosis import write_diagnosis
from hpml.report.mechanism.page import write_mechanism
from hpml.report.mechanism.summary import summary_table


def mechanism(
    config: Annotated[MechanismConfig, tyro.conf.arg(name="")] = MechanismConfig(),  # noqa: B008 (frozen)
    out: Path = Path("out/mechanism"),
) -> None:
    """Show in small games with a known answer what circulates and what the projection does about it.

    Rock-paper-scissors, a 2-D and a 3-D field, the logistic game, Markov games: raw against projected, the strategies
    that form the circle, every update rule, and the paper's bounds. Prints a table and writes a page with figures that
    opens in any browser.

    Args:
        config: How large the experiments are.
        out: The folder that the page, the pictures and the numbers are written to.
    """
    console = Console()
    _make_folder(out)
    with _progress(console) as progress:
        task = progress.add_task("starting", total=len(EXPERIMENTS) + 1)
        found = run_mechanism(config, lambda title, done: progress.update(task, completed=done, description=title))
        progress.update(task, completed=len(EXPERIMENTS), description="drawing")
        path = write_mechanism(found, out)
    console.print(summary_table(found))
    console.print("report:", str(path.resolve()), soft_wrap=True)


def train(
    config: Annotated[TrainConfig, tyro.conf.arg(name="")] = TrainConfig(),  # noqa: B008 (frozen)
) -> None:
    """Train several agents at once and keep all that happened: curves, diagnostics, checkpoints.

    A run that is stopped, by Ctrl-C or by anything else, goes on with --resume as if nothing had happened.

    Args:
        config: What is trained, and how.
    """
    from hpml.experiment.result import result_table
    from hpml.experiment.run import train as run

    console = Console()
    result = run(config, console)
    place = shlex.quote(str(result.folder))
    if result.stopped is not None:
        where = f"after update {result.update} of {result.total}" if result.update > 0 else "before the first update"
        sentence = f"Stopped {where}. Go on with: hpml train --resume --out {place}"
        console.print(sentence, highlight=False, markup=False, soft_wrap=True)
        raise SystemExit(128 + result.stopped)
    console.print(result_table(result.folder))
    console.print("run:", str(result.folder.resolve()), soft_wrap=True)


def sweep(
    suite: tyro.conf.Positional[str],
    out: str = "",
    budget: float | None = None,
    seeds: int | None = None,
    only: tuple[str, ...] = (),
    set: tuple[str, ...] = (),
    jobs: int = 0,
    workers: int = 0,
    device: Literal["auto", "cpu", "gpu"] | None = None,
    tune: bool = False,
    ray: str = "",
    list: bool = False,
) -> None:
    """Train every environment of a suite with every method and seed, and go on where it was left.

    What is finished is skipped, what was interrupted resumes, what failed is shown with its reason and tried again by
    the next sweep. Stop it by Ctrl-C and start it again by the same command. `hpml sweep quick` takes minutes.

    Args:
        suite: A suite's file (TOML), or one that comes with hpml, such as quick, ours or paper.
        out: The sweep's folder, or an address that fsspec knows such as s3://bucket/name; out/sweep/<suite> unless
            given.
        budget: Environment steps of each run instead of the suite's, such as 1e6. An environment with steps of its own
            keeps its proportion. A larger budget later goes on with the same runs.
        seeds: The number of seeds instead of the suite's. More seeds later are trained beside those that are there.
        only: Parts of the suite: env=clean_up or method=mappo,coma, or both with a blank between.
        set: Options of `hpml train` for every run, in the place of the suite's: evaluate_every=200 entropy=0.03.
        jobs: How many runs at once; 0 for as many as cores and GPU memory allow.
        workers: Processes that step the environments of each run in Melting Pot; 0 for a share of the cores.
        device: What the learners run on, instead of the suite's choice; auto takes a GPU where there is one.
        tune: First try the suite's grid of settings, of the same size for every method, on seeds that are not
            reported, and then run each method with what was best for it.
        ray: Run on the Ray cluster at this address instead of this machine; auto finds one that runs here.
        list: Only show what would run, and what stands of it already.
    """
    from hpml.experiment.sweep.command import Request, list_suite, run_suite

    console = Console()
    command = shlex.join(["hpml", *sys.argv[1:]])
    request = Request(out, budget, seeds, only, set, jobs, workers, device or "", tune, ray, command)
    if list:
        console.print(list_suite(suite, request))
        return
    if status := run_suite(suite, request, console):
        raise SystemExit(status)


def diagnose(
    file: tyro.conf.Positional[Path],
    field: Path | None = None,
    out: Path = Path("out/diagnose"),
    conventions: int | None = None,
    limit: int = LIMIT,
) -> None:
    """Say how much of your training's update goes in circles, and which conventions form the circle.

    Reads samples of a joint update, prints the verdict and writes a page with figures that opens in any browser.
    hpml.Recorder writes such a file from a training loop in two lines.

    Args:
        file: An .npz, .safetensors or .parquet file with points (n, d) and field (n, d), the update at each point in
            ascent sign; or points.npy beside field.npy, or the folder that has both. It may also hold labels, weights,
            blocks (each agent's number of coordinates) and names (the coordinates').
        field: The second file of a pair of .npy files whose names do not tell.
        out: The folder that the page, the numbers and the tables are written to.
        conventions: How many groups of samples to look for; chosen from the data unless given.
        limit: The most samples that are used; more are thinned at random, and the page says so.
    """
    console = Console()
    if conventions is not None and conventions < 1:
        raise ValueError(f"--conventions must be at least 1, got {conventions}.")
    with _progress(console) as progress:
        task = progress.add_task("reading", total=4)
        found = diagnose_samples(
            str(file),
            None if field is None else str(field),
            conventions=conventions,
            limit=limit,
            progress=lambda words: progress.update(task, advance=1, description=words),
        )
        progress.update(task, advance=1, description="drawing")
        _make_folder(out)  # a file that cannot be read leaves no folder behind
        options = [] if field is None else ["--field", str(field)]
        options += [] if conventions is None else ["--conventions", str(conventions)]
        options += [] if limit == LIMIT else ["--limit", str(limit)]
        path = write_diagnosis(found, out, shlex.join(["hpml", "diagnose", str(file), *options]))
    console.print(found.headline, highlight=False, soft_wrap=True)
    for title, sentences in (
        ("The circle", [loop.text for loop in found.loops[:3]]),
        ("What these samples cannot tell", found.limits),
        ("What to do next", found.advice),
    ):
        if sentences:
            console.print(f"\n{title}", style="bold", highlight=False)
            for sentence in sentences:
                console.print(f"- {sentence}", highlight=False, markup=False, soft_wrap=True)
    console.print("\nreport:", str(path.resolve()), soft_wrap=True)


def report(
    folders: tyro.conf.Positional[tuple[str, ...]],
    out: Path = Path("out/report"),
    steps: float = 0,
    own_steps: bool = False,
) -> None:
    """Turn run folders into the paper's tables and figures, with honest statistics beside them.

    Reads what `hpml train` and `hpml sweep` have written, finished or not, and changes nothing there. Prints the final
    returns and writes a page that opens in any browser, with the tables as CSV and LaTeX and the evaluations in the
    JSON format of marl-eval beside it.

    Args:
        folders: Folders with runs at any depth, such as a sweep's, or addresses that fsspec knows.
        out: The folder that the page and the tables are written to.
        steps: Compare after so many environment steps, such as 3e5, and leave out who has fewer; 0 for the most that
            all methods of a scenario have.
        own_steps: Compare every run at its own end, however long it is. That is not a fair comparison.
    """
    from hpml.report.sweep.page import write_report
    from hpml.report.sweep.plain import short_table
    from hpml.report.sweep.study import read_study

    console = Console()
    if not folders:
        raise ValueError("Give a folder with runs: hpml report out/sweep/quick.")
    if steps < 0 or (steps and own_steps):
        raise ValueError(f"--steps must be a number of steps and goes without --own-steps, got {steps:g}.")
    options = [] if not steps else ["--steps", f"{steps:g}"]
    command = shlex.join(["hpml", "report", *folders, *options, *(["--own-steps"] if own_steps else [])])
    with _progress(console) as progress:
        task = progress.add_task("reading", total=4)
        study = read_study(folders, round(steps), own_steps)
        _make_folder(out)  # folders that cannot be read leave none behind
        path, found = write_report(
            study, out, command, lambda words: progress.update(task, advance=1, description=words)
        )
    console.print(short_table(found))
    for sentence in found.cautions:
        console.print(f"- {sentence}", highlight=False, markup=False, soft_wrap=True)
    console.print("report:", str(path.resolve()), soft_wrap=True)


def list_() -> None:
    """List projectors, update rules, games, algorithms, environments, suites, metrics and domains, a line each."""
    console = Console()
    entries = {
        "projectors": {name: summary(thing) for name, thing in list_projectors().items()},
        "update rules": {name: summary(thing) for name, thing in list_rules().items()},
        "games": {family: ", ".join(games) for family, games in list_games().items()},
        "algorithms": {name: summary(thing) for name, thing in list_algorithms().items()},
        "environments": {family: ", ".join(names) for family, names in list_environments().items()}
        | {"in short": ", ".join(short_names())},
        "suites": {name: _grid(name) for name in suite_names()},
        "metrics": {thing.__name__: summary(thing) for thing in metric.Metric.__subclasses__()},
        "domains": {thing.__name__: summary(thing) for thing in domain.Domain.__subclasses__()},
    }
    for title, lines in entries.items():
        table = Table(title=title, title_justify="left", show_header=False, box=None)
        for name, line in lines.items():
            table.add_row(name, line)
        console.print(table, "")


def _grid(name: str) -> str:
    """How large a suite is."""
    suite = read_suite(name)
    counts = f"{len(suite.environments)} environments, {len(suite.methods)} methods, {suite.seeds} seeds"
    return f"{counts}, {suite.steps:,} steps of each"


COMMANDS: dict[str, Callable[..., None]] = {
    "mechanism": mechanism,
    "train": train,
    "sweep": sweep,
    "report": report,
    "diagnose": diagnose,
    "list": list_,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; a mistake of the user ends in one sentence and status 2."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if not given[0].startswith("-") and given[0] not in COMMANDS:
        _stop(f"hpml has no command {given[0]!r}: it has {', '.join(COMMANDS)}. Each explains itself with --help.")
    try:
        commands = COMMANDS | ({"train": _train_from(given[1:])} if given[0] == "train" else {})
        tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="hpml",
            args=given,
            description="Split the joint update of several learners into the part that climbs one hill and the part "
            "that goes in circles.",
        )
    except (ValueError, OSError) as error:
        _stop(str(error))
    except KeyboardInterrupt:
        _stop("stopped.")


def _train_from(arguments: Sequence[str]) -> Callable[..., None]:
    """`train` with the defaults that the arguments ask for: the environment's preset, or the run that goes on."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("env", "algo", "projection", "preset", "out"):
        first.add_argument(f"--{name}")
    first.add_argument("--resume", action="store_true")
    given = {name: value for name, value in vars(first.parse_known_args(arguments)[0]).items() if value is not None}
    resume = given.pop("resume")
    given["preset_name"] = given.pop("preset", "auto")
    out = Path(given.pop("out")) if "out" in given else None
    default = train_config(**given, out=out)
    if resume:
        default = dataclasses.replace(from_json(read_config(default.folder)), resume=True, out=default.folder)

    def command(config: Annotated[TrainConfig, tyro.conf.arg(name="")] = default) -> None:
        train(config)

    command.__doc__ = train.__doc__
    return command


def _make_folder(out: Path) -> None:
    """The folder, or one sentence where it cannot be made."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if out.is_file() else (error.strerror or str(error)).lower()
        raise ValueError(f"--out {out} cannot be made a folder ({reason}): choose another place.") from error


def _progress(console: Console) -> Progress:
    """A bar that is gone when the work is done, and no bar where nobody watches."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def _stop(sentence: str) -> NoReturn:
    print(sentence, file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
