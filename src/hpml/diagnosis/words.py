"""What a diagnosis says in words: its answer, what the samples cannot tell, and what to do (`rem:failed_loops`)."""

from hpml.diagnosis.result import Diagnosis
from hpml.projection.identifiability import ENOUGH, NOTHING

LITTLE = 0.05  # a share of circulation that needs no treatment
TURNING = 0.1  # of the field's linear change: more than this is no hill, however small the change
WIDE = 0.2  # an interval that decides nothing
UNEVEN = 1.5  # an agent with so many times its even share of the residual is worth a word
# Samples for each direction that they spread in: below FEW a potential fitted to some predicts the others less well
# than it could, below TOO_FEW it predicts next to nothing.
FEW, TOO_FEW = 5, 2


def percent(share: float) -> str:
    """A share as a whole percentage, or what it is below or above."""
    if 0.0 < share < 0.005:
        return "less than 1 %"
    if 0.995 < share < 1.0:
        return "more than 99 %"
    return f"{100.0 * share:.0f} %"


def headline(found: Diagnosis) -> str:
    """The answer in one sentence."""
    share = found.nonpotentiality
    if not identified(found):
        return "These samples cannot show whether the field circulates."
    if not enough(found):
        return (
            f"The samples are too few to settle how much circulates: {percent(share.in_sample)} in the samples that "
            f"were fitted, {percent(share.estimate)} in those left out."
        )
    if not found.energy.potential + found.energy.circulation > 0:
        return "The field is zero at every sample: was the update recorded?"
    if close(found):
        return (
            f"{percent(share.estimate)} of the field's energy circulates, but the samples lie so close together that "
            "this says little."
        ).capitalize()
    if share.low < 0.01 and share.high > 0.99:
        return "Whether the field circulates is not settled: the interval for its share is 0 % to 100 %."
    if share.high < 0.005:
        return "Less than 1 % of the field's energy circulates: it climbs one potential."
    interval = f"{100 * found.level:.0f} % interval {percent(share.low)} to {percent(share.high)}"
    return f"{percent(share.estimate)} of the field's energy circulates ({interval}); the rest climbs one potential."


def identified(found: Diagnosis) -> bool:
    """Whether the samples close loops, which alone show circulation; whether they are many is for `enough` to say."""
    return found.nonpotentiality.loops >= NOTHING


def enough(found: Diagnosis, factor: float = TOO_FEW) -> bool:
    """Whether there are samples enough for the directions that they spread in."""
    return found.count >= factor * found.spread_dimension


def close(found: Diagnosis) -> bool:
    """Whether little circulates only because the field hardly changes between the samples: a constant is a gradient."""
    return found.nonpotentiality.high < LITTLE and found.disc.antisymmetric > TURNING


def settled(found: Diagnosis) -> bool:
    """Whether the share means what it says."""
    return identified(found) and enough(found)


def limits_of(found: Diagnosis, noise_known: bool) -> tuple[str, ...]:
    """What the samples cannot tell, a sentence each."""
    share, said = found.nonpotentiality, []
    if share.warning and (not identified(found) or enough(found)):
        said.append(share.warning)
    elif share.identifiable < ENOUGH and enough(found):
        said.append("The samples close few loops, so circulation shows in part only.")
    if not enough(found, FEW):
        said.append(
            f"There are {found.count:,} samples, spread in {found.spread_dimension:,.0f} of {found.dimension:,} "
            "directions: what a potential fitted to so few cannot predict counts as circulation, so the share errs "
            "upwards."
        )
    elif identified(found) and share.low > LITTLE:
        said.append(
            "What of the hill is too fine for the samples to show counts as circulation, and the interval does not "
            "know it: with more samples the share can fall."
        )
    if close(found):
        said.append(
            "The field hardly changes between the samples, and a constant field is a gradient; of what changes, "
            f"{percent(found.disc.antisymmetric)} is turning."
        )
    if not noise_known:
        said.append(
            "Every point has one estimate of the field, so noise is only guessed from the fit; noise that it misses "
            "counts as circulation."
        )
    if found.conventions.count < 3:
        said.append(f"With {found.conventions.count} convention(s) no loop can show: a loop needs three.")
    elif found.conventions.origin == "clusters" and not found.conventions.clustered:
        said.append(
            "The samples form one cloud: the conventions are regions of it, and need not be habits of the agents."
        )
    if found.loops and not found.loops[0].certain:
        said.append("The circulation around the largest loop is within two standard errors of zero.")
    elif (
        not found.loops and found.conventions.count >= 3 and identified(found) and enough(found) and share.low > LITTLE
    ):
        said.append("What circulates does so inside the conventions, so no loop between them shows it.")
    return tuple(said)


def advise(found: Diagnosis, noise_known: bool) -> tuple[str, ...]:
    """What to do next, a sentence each, the most useful first."""
    share = found.nonpotentiality
    if not identified(found):
        return (
            "Add samples off the path: points, field = hpml.probe(field_fn, params), then recorder.add(points, field).",
        )
    said = []
    if not enough(found):
        said.append(
            'Sample the plane that the run moves in: hpml.probe(field_fn, params, directions="path-plane"); there a '
            "few hundred samples settle it."
        )
    elif close(found):
        said.append("Probe farther out: hpml.probe(field_fn, params, radius=...), as far as the run moves.")
    elif share.high < LITTLE:
        said.append("Nothing to do: the update climbs one potential, and plain steps are safe.")
    elif share.low > LITTLE:
        said.append(
            'Treat the residual in the trainer: hpml.hodge_projection(residual="adjust"), or "extragradient", before '
            "the optimiser."
        )
        if found.loops and found.loops[0].certain:
            said.append(f"Look at the loop {found.loops[0].text}.")
        if len(found.blocks) > 1:
            most = max(found.blocks, key=lambda block: block.residual)
            if most.residual > UNEVEN / len(found.blocks):
                said.append(f"Start with {most.name}, which has {percent(most.residual)} of the residual.")
    else:
        said.append("Whether anything circulates is not settled: collect more samples, or less noisy ones.")
    if enough(found) and share.high - share.low > WIDE:
        said.append("The interval is wide: collect more samples.")
    elif enough(found) and (share.identifiable < ENOUGH or not enough(found, FEW)):
        said.append("Add samples off the path with hpml.probe.")
    if not noise_known and share.high >= LITTLE:
        said.append(
            "Record two independent estimates of each update, recorder.log(params, update, second), so that noise is "
            "told from circulation."
        )
    return tuple(said)
