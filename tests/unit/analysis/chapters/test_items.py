"""Lists of replies: both ends of each, where an item stands, and how that is drawn."""

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.blocks import pictures
from analysis.chapters import items
from analysis.charts.cells import over, shown_items
from tests.support import runs
from tests.support.studies import cited, texts

ORDER = ["m-two", "m-one"]


@pytest.fixture
def run(small_run):
    runs.add_items(small_run, "pets", "m-one", "greatest", {"cat": 4.0, "dog": 3.0, "<b>": 2.0})
    runs.add_items(small_run, "pets", "m-two", "greatest", {"cat": 1.0, "dog": 1.0, "<b>": 1.5})
    runs.add_items(small_run, "pets", "m-one", "worst", {"cat": 1.0, "dog": 0.0, "<b>": 2.0})
    return small_run


@pytest.fixture
def points(run):
    return analysis.items_points(analysis.load(run), "pets", ORDER)


def test_a_list_whose_models_share_no_items_has_no_table_and_says_why(make_run, study_of):
    path = make_run({"v": ["a"]}, {"m": "v", "n": "v"}, {})
    runs.add_items(path, "pets", "m", "greatest", {"cat": 1.0})
    runs.add_items(path, "pets", "n", "greatest", {"cat": None, "dog": 2.0})
    study = study_of(analysis.load(path, allow_incomplete=True), items)
    why = study.tables.reason("items_questions")
    assert cited(why) == ["pets"] and study.tables.reason("items_agreement")
    assert study.tables.files == {}
    assert texts(items, study) == [why]


def test_means_that_differ_by_their_rounding_tie(points):
    percentiles = [0.1, 0.3, 0.2, 0.2, 0.3, 0.1]
    places = pl.DataFrame({"item_id": [0, 1] * 3, "item": "x", "mean_percentile": percentiles})
    by_place, by_id = places.sort("mean_percentile"), places.sort("item_id", descending=True)
    for table in (places, by_place, by_id):
        assert over(table)["item_id"].to_list() == [0, 1]


def test_items_that_a_model_has_not_scored_and_what_a_search_found_are_left_out(run, study_of):
    tables = study_of(run, items).tables
    assert list(tables.of("items_points")) == [("pets",)]
    assert tables["items_questions"]["list"].unique().to_list() == ["pets"]
    assert "items_questions" in tables.files
    runs.add_items(run, "half", "m-one", "greatest", {"a": 1.0, "b": 2.0, "c": 3.0})
    runs.add_items(run, "half", "m-two", "greatest", {"a": 1.0, "b": 2.0})
    loaded = analysis.load(run)
    table = analysis.items_points(loaded, "half", ORDER)
    assert table.filter(model="m-one")["item"].to_list() == ["a", "b"]
    alone = analysis.items_points(loaded, "half", ["m-one"])
    assert alone["item"].to_list() == ["a", "b", "c"]


def figures_of(study):
    """Stems of the figures of the section."""
    return [picture.stem for picture in pictures(items.ANALYSIS.section(study).blocks)]


@pytest.mark.parametrize(("prompts", "together"), [(1, False), (2, True)])
def test_a_list_under_many_prompts_is_drawn_by_question(run, study_of, prompts, together):
    for number in range(prompts):
        runs.add_items(run, "pets", "m-one", f"p{number}", {"cat": 1.0, "dog": 0.0, "<b>": 2.0})
    drawn = figures_of(study_of(run, items))
    assert {"items_framing_pets", "items_kendall_pets_positive_prompts"} <= {*drawn}
    assert ("items_prompts_pets" in drawn) == together
    assert ("items_standing_pets_greatest" in drawn) == (not together)
    assert ("items_standing_pets_positive_prompts" in drawn) == together


def test_a_long_list_shows_its_ends_and_what_is_disputed_most():
    mean = np.linspace(0.95, 0.05, 10)
    width = np.array([0, 9, 1, 8, 8, 1, 8, 2, 9, 0]) / 100
    standing = pl.DataFrame({"item": range(10), "lowest": mean - width, "highest": mean + width})
    groups = shown_items(standing, 2)
    assert [group["item"].to_list() for group in groups] == [[0, 1], [3, 4], [8, 9]]
    assert [group.height for group in shown_items(standing, 4)] == [10]
