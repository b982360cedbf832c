"""Result tables for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from hpml.mechanism import MechanismRow

COLUMNS = ("projector", "error", "at samples", "cosine", "NonPot", "exact", "seconds")


def mechanism_cells(row: MechanismRow) -> list[str]:
    """The cells of one projector."""
    numbers = (row.error, row.sample_error, row.cosine, row.nonpotentiality, row.exact_nonpotentiality)
    return [row.name, *(f"{number:.3f}" for number in numbers), f"{row.seconds:.1f}"]


def mechanism_table(rows: Sequence[MechanismRow]) -> Table:
    """One line a projector: error against -z at new points, and the share of circulation beside the exact one."""
    table = Table(title="F(z) = -z + rho J z: how close each projector comes to -z")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column == COLUMNS[0] else "right")
    for row in rows:
        table.add_row(*mechanism_cells(row))
    return table
