"""The page of `hpml mechanism`, put together and written with its pictures and numbers."""

import json
from dataclasses import asdict
from pathlib import Path

from hpml.mechanism.config import OURS, PAPER
from hpml.mechanism.portraits import PortraitRuns
from hpml.mechanism.suite import Mechanism
from hpml.report.drawings import draw_split, encode
from hpml.report.figures.curves import Curve
from hpml.report.mechanism.cycles import cycle_section, loops_section, optimum_section
from hpml.report.mechanism.fields import COLOURS, accuracy_section, logistic_section, sweeps_section, swirl_section
from hpml.report.mechanism.rules import bridge_section, comparison_section, harm_section
from hpml.report.mechanism.summary import summary_numbers
from hpml.report.mechanism.theory import certified_section, held, truth_section
from hpml.report.page import Fact, Page, Section, write_page
from hpml.report.parts import CodePart, TablePart
from hpml.report.static import FourPanels, PlanePanel, write_panels

PATHS = 3  # runs drawn in a panel


def write_mechanism(found: Mechanism, folder: Path) -> Path:
    """Write the page and return its path; beside it the numbers as JSON, and the split and the four panels, with our
    projector and with the paper's, as PNG and PDF."""
    folder.mkdir(parents=True, exist_ok=True)
    write_panels(_panels(found, OURS), folder)
    write_panels(_panels(found, PAPER), folder, "panels_paper")
    split = draw_split(next(split for split in found.swirl.splits if split.name == OURS))
    for kind in ("png", "pdf"):
        (folder / f"split.{kind}").write_bytes(encode(split, kind))
    numbers = {"config": asdict(found.config), "seconds": found.seconds, "results": summary_numbers(found)}
    (folder / "result.json").write_text(json.dumps(numbers, indent=2) + "\n")
    return write_page(mechanism_page(found), folder / "report.html")


def mechanism_page(found: Mechanism) -> Page:
    """The whole page."""
    cycle = {trace.name: trace for trace in found.cycle.traces}
    kept, counted = held(found.certified)
    share = 100 * cycle[f"dropped, {OURS}"].diameter / cycle["raw"].diameter
    facts = [
        Fact(f"{share:.1f} %", "of the raw orbit is left in rock-paper-scissors when the residual is dropped"),
        Fact(f"{cycle['treated, adjust'].exploitable:.4f}", "exploitability when it is adjusted instead"),
        Fact(f"{found.accuracy.cosines[OURS][-1].mean():.3f}", "cosine to the exact direction in 3-D"),
        Fact(f"{kept} of {counted}", "bounds hold on the runs that should keep them"),
    ]
    lead = (
        "Learners that update at once follow one joint field. Part of it climbs a hill that they share, the rest "
        "goes in circles. These small games have a known answer: here is what circulates, which strategies form the "
        "circle, what the projection does about it, and what is certified."
    )
    sections = [
        cycle_section(found.cycle),
        loops_section(found.loops),
        optimum_section(found.optimum),
        swirl_section(found.swirl, found.config.rho),
        logistic_section(found.logistic),
        accuracy_section(found.accuracy),
        sweeps_section(found.sweeps),
        comparison_section(found.comparison),
        harm_section(found.harm),
        bridge_section(found.bridge),
        truth_section(found.truth),
        certified_section(found.certified),
        _again(found),
    ]
    return Page("What goes in circles, and what to do about it", lead, sections, facts)


def _again(found: Mechanism) -> Section:
    config = found.config
    command = f"hpml mechanism --rho {config.rho:g} --seed {config.seed}{' --quick' if config.quick else ''}"
    rows = [[name, f"{seconds:.1f}"] for name, seconds in found.seconds.items()]
    note = f"Seconds with compilation. Samples of the field: {config.samples}; starts: {config.starts}."
    return Section("Again", parts=[CodePart(command), TablePart(["experiment", "seconds"], rows, note)])


def _panels(found: Mechanism, projector: str) -> FourPanels:
    mixes = dict(zip([trace.name for trace in found.cycle.traces], found.cycle.mixes, strict=True))
    projected = mixes[f"dropped, {projector}"]
    cosine = [
        Curve(name, found.accuracy.counts, values.mean(1), values.min(1), values.max(1), COLOURS[name], "both")
        for name, values in found.accuracy.cosines.items()
    ]
    return FourPanels(
        [mixes["raw"][:, k] for k in range(PATHS)],
        [projected[:, k] for k in range(PATHS)],
        _plane(found.swirl, projector, "$z_1$", "$z_2$"),
        _plane(found.logistic, projector, "$p$", "$q$"),
        cosine,
        found.cycle.labels,
    )


def _plane(runs: PortraitRuns, projector: str, x_label: str, y_label: str) -> PlanePanel:
    split = next(split for split in runs.splits if split.name == projector)
    paths = dict(zip([trace.name for trace in runs.traces], runs.paths, strict=True))
    return PlanePanel(
        split.points,
        split.field,
        split.direction,
        [paths["raw"][:, k] for k in range(PATHS)],
        [paths[f"dropped, {projector}"][:, k] for k in range(PATHS)],
        x_label,
        y_label,
    )
