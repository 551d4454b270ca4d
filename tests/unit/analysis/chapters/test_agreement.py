import itertools

import numpy as np
import polars as pl
import pytest
import scipy.stats

from analysis.chapters import agreement, blocs
from analysis.statistics.kendall import ranking
from analysis.statistics.ranks import rank_biased_overlap


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
    found = blocs.consensus(table)
    assert found["token"].to_list() == ["c", "a", "b"]
    assert found["percentile"].to_list() == pytest.approx([5 / 6, 1 / 3, 1 / 3])
    assert found["spread"].to_list() == pytest.approx([0.0, 1 / 18**0.5, 1 / 18**0.5])
    assert found["lowest"].to_list() == pytest.approx([5 / 6, 1 / 6, 1 / 6])
    assert found["highest"].to_list() == pytest.approx([5 / 6, 1 / 2, 1 / 2])


def test_overlaps_of_all_pairs_are_the_estimator_of_each(rewards):
    table = agreement.rbo_matrix(rewards, 0.8)
    for a, b in itertools.product(rewards.columns[1:], repeat=2):
        x, y = (ranking(rewards[model].to_numpy()).positions for model in (a, b))
        assert table.filter(model=a)[b].item() == pytest.approx(rank_biased_overlap(x, y, 0.8))
