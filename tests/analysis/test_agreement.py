import math

import numpy as np
import polars as pl
import pytest
import scipy.stats

from analysis import agreement, overlap


@pytest.fixture
def rewards():
    rng = np.random.default_rng(0)
    base = rng.normal(size=200).round(1)
    columns = {f"m{i}": (base + i * rng.normal(size=200).round(1)) for i in range(4)}
    tokens = pl.Series("token", [f"t{i:03d}" for i in range(200)])
    return pl.DataFrame([tokens]).with_columns(
        **{model: pl.Series(x.astype(np.float32)) for model, x in columns.items()}
    )


@pytest.mark.parametrize(
    ("matrix", "reference"),
    [
        (agreement.kendall_matrix, scipy.stats.kendalltau),
        (agreement.spearman_matrix, scipy.stats.spearmanr),
    ],
)
def test_every_entry_is_scipys_statistic_of_its_two_models(rewards, matrix, reference):
    table = matrix(rewards)
    models = rewards.columns[1:]
    assert table["model"].to_list() == models
    for a in models:
        for b in models:
            entry = table.filter(model=a)[b].item()
            assert entry == pytest.approx(reference(rewards[a], rewards[b]).statistic)


def test_a_model_without_an_order_agrees_with_none_not_even_itself():
    table = pl.DataFrame({"token": ["a", "b"], "m1": [1.0, 2.0], "m2": [3.0, 3.0]})
    matrix = agreement.kendall_matrix(table).select("m1", "m2").to_numpy()
    assert matrix[0, 0] == 1.0
    assert np.isnan(matrix[[0, 1, 1], [1, 0, 1]]).all()


def test_consensus_averages_percentiles_and_measures_their_spread():
    table = pl.DataFrame({"token": list("abc"), "m1": [1.0, 2.0, 3.0], "m2": [30.0, 20.0, 40.0]})
    found = agreement.consensus(table)
    assert found["token"].to_list() == ["c", "a", "b"]
    assert found["percentile"].to_list() == pytest.approx([5 / 6, 1 / 3, 1 / 3])
    assert found["spread"].to_list() == pytest.approx([0.0, 1 / 6, 1 / 6])


def test_pairs_list_each_two_models_once_highest_first():
    matrix = pl.DataFrame(
        {
            "model": ["a", "b", "c"],
            "a": [1.0, 0.2, 0.7],
            "b": [0.2, 1.0, math.nan],
            "c": [0.7, math.nan, 1.0],
        }
    )
    assert agreement.pairs(matrix).rows() == [("a", "c", 0.7), ("a", "b", 0.2)]


def test_overlaps_of_all_pairs_are_the_estimator_of_each(rewards):
    models = rewards.columns[1:]
    for truncated, measure in (
        (False, overlap.rank_biased_overlap),
        (True, overlap.truncated_overlap),
    ):
        table = agreement.rbo_matrix(rewards, 0.8, truncated)
        for a in models:
            for b in models:
                x, y = (rewards[model].to_numpy() for model in (a, b))
                assert table.filter(model=a)[b].item() == pytest.approx(measure(x, y, 0.8))


def test_a_map_leaves_out_models_without_an_order(rewards):
    flat = rewards.with_columns(m0=pl.lit(1.0, dtype=pl.Float32))
    table = agreement.mds_table(agreement.kendall_matrix(flat), np.random.default_rng(0))
    assert table.columns == ["model", "x", "y", "stress"]
    assert table["model"].to_list() == ["m1", "m2", "m3"]
    assert table["stress"].n_unique() == 1


def test_what_is_not_known_of_all_models_predicts_nothing():
    models = pl.DataFrame(
        {
            "model": ["a", "b", "c"],
            "base": ["Llama 3", "Llama 3.2", "Gemma 2"],
            "developer": ["x", None, "y"],
            "size_b": [8.0, 3.0, 2.0],
            "rewardbench_rank": [1, 1, 1],
        }
    )
    found = agreement.predictors(models, {"a": "l", "b": "l", "c": "k"})
    assert list(found) == ["base", "size", "lineage"]
    assert found["base"][0].tolist() == [1.0, 1.0, 0.0]
    assert found["size"][0].tolist() == pytest.approx([1.0, 1 / 6, 1 / 7])
