"""The command line: `hpml mechanism` and `hpml list`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import tyro
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hpml.catalogue import list_projectors, summary
from hpml.geometry import domain, metric
from hpml.mechanism import PROJECTORS, MechanismConfig, run_mechanism
from hpml.report.mechanism import write_mechanism
from hpml.report.table import mechanism_table


def mechanism(
    config: Annotated[MechanismConfig, tyro.conf.arg(name="")] = MechanismConfig(),  # noqa: B008 (frozen)
    out: Path = Path("out/mechanism"),
) -> None:
    """Split a 2-D field whose answer is known and compare every projector with it.

    The field -z + rho J z pulls to the centre and turns around it. Prints a table of errors and writes a page with
    pictures that opens in any browser.

    Args:
        config: Which field, and from how many samples.
        out: The folder that the page and the pictures are written to.
    """
    console = Console()
    rows = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("projecting", total=len(PROJECTORS) + 1)
        names = iter(PROJECTORS)
        progress.update(task, description=next(names))
        for row in run_mechanism(config):
            rows.append(row)
            progress.update(task, advance=1, description=next(names, "drawing"))
        path = write_mechanism(config, rows, out)
    console.print(mechanism_table(rows))
    console.print("report:", str(path.resolve()), soft_wrap=True)


def list_() -> None:
    """List the projectors, metrics and domains that there are, a line each."""
    console = Console()
    projectors = {name: summary(thing) for name, thing in list_projectors().items()}
    metrics = {thing.__name__: summary(thing) for thing in metric.Metric.__subclasses__()}
    domains = {thing.__name__: summary(thing) for thing in domain.Domain.__subclasses__()}
    for title, entries in (("projectors", projectors), ("metrics", metrics), ("domains", domains)):
        table = Table(title=title, title_justify="left", show_header=False, box=None)
        for name, line in entries.items():
            table.add_row(name, line)
        console.print(table, "")


COMMANDS = {"mechanism": mechanism, "list": list_}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command; a mistake of the user ends in one sentence and status 2."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if not given[0].startswith("-") and given[0] not in COMMANDS:
        _stop(f"hpml has no command {given[0]!r}: it has {', '.join(COMMANDS)}. Each explains itself with --help.")
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="hpml",
            args=given,
            description="Split the joint update of several learners into the part that climbs one hill and the part "
            "that goes in circles.",
        )
    except (ValueError, OSError) as error:
        _stop(str(error))
    except KeyboardInterrupt:
        _stop("stopped.")


def _stop(sentence: str) -> NoReturn:
    print(sentence, file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    main()
