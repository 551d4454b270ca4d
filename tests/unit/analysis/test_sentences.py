"""Numbers as the page prints them, and how many models an effect is counted in."""

import math

import numpy as np
import polars as pl
import pytest

from analysis.sentences import beside, bounds, cell, counted, decimals, significant, span, unclear
from tests.support.studies import cited


def test_numbers_have_a_true_minus_sign_and_bounds_are_rounded_outward():
    assert decimals(-0.125) == "−0.12"
    assert span(np.array([0.304, 0.304])) == "0.30"
    assert span(np.array([-0.711, -0.004, 0.995])) == "−0.71 to 0.99"
    assert bounds(-0.001, -0.001) == "−0.01 to 0.00"


@pytest.mark.parametrize(
    ("value", "limit", "printed"), [(0.8999, 0.9, "0.8999"), (-0.05001, 0.05, "−0.05001")]
)
def test_a_number_beyond_its_limit_is_not_rounded_to_it(value, limit, printed):
    assert beside(value, limit, 2) == printed


@pytest.mark.parametrize(
    ("value", "kind", "printed"),
    [
        (None, "number", "–"),
        (0.0004, "p", "< .001"),
        (0.4321, "share", "43.2 %"),
        (-6462.5, "count", "−6,462.5"),
        (-0.034871, "fixed", "−0.035"),
    ],
)
def test_a_cell_prints_its_number(value, kind, printed):
    assert cell(value, kind, "ci_low" if value is None else "") == printed


def _printed(text):
    return float(text.replace("−", "-").rstrip(" %"))


@pytest.mark.parametrize("seed", range(3))
def test_printed_ends_hold_the_interval(seed):
    low, high = np.sort(np.random.default_rng(seed).normal(0, 0.3, 2))
    printed = {"bounds": bounds(low, high), "percent": bounds(low, high, 0)}
    printed["span"] = span(np.array([high, low]))
    for kind in ("fixed", "number"):
        printed[kind] = f"{cell(low, kind, 'ci_low')} to {cell(high, kind, 'ci_high')}"
    for kind, text in printed.items():
        least, most = map(_printed, text.split(" to "))
        assert least <= low and high <= most, kind
    assert _printed(cell(low, "share", "x_low")) <= 100 * low
    assert _printed(cell(high, "share", "x_high")) >= 100 * high


def part(values, q):
    return pl.DataFrame({"model": [f"m{i}" for i in range(len(values))], "slope": values, "q": q})


@pytest.mark.parametrize(
    ("values", "q", "up", "down", "of"),
    [
        ([1.0, 1.0, -1.0], [0.01, 0.2, 0.04], "1", "1", "3"),
        ([1.0, 1.0, -1.0], [0.01, 0.04, 0.06], "2", "", "3"),
        ([-1.0, 1.0, 1.0], [0.01, 0.2, math.nan], "", "1", "3"),
        ([1.0, -1.0], [0.05, 0.5], "", "", ""),
    ],
)
def test_models_are_counted_by_the_direction_of_what_is_sure(values, q, up, down, of):
    text = counted(part(values, q), "slope", "up", "down", "down")
    counts = [up, of, down] if up else [down, of]
    assert cited(text or "") == [number for number in counts if number]
    assert bool(text and text.startswith("down")) == bool(down and not up)


@pytest.mark.parametrize(
    ("q", "numbers"), [([0.3, 0.05, math.nan], ["2", ".050"]), ([0.3, 0.04], []), ([math.nan], [])]
)
def test_that_nothing_is_sure_is_counted_over_what_was_tested(q, numbers):
    assert cited(unclear(part([1.0] * len(q), q), "slopes")) == numbers


def test_what_has_no_q_is_not_sure():
    assert significant(part([1.0] * 3, [math.nan, None, 0.01]))["model"].to_list() == ["m2"]
