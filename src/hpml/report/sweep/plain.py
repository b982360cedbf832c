"""The study as plain tables, for the files that other programs read, and as a short table for the terminal."""

from collections import Counter

import numpy as np
from rich.markup import escape
from rich.table import Table

from hpml.report.sweep.analysis import Analysis
from hpml.report.sweep.paper import column_of
from hpml.report.sweep.results import Results, Track
from hpml.report.sweep.words import extent, with_error

FITS = 3  # scenarios whose raw returns fit a terminal


def plain_results(analysis: Analysis) -> Results:
    """What the exports start from."""
    study = analysis.study
    seeds = {}
    for method in study.methods:
        table = np.full(analysis.raw[method.name].shape, np.nan)
        for place, environment in enumerate(study.environments):
            if cell := study.cells.get((environment, method.name)):
                table[: len(cell.seeds), place] = cell.seeds
        seeds[method.name] = table
    return Results(
        scenarios=study.environments,
        final=analysis.raw,
        seeds=seeds,
        residual=study.table("residual_energy"),
        steps={name: int(steps) for name, steps in study.bounds.items()},
        columns={name: column_of(name) for name in study.environments},
        tracks={key: Track(steps, values) for key, (steps, values) in study.tracks.items()},
    )


def short_table(analysis: Analysis) -> Table:
    """A line a method for the terminal: raw returns where they fit, averages, and verdicts counted."""
    study = analysis.study
    few = study.environments if len(study.environments) <= FITS else ()
    table = Table(title=f"Final return, {extent(study)}", title_justify="left")
    block = analysis.blocks[0] if analysis.blocks else None
    heads = [*(column_of(name) for name in few), *(["normalised"] * bool(block)), "against its baseline"]
    for head in ("", *heads):
        table.add_column(escape(head), justify="left" if head in ("", "against its baseline") else "right")
    for method in study.methods:
        means, errors = analysis.mean(analysis.raw, method.name)
        cells = [with_error(mean, error) for mean, error, _ in zip(means, errors, few, strict=False)]
        if block is not None:
            found = block.estimates[method.name]["mean"] if method.name in block.methods else None
            cells.append(with_error(found.value, found.error, 1) if found else "–")
        table.add_row(escape(method.name), *cells, _counts(analysis, method.name))
    return table


def _counts(analysis: Analysis, method: str) -> str:
    words = Counter(verdict.word for (name, _), verdict in analysis.verdicts.items() if name == method)
    order = ("better", "likely better", "worse", "likely worse", "none")
    told = [f"{words[word]} {'not settled' if word == 'none' else word}" for word in order if words[word]]
    return ", ".join(told) or "–"
