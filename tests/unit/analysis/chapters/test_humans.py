"""Item lists and what people think of them."""

import polars as pl
import pytest

import analysis
from analysis import RunError
from engine.runs import schema
from tests.support import runs


@pytest.fixture
def run(small_run):
    runs.add_items(small_run, "elo", "m-one", "greatest", {"a": 4.0, "b": 3.0, "c": 2.0, "d": 1.0})
    runs.add_items(small_run, "elo", "m-two", "greatest", {"a": 1.0, "b": 1.0, "c": 1.5, "d": 0.0})
    runs.add_humans(small_run, "elo", {"a": 1700.0, "b": 1650.0, "c": 1650.0, "d": 1500.0})
    return small_run


def sides(run):
    return analysis.side_by_side(analysis.load(run), "elo", "greatest", ["m-two", "m-one"])


def test_items_stand_side_by_side_with_ranks_from_the_best_where_ties_share(run):
    table = sides(run)
    assert table.columns == ["item_id", "item", "matches", "human", "m-two", "m-one"]
    assert table["m-one"].to_list() == [4.0, 3.0, 2.0, 1.0]
    table = analysis.humans_ranks(sides(run))
    assert table.columns == ["item_id", "item", "matches", "human_rank", "m-two", "m-one"]
    assert table["human_rank"].to_list() == [1.0, 2.5, 2.5, 4.0]
    assert table["m-two"].to_list() == [2.5, 2.5, 1.0, 4.0]


def test_gaps_are_of_the_models_median_alone_unless_the_quirk_is_asked_for(run):
    ranked = analysis.humans_ranks(sides(run))
    plain = analysis.humans_gap(ranked, "elo", "greatest")
    contract = ["list", "prompt", "item", "human_rank", "model_rank", "gap"]
    added = ["residual", "gap_place", "residual_place", "matches", "nearest", "p_adjusted"]
    assert plain.columns == contract + added
    assert plain["item"].to_list() == ["a", "d", "b", "c"]
    assert plain["model_rank"].to_list() == [1.75, 4.0, 2.25, 2.0]
    assert plain["gap"].to_list() == [0.75, 0.0, -0.25, -0.5]
    quirk = analysis.humans_gap(ranked, "elo", "greatest", humans_in_median=True)
    assert dict(quirk.select("item", "gap").iter_rows()) == {"a": 0, "b": 0, "c": 0, "d": 0}


def test_an_item_twice_in_the_human_scores_is_refused(run):
    path = schema.humans_path("elo")
    frame = pl.read_parquet(run / path)
    runs.add_table(run, path, pl.concat([frame, frame.head(1)]))
    with pytest.raises(RunError, match="item ids 0"):
        sides(run)
    runs.edit_run(run, lambda content: content["tables"].pop(path))
    assert sides(run) is None
    with pytest.raises(RunError, match="'other'"):
        analysis.load(run).item_scores("other", "greatest")


def test_a_model_without_a_vocabulary_joins_one_that_has_it(run, make_run):
    def only_items(content):
        content["models"]["m-one"]["vocab"] = None
        content["results"] = {
            path: entry for path, entry in content["results"].items() if path.startswith("items/")
        }

    runs.edit_run(run, only_items)
    scores = {("m-one", "worst"): [1.0, 2.0]}
    other = make_run({"v9": ["x", "y"]}, {"m-one": "v9"}, scores, name="other")
    for folders in ([run, other], [other, run]):
        loaded = analysis.load(folders)
        assert loaded.vocabulary_models == ["m-one"]
        assert loaded.vocabulary("m-one").collect().height == 2
        assert loaded.lists() == [("elo", "greatest")]
