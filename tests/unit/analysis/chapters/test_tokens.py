import polars as pl
import pytest

import analysis


def test_shared_strings_decode_from_exactly_one_token_of_every_model(small_run):
    shared = analysis.shared_vocabulary(analysis.load(small_run))
    assert shared.columns == ["token", "m-one", "m-two"]
    assert shared.rows() == [
        (" love", 0, 3),
        ("<script>alert(1)</script>", 5, 1),
        ("hate", 4, 0),
        ("love", 1, 4),
    ]


def test_shared_rewards_leave_out_models_that_a_prompt_lacks(small_run):
    run = analysis.load(small_run)
    rewards = analysis.shared_rewards(run, analysis.shared_vocabulary(run), "worst")
    assert rewards.columns == ["token", "m-one"]


def test_top_and_bottom_rank_from_the_extreme_inwards(small_run):
    table = analysis.top_bottom(analysis.load(small_run), "greatest", 2, ["m-two", "m-one"])
    assert table.columns == ["model", "end", "rank", "token_id", "token", "reward"]
    assert table.select("model", "end", "rank", "token_id").rows() == [
        ("m-two", "top", 1, 0),
        ("m-two", "top", 2, 3),
        ("m-two", "bottom", 1, 1),
        ("m-two", "bottom", 2, 2),
        ("m-one", "top", 1, 0),
        ("m-one", "top", 2, 1),
        ("m-one", "bottom", 1, 5),
        ("m-one", "bottom", 2, 4),
    ]


@pytest.fixture
def spelled(make_run):
    vocabs = {"v1": [" love", "Hate", "joy", " joy", "odd"], "v2": ["love", "hate", "joy", "odd"]}
    scores = {("m1", "greatest"): [1.0] * 5, ("m2", "greatest"): [1.0] * 4}
    return make_run(vocabs, {"m1": "v1", "m2": "v2"}, scores)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, ["joy", "odd"]),
        ({"trim": True}, ["love", "odd"]),  # "joy" has two tokens then
        ({"fold_case": True}, ["hate", "joy", "odd"]),
        ({"trim": True, "fold_case": True}, ["hate", "love", "odd"]),
    ],
)
def test_spellings_can_be_made_one(spelled, rules, expected):
    shared = analysis.shared_vocabulary(analysis.load(spelled), **rules)
    assert shared["token"].to_list() == expected


def test_tokens_that_do_not_round_trip_can_be_left_out(spelled):
    path = spelled / "vocab" / "v2.parquet"
    changed = pl.when(pl.col("token") == "odd").then(pl.lit("split")).otherwise("round_trip")
    pl.read_parquet(path).with_columns(round_trip=changed).write_parquet(path)
    shared = analysis.shared_vocabulary(analysis.load(spelled), round_trip=True)
    assert shared["token"].to_list() == ["joy"]


def test_shared_rewards_leave_out_what_a_model_has_not_scored(make_run):
    tokens = ["a", "b", "c", "d", "e"]
    some = {1: 10.0, 2: 20.0, 4: 40.0}  # ids that are no places
    scores = {("m1", "greatest"): [1.0, 2.0, 3.0, 4.0, 5.0], ("m2", "greatest"): some}
    folder = make_run({"v": tokens}, {"m1": "v", "m2": "v"}, scores)
    run = analysis.load(folder, allow_incomplete=True)
    rewards = analysis.shared_rewards(run, analysis.shared_vocabulary(run), "greatest")
    assert rewards.rows() == [("b", 2.0, 10.0), ("c", 3.0, 20.0), ("e", 5.0, 40.0)]
