"""A short version of the false-alarm rates of word categories and wordings."""

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.words import lexicons
from analysis.words.categories import categories as built_in
from bench.claims import categories, wording
from tests.support import category_runs, runs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def vocabulary_run(tmp_path_factory, rng):
    """Two models that scored words of categories, and placebo kinds, which they rate apart."""
    placebo = lexicons.placebo().filter(~pl.col("word").is_in(built_in()["word"].implode()))
    tokens = [f" {word}" for word in (*built_in()["word"], *placebo["word"])]
    kinds = placebo["group"].rank("dense").to_numpy() % 2
    kinds = 4.0 * np.concatenate([np.zeros(built_in().height), kinds])
    scores = {
        (model, prompt): (kinds + rng.normal(size=len(tokens))).tolist()
        for model in ("a", "b")
        for prompt in ("greatest", "best", "worst")
    }
    folder = tmp_path_factory.mktemp("claims") / "run"
    return analysis.load(runs.write_run(folder, {"v": tokens}, {"a": "v", "b": "v"}, scores, 200))


def test_base_models_and_categories_are_claimed_at_most_at_their_rate(vocabulary_run):
    found = {(rate.claim, rate.null): rate for rate in categories.rates(vocabulary_run, 8)}
    assert len(found) == 3 * 4 + 3
    placebo = found["categories: p over words < .05", "placebo kinds, real rewards"]
    assert placebo.appeared / placebo.draws > 0.3  # which is why it is not told
    for rate in found.values():
        # In less than one of a thousand such tests does a true rate of 5 % exceed this.
        bound = 0.05 + 3.1 * np.sqrt(0.05 * 0.95 / rate.draws)
        assert rate.nominal == 1.0 or rate.appeared / rate.draws <= max(bound, 4 / rate.draws)
    naive = found["categories: prompts as units, p < .05", "one model far from the others"]
    assert naive.appeared / naive.draws > 0.5  # what 54 prompts would claim of nothing


def test_wordings_are_claimed_at_most_at_their_rate(tmp_path, rng):
    effects = dict.fromkeys(["a", "b", "c"], 1.0)
    run = analysis.load(category_runs.category_run(tmp_path / "run", rng, effects))
    found = list(wording.rates(run, 8))
    assert [rate.null.partition(",")[0] for rate in found[::2]] == ["made-up items", "words"]
    for rate in found:
        bound = 0.05 + 3.1 * np.sqrt(0.05 * 0.95 / rate.draws)
        assert rate.appeared / rate.draws <= max(bound, 4 / rate.draws)
