import polars as pl

import analysis


def test_shared_strings_decode_from_exactly_one_token_of_every_model(small_run):
    run = analysis.load(small_run)
    shared = analysis.shared_vocabulary(run)
    assert shared.columns == ["token", "m-one", "m-two"]
    assert shared.rows() == [
        (" love", 0, 3),
        ("<script>alert(1)</script>", 5, 1),
        ("hate", 4, 0),
        ("love", 1, 4),
    ]
    rewards = analysis.shared_rewards(run, shared, "worst")
    assert rewards.columns == ["token", "m-one"]


def test_top_and_bottom_rank_from_the_extreme_inwards(small_run):
    table = analysis.top_bottom(analysis.load(small_run), "greatest", 2, ["m-two", "m-one"])
    assert table.columns == ["model", "end", "rank", "token_id", "token", "reward"]
    ends = [(end, rank) for end in ("top", "bottom") for rank in (1, 2)]
    assert table.select("end", "rank").rows() == 2 * ends
    for model, ids in (("m-two", [0, 3, 1, 2]), ("m-one", [0, 1, 5, 4])):
        assert table.filter(model=model)["token_id"].to_list() == ids


def test_shared_rewards_leave_out_what_a_model_has_not_scored(make_run):
    tokens = ["a", "b", "c", "d", "e"]
    some = {1: 10.0, 2: 20.0, 4: 40.0}  # ids that are no places
    scores = {("m1", "greatest"): [1.0, 2.0, 3.0, 4.0, 5.0], ("m2", "greatest"): some}
    folder = make_run({"v": tokens}, {"m1": "v", "m2": "v"}, scores)
    run = analysis.load(folder, allow_incomplete=True)
    rewards = analysis.shared_rewards(run, analysis.shared_vocabulary(run), "greatest")
    assert rewards.rows() == [("b", 2.0, 10.0), ("c", 3.0, 20.0), ("e", 5.0, 40.0)]


def test_moments_cover_the_shared_vocabulary_or_else_each_models_own(small_run):
    run = analysis.load(small_run)
    shared = analysis.shared_vocabulary(run)
    rewards = {"greatest": analysis.shared_rewards(run, shared, "greatest")}
    table = analysis.moments_table(analysis.samples(run, rewards))
    assert table.select("model", "n", "mean").row(0) == ("m-one", 4, -0.75)
    nothing = pl.DataFrame(schema={"token": pl.String, "m-one": pl.Float32})
    (sample,) = analysis.samples(run, {"greatest": nothing})
    assert len(sample[2]) == 7
