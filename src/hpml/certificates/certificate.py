"""What a certificate says: value, bound, verdict, the constants behind it, and the assumptions it rests on."""

import equinox as eqx
import numpy as np
from jaxtyping import Float


class Constant(eqx.Module):
    """A number of the theory: `source` is "computed", "given" or "estimated", `how` says from what."""

    value: float
    source: str
    how: str


class Certificate(eqx.Module):
    """One bound of the paper on one run, at its tightest case.

    - `holds` compares `value` with `bound`, within `tolerance`, which covers the rounding of float64.
    - `violated` names assumptions that are seen not to hold: then the bound says nothing, whatever `holds` says.
    - `unchecked` names assumptions that no finite computation here can settle.
    - `vacuous`: every point of the domain satisfies the bound, so that it tells nothing about this run.
    - `case` says which step and start were the tightest.
    """

    label: str
    claim: str
    value: float
    bound: float
    relation: str  # "<=" or ">=", from value to bound
    tolerance: float
    constants: dict[str, Constant]
    violated: tuple[str, ...]
    unchecked: tuple[str, ...]
    case: str
    vacuous: bool = False

    @property
    def slack(self) -> float:
        """How far the value stays on the right side of the bound; negative where it does not."""
        return self.bound - self.value if self.relation == "<=" else self.value - self.bound

    @property
    def holds(self) -> bool:
        """Whether the inequality is true on this run, assumptions or not."""
        return bool(self.slack >= -self.tolerance)

    @property
    def verdict(self) -> str:
        """ "holds", "fails" or "assumption violated"."""
        if self.violated:
            return "assumption violated"
        return "holds" if self.holds else "fails"

    def sentence(self) -> str:
        """The verdict in plain words."""
        side = f"{'at most' if self.relation == '<=' else 'at least'} {self.bound:.3g}"
        compared = {"holds": f", {side} as it should be", "fails": f" but should be {side}", "assumption violated": ""}
        found = f"{self.claim} is {self.value:.3g}{compared[self.verdict]} ({self.case})."
        parts = [f"{self.label}: {self.verdict}.", found]
        if self.violated:
            parts.append(f"The bound ({side}) does not apply: {'; '.join(self.violated)}.")
        elif self.vacuous:
            parts.append("Every point of the domain satisfies this bound, so it tells nothing about this run.")
        departure = self.constants.get("departure")
        if self.verdict == "fails" and departure is not None:
            parts.append(f"The run departs from exact ascent of this potential by up to {departure.value:.3g} a step.")
        guessed = [name for name, constant in self.constants.items() if constant.source == "estimated"]
        if guessed:
            parts.append(f"Estimated: {', '.join(guessed)}.")
        if self.unchecked:
            parts.append(f"Not checked: {'; '.join(self.unchecked)}.")
        return " ".join(parts)


def tightest(small: Float[np.ndarray, "t s"], large: Float[np.ndarray, "t s"], tolerance: float) -> tuple[int, int]:
    """Where small <= large is broken the most, or, where it is kept, where the two are relatively closest.

    Cases at the size of the rounding are passed over where there are others.
    """
    excess = small - large
    if excess.max() > tolerance:
        t, k = np.unravel_index(np.argmax(excess), excess.shape)
    else:
        ratio = np.where(large > 1e3 * tolerance, small / np.maximum(large, 1e-300), -np.inf)
        t, k = np.unravel_index(np.argmax(ratio), ratio.shape)
    return int(t), int(k)
