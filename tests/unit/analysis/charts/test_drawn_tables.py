"""Every figure of an analysis draws its finished table, awkward tokens and gaps included."""

import functools
import json
import math
import re

import polars as pl
import pytest

from analysis import CHAPTERS, blocks
from analysis.chapters import agreement, frequency
from analysis.charts import look
from analysis.charts.estimates import estimates
from analysis.charts.heat_map import heat_map
from analysis.charts.token_bars import token_bars
from tests.support import charts, slow


@pytest.fixture
def tables(full):
    return full.tables


@pytest.fixture
def names(full):
    return full.names


def draw(figure):
    """Renders as the report does."""
    assert "<svg" in charts.svg(figure)


def name_of(chapter):
    return getattr(chapter, "id", None) or chapter.__name__.split(".")[-1]


LONG = ("agreement", "groups", "humans", "sentiment")  # seconds each
SHORT = [chapter for chapter in CHAPTERS if name_of(chapter) not in LONG]


def test_frequency_has_one_unit_in_the_chart_and_in_the_headline(full):
    """A word ten times as common."""
    section = frequency.ANALYSIS.section(full)
    (picture,) = blocks.pictures(section.blocks)
    drawn = look.specification(picture.draw())["data"]["values"]
    slopes = full.tables["frequency_slopes"]["slope"].drop_nans().to_list()
    expected = sorted(math.log(10) * slope for slope in slopes)
    assert sorted(row["value"] for row in drawn) == pytest.approx(expected, rel=1e-3)
    told = sorted(float(row["value_text"].replace("−", "-")) for row in drawn)
    assert told == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("chapter", slow.all_but(SHORT, CHAPTERS), ids=name_of)
def test_the_figures_of_a_chapter_draw_their_tables(chapter, full):
    found = blocks.pictures(chapter.section(full).blocks)
    partials = [picture.draw for picture in found if isinstance(picture.draw, functools.partial)]
    one_of_each = {partial.func: partial for partial in partials}
    for partial in one_of_each.values():
        draw(partial())


AWKWARD = [
    *("$x$", "\\", "\x00", "\n", " love", "مرحبا", "中国", "😀", "👩\u200d🔬", "\ufffd", "\ue000"),
    *("\u202eevil", "<script>alert(1)</script>", "", "─" * 80, "क्ष"),
]


def ends_of(texts, step=0.25):
    rows = [
        {"model": "m", "end": end, "rank": i + 1, "token": text, "reward": sign * (9.0 - step * i)}
        for end, sign in (("top", 1), ("bottom", -1))
        for i, text in enumerate(texts)
    ]
    return pl.DataFrame(rows)


def bars_of(chart):
    """Token, and signed length of each bar."""
    return [(row["token"], row["value"] - row["start"]) for row in charts.rows(chart)]


def test_any_token_can_be_drawn_as_a_bar_from_the_median_or_midway_between_the_ends():
    medians = pl.DataFrame({"model": ["m"], "median": [1.0]})
    chart = token_bars(ends_of(AWKWARD), {"m": "M"}, 40, "reward", "reward", medians)
    draw(chart)
    assert "<script" not in charts.svg(chart)
    shown = bars_of(chart)
    assert len(shown) == 2 * len(AWKWARD)
    assert shown[0] == ("$x$", 8.0)
    assert "␣love" in [token for token, _ in shown]
    chart = token_bars(ends_of(list("abcdef")), {}, 2, "reward", "sum")
    assert bars_of(chart) == [("a", 9.0), ("b", 8.75), ("a", -9.0), ("b", -8.75)]


def test_panels_that_a_chart_says_are_left_out_are_not_in_it():
    kinds = [f"kind {i:02}" for i in range(look.PANELS + 4)]
    frame = pl.DataFrame({"kind": kinds, "training": "t", "value": 0.5})
    look_of = {"value": "value", "row": "training", "panel": "kind", "colour": "training"}
    chart = estimates(frame, {}, "percentile", kinds=["t"], **look_of)
    assert [row["kind"] for row in charts.rows(chart)] == kinds[: look.PANELS]


def test_a_specification_ends_no_script_and_holds_no_number_that_json_lacks():
    frame = pl.DataFrame({"token": ["</script>", "\u2028"], "value": [math.nan, 1 / 3]})
    text = look.text_of({"data": look.data(frame).to_dict()})
    assert "<" not in text
    assert json.loads(text)["data"]["values"] == [
        {"token": "</script>", "value": None},
        {"token": "\u2028", "value": 0.33333},
    ]


def test_the_papers_models_keep_the_papers_colours_whatever_the_order():
    colours = look.colours(["urm-llama-3.1-8b", "new", "qrm-gemma-2-27b"])
    assert colours["qrm-gemma-2-27b"] == "#1f77b4"
    assert colours["urm-llama-3.1-8b"] == "#8c564b"
    assert colours["new"] not in ("#1f77b4", "#8c564b")
    assert look.colours(["b", "a", "c"]) == look.colours(["c", "a", "b"])


def test_the_heat_map_writes_every_number_and_a_dash_where_none_is_defined():
    rewards = pl.DataFrame({"token": list("abc"), "m1": [1.0, 2.0, 3.0], "m2": [1.0, 3.0, 2.0]})
    frame = rewards.with_columns(m3=pl.lit(1.0))
    chart = heat_map(agreement.kendall_matrix(frame), {"m1": "One", "m2": "Two"}, "τ")
    assert "step" in chart.to_dict(validate=False)["width"]  # a phone does not make it narrower
    written = re.findall(r">(−?\d\.\d\d|–)</text>", charts.svg(chart))
    assert written == ["1.00", "0.33", "–", "0.33", "1.00", "–", "–", "–", "–"]
