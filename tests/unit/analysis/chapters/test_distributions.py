import polars as pl

import analysis


def test_moments_cover_the_shared_vocabulary(small_run):
    run = analysis.load(small_run)
    shared = analysis.shared_vocabulary(run)
    rewards = {"greatest": analysis.shared_rewards(run, shared, "greatest")}
    table = analysis.moments_table(analysis.samples(run, rewards))
    assert table.select("model", "n", "mean").row(0) == ("m-one", 4, -0.75)


def test_without_shared_tokens_each_models_whole_vocabulary_stands_in(small_run):
    run = analysis.load(small_run)
    nothing = pl.DataFrame(schema={"token": pl.String, "m-one": pl.Float32})
    (sample,) = analysis.samples(run, {"greatest": nothing})
    assert len(sample[2]) == 7
