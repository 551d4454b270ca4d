import itertools

import numpy as np
import polars as pl
import pytest
import scipy.stats

from analysis.chapters import agreement, blocs, explained
from analysis.statistics.ranks import rank_biased_overlap, ranking


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
    for a, b in itertools.product(models, models):
        entry = table.filter(model=a)[b].item()
        assert entry == pytest.approx(reference(rewards[a], rewards[b]).statistic)


def test_consensus_averages_percentiles_and_measures_their_spread():
    table = pl.DataFrame({"token": list("abc"), "m1": [1.0, 2.0, 3.0], "m2": [30.0, 20.0, 40.0]})
    found = blocs.consensus(table.with_columns((pl.col("m1", "m2").rank() - 0.5) / 3))
    assert found["token"].to_list() == ["c", "a", "b"]
    assert found["percentile"].to_list() == pytest.approx([5 / 6, 1 / 3, 1 / 3])
    assert found["spread"].to_list() == pytest.approx([0.0, 1 / 18**0.5, 1 / 18**0.5])
    assert found["lowest"].to_list() == pytest.approx([5 / 6, 1 / 6, 1 / 6])
    assert found["highest"].to_list() == pytest.approx([5 / 6, 1 / 2, 1 / 2])


def test_overlaps_of_all_pairs_are_the_estimator_of_each(rewards):
    rankings = [ranking(rewards[model].to_numpy()) for model in rewards.columns[1:]]
    matrix = agreement.overlaps(rankings, 0.8)
    for (i, x), (j, y) in itertools.product(enumerate(rankings), repeat=2):
        assert matrix[i, j] == pytest.approx(rank_biased_overlap(x.positions, y.positions, 0.8))


def test_a_map_leaves_out_models_without_an_order(rewards):
    flat = rewards.with_columns(m0=pl.lit(1.0, dtype=pl.Float32))
    table = explained.mds_table(agreement.kendall_matrix(flat), np.random.default_rng(0))
    assert table.columns == ["model", "x", "y", "stress"]
    assert table["model"].to_list() == ["m1", "m2", "m3"]
    assert table["stress"].n_unique() == 1


def test_what_is_not_known_of_all_models_predicts_nothing():
    known = {"base": ["Llama 3", "Llama 3.2", "Gemma 2"], "developer": ["x", None, "y"]}
    known |= {"size_b": [8.0, 3.0, 2.0], "rewardbench_rank": [1, 1, 1]}
    models = pl.DataFrame({"model": ["a", "b", "c"], **known})
    found = explained.predictors(models)
    assert list(found) == ["base", "size"]
    assert found["base"][0].tolist() == [1.0, 1.0, 0.0]
    assert found["size"][0].tolist() == pytest.approx([1.0, 1 / 6, 1 / 7])
