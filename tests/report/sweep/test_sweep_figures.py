"""Smoothing for the eye keeps what it should, and numbers become the words of the page."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpml.report.sweep.figures import smooth
from hpml.report.sweep.words import counted, listed, number, with_error


@given(st.integers(1, 300), st.floats(-3, 3), st.floats(-3, 3))
def test_smoothing_keeps_straight_lines_and_both_ends(count, start, slope):
    line = start + slope * np.arange(count)
    assert np.allclose(smooth(line), line, atol=1e-9)
    noise = np.random.default_rng(count).standard_normal(count)
    found = smooth(noise)
    assert found[[0, -1]] == pytest.approx(noise[[0, -1]], abs=1e-9)
    assert found.min() >= noise.min() - 1e-9
    assert found.max() <= noise.max() + 1e-9


def test_smoothing_calms_noise():
    noise = np.random.default_rng(0).standard_normal(200)
    assert smooth(noise).std() < 0.4 * noise.std()


@pytest.mark.parametrize(
    ("mean", "error", "text"),
    [
        (83.74, 7.52, "84 ± 8"),
        (12.345, 0.0321, "12.35 ± 0.03"),
        (-1.26, 0.5, "−1.3 ± 0.5"),
        (1234.5, 20.0, "1,234 ± 20"),
        (3.2, 1.24, "3.2 ± 1.2"),
        (0.512, 0.028, "0.512 ± 0.028"),
        (2e-7, 1e-8, "2.0e−07 ± 1.0e−08"),
        (0.0, 0.0, "0.0 ± 0.0"),
        (5.0, np.nan, "5.0"),
        (np.nan, np.nan, "–"),
    ],
)
def test_a_mean_is_written_to_the_digit_that_its_error_leaves(mean, error, text):
    assert with_error(mean, error).replace("\u00a0", " ") == text


def test_numbers_and_counts_in_words():
    assert [number(value) for value in (0.0, -0.01234, 411.326, 1e9, np.nan)] == [
        "0",
        "−0.0123",
        "411",
        "1.00e+09",
        "–",
    ]
    assert [counted(values, "seed") for values in ([], [1], [5, 5], [3, 5])] == [
        "no seeds",
        "1 seed",
        "5 seeds",
        "3 to 5 seeds",
    ]
    assert [listed(names) for names in ([], ["a"], ["a", "b"], list("abcdefgh"))] == [
        "",
        "a",
        "a and b",
        "a, b, c, d, e, f and 2 more",
    ]
