"""The paper's tables as data: the averages that it prints are those of its own cells."""

import numpy as np
import pytest

from hpml.report.sweep import paper
from hpml.statistics.aggregate import macro_average


@pytest.mark.parametrize("method", paper.METHODS)
def test_the_printed_averages_are_those_of_the_printed_cells(method):
    means = [paper.NORMALISED[method][scenario.name] for scenario in paper.SCENARIOS]
    errors = [paper.ERRORS[method][scenario.name] for scenario in paper.SCENARIOS]
    mean, error = macro_average(means, errors)
    # Cells have one decimal, so their average is known to half a unit of it.
    assert mean == pytest.approx(paper.MACRO[method], abs=0.1001)
    assert error == pytest.approx(paper.MACRO_ERRORS[method], abs=0.1001)
    shown = np.mean([paper.NORMALISED[method][name] for name in paper.SUMMARY])
    assert shown == pytest.approx(paper.SHOWN[method], abs=0.1001)


def test_scenarios_stand_in_the_papers_order_under_its_names():
    names = [scenario.name for scenario in paper.SCENARIOS]
    assert sorted([*reversed(names), "matrix/a"], key=paper.paper_order) == [*names, "matrix/a"]
    assert [paper.column_of(name) for name in ("clean_up", "matrix/stag_hunt")] == ["Clean Up", "stag_hunt"]
    scissors = "meltingpot/running_with_scissors_in_the_matrix__repeated"
    assert paper.column_of(scissors) == "RWS-R"
    assert "RWS-R = running with scissors in the matrix: repeated" in paper.abbreviations([scissors, "matrix/climbing"])
    assert paper.title_of("meltingpot/running_with_scissors_in_the_matrix__repeated").startswith("running with")
