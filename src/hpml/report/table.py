"""Result tables for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from hpml.mechanism import MechanismRow


def mechanism_table(rows: Sequence[MechanismRow]) -> Table:
    """One line a projector: error against -z at new points, and the share of circulation beside the exact one."""
    table = Table(title="F(z) = -z + rho J z: how close each projector comes to -z")
    table.add_column("projector")
    for column in ("error", "cosine", "NonPot", "exact", "seconds"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.name,
            f"{row.error:.3f}",
            f"{row.cosine:.3f}",
            f"{row.nonpotentiality:.3f}",
            f"{row.exact_nonpotentiality:.3f}",
            f"{row.seconds:.1f}",
        )
    return table
