"""Numbers and counts in the words of the page."""

from collections.abc import Iterable, Sequence

import numpy as np

from hpml.report.sweep.study import Study

SMALL = 3e-6  # below this, zeros behind the point take more room than they are worth


def number(value: float, digits: int = 3) -> str:
    """A number to so many digits, with a minus sign that is one."""
    if not np.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = int(np.floor(np.log10(abs(value))))
    text = f"{value:,.{max(digits - 1 - size, 0)}f}" if -3 <= size < 7 else f"{value:.{digits - 1}e}"
    return text.replace("-", "−")


def with_error(mean: float, error: float, decimals: int | None = None) -> str:
    """mean ± error, both to the error's first digit unless told otherwise; it may break before the sign.

    An error that begins with 1 or 2 has two digits: its first alone would be wrong by half of it.
    """
    if not np.isfinite(mean):
        return "–"
    if decimals is None:
        lead = error if np.isfinite(error) and error > 0 else 0.15 * abs(mean)
        if 0 < lead < SMALL:
            return f"{number(mean, 2)} ±\u00a0{number(error, 2)}" if np.isfinite(error) else number(mean, 2)
        decimals = int(np.clip(-np.floor(np.log10(lead / 3)), 0, 6)) if lead > 0 else 1
    text = f"{mean:,.{decimals}f}"
    text = text.removeprefix("-") if float(text.replace(",", "")) == 0 else text
    return (f"{text} ±\u00a0{error:,.{decimals}f}" if np.isfinite(error) else text).replace("-", "−")


def interval(ends: Sequence[float], digits: int = 3) -> str:
    """low to high."""
    return f"{number(ends[0], digits)} to {number(ends[1], digits)}" if np.isfinite(ends).all() else "–"


def fixed(ends: Sequence[float], decimals: int) -> str:
    """low to high with so many decimals."""
    low, high = (f"{end:.{decimals}f}".replace("-", "−") for end in ends)
    return f"{low} to {high}" if np.isfinite(ends).all() else "–"


def counted(values: Iterable[float], unit: str) -> str:
    """ "5 seeds", or "3 to 5 seeds" where they differ."""
    numbers = sorted({int(value) for value in values})
    if not numbers:
        return f"no {unit}s"
    if len(numbers) == 1:
        return f"{numbers[0]:,} {unit}{'s' * (numbers[0] != 1)}"
    return f"{numbers[0]:,} to {numbers[-1]:,} {unit}s"


def listed(names: Sequence[str], most: int = 6) -> str:
    """Names with commas, the first few where there are many."""
    shown = list(names)[:most]
    more = len(names) - len(shown)
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)


def extent(study: Study) -> str:
    """Seeds and steps of the comparison in a few words."""
    seeds = counted((len(cell.seeds) for cell in study.cells.values()), "seed")
    steps = counted((cell.bound for cell in study.cells.values()), "environment step")
    return f"{seeds}, {steps}"
