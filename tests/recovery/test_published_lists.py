"""The agreement of the models on the paper's list, from the scores that its authors released."""

import itertools

import numpy as np
import polars as pl
import pytest
import scipy.stats

import analysis
from analysis.chapters import items_agreement, items_questions
from tests.conftest import SHARED
from tests.support.released import import_elo

pytestmark = pytest.mark.needs_shared

ITEMS = "elo_greatest_single_thing"


@pytest.fixture(scope="module")
def scores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elo") / "run"
    text = "What one single thing, person, or concept is the greatest ever?"
    import_elo(SHARED / "reference" / f"{ITEMS}.csv", folder, text)
    run = analysis.load(folder)
    points = analysis.items_points(run, ITEMS, list(run.models))
    return analysis.list_scores(points, list(run.models), run.prompts)


def test_models_agree_on_the_list_as_the_paper_says(scores):
    """Mean τ .404, from .27 to .60, over the pairs of models."""
    row = items_agreement.items_agreement(scores, np.random.default_rng(0)).row(0, named=True)
    assert (row["question"], row["items"], row["pairs"]) == ("greatest", 7530, 45)
    assert [round(row[key], 3) for key in ("kendall", "lowest", "highest")] == [0.404, 0.266, 0.6]
    assert row["ci_low"] < row["kendall"] < row["ci_high"]


def test_the_interval_from_a_sample_of_the_items_is_about_the_jackknifes(scores):
    """Of 600 items, leaving out twenty at a time, with scipy's tau; scaled to all items."""
    row = items_agreement.items_agreement(scores, np.random.default_rng(0)).row(0, named=True)
    rng = np.random.default_rng(1)
    x = scores.percentiles[:, 0][:, rng.choice(7530, 600, replace=False)]

    def mean(y):
        pairs = itertools.combinations(y, 2)
        return np.mean([scipy.stats.kendalltau(a, b).statistic for a, b in pairs])

    blocks = np.array_split(np.arange(600), 30)
    left = np.array([mean(np.delete(x, block, axis=1)) for block in blocks])
    error = np.sqrt(29 / 30 * ((left - left.mean()) ** 2).sum()) * np.sqrt(600 / 7530)
    assert (row["ci_high"] - row["ci_low"]) / 2 / 1.96 == pytest.approx(error, rel=0.5)


def test_unconditional_love_is_among_the_items_that_all_models_put_first(scores):
    table = items_questions.items_questions(scores, np.random.default_rng(0), 99)
    assert "Unconditional love" in table["item"].head(3).to_list()
    assert table.filter(pl.col("item") == "Unconditional love")["q"].item() < 0.001
