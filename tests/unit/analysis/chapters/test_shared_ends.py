"""Both ends on the shared vocabulary, against a calculation by dictionaries and sorting."""

import numpy as np
import polars as pl
import pytest

import analysis
from analysis import CHAPTERS
from analysis.chapters import tokens

PROMPTS = ("best", "worst")


@pytest.fixture(scope="module")
def vocabularies():
    """Two vocabularies with common, ambiguous and own strings, each in another order."""
    words = [f"w{i}" for i in range(60)]
    one = [*words[:50], "twice", "twice", "mine", " w1"]
    two = [*words[10:], "twice", "other", "Mine", " w1", "w59"]
    rng = np.random.default_rng(3)
    return {"v1": rng.permutation(one).tolist(), "v2": rng.permutation(two).tolist()}


@pytest.fixture(scope="module")
def rewards(vocabularies):
    """Rewards in steps of a half, so that many are equal."""
    rng = np.random.default_rng(4)
    sizes = {model: len(vocabularies[vocab]) for model, vocab in MODELS.items()}
    return {
        (model, prompt): (rng.integers(-20, 20, size) / 2).tolist()
        for model, size in sizes.items()
        for prompt in PROMPTS
    }


MODELS = {"a": "v1", "b": "v2", "c": "v1"}


@pytest.fixture
def run(make_run, vocabularies, rewards):
    return make_run(vocabularies, MODELS, rewards, size=7)


def by_hand(vocabularies, numbers, count):
    """Rows of the table from its definition: model -> numbers by token id."""
    once = [{t for t in v if v.count(t) == 1} for v in vocabularies.values()]
    shared = set.intersection(*once)
    rows = []
    for model, values in numbers.items():
        tokens = vocabularies[MODELS[model]]
        kept = [i for i, token in enumerate(tokens) if token in shared]
        for end, sign in (("top", -1), ("bottom", 1)):
            best = sorted(kept, key=lambda i: (sign * values[i], i))[:count]
            rows += [(model, end, rank, i, tokens[i], values[i]) for rank, i in enumerate(best, 1)]
    return rows


def test_the_ends_of_rewards_sums_and_differences_are_those_of_the_definition(
    run, study_of, vocabularies, rewards
):
    tables = study_of(run, *CHAPTERS[:3], top=6, shared_ends=True).tables
    for prompt in PROMPTS:
        numbers = {model: rewards[model, prompt] for model in MODELS}
        table = tables["shared_top_bottom", prompt]
        assert table.columns == ["model", "end", "rank", "token_id", "token", "reward"]
        assert table.rows() == by_hand(vocabularies, numbers, 6)
    for combined, sign in (("sum", 1), ("difference", -1)):
        both = {m: zip(rewards[m, "best"], rewards[m, "worst"], strict=True) for m in MODELS}
        numbers = {m: [good + sign * bad for good, bad in each] for m, each in both.items()}
        assert tables[f"shared_{combined}"].rows() == by_hand(vocabularies, numbers, 6)


def test_the_section_shows_the_rows_of_the_table(run, settings, study_of):
    study = study_of(run, *CHAPTERS[:3], shared_ends=True)
    blocks = tokens.ANALYSIS.section(study).blocks
    each = [inner for b in blocks for inner in (b.blocks if b.kind == "under" else [b])]
    folded = [block for block in each if block.kind == "folded"]
    shared = next(fold for fold in folded if "among the strings" in fold.title)
    top, bottom, _ = shared.blocks
    assert (top.models, len(top.rows)) == (["a", "b", "c"], settings.figure_top)
    first = study.tables["shared_top_bottom", "best"].filter(rank=1, end="bottom")
    assert [cell["token"] for cell in bottom.rows[0][1]] == first["token"].to_list()


def test_combined_rewards_need_both_prompts(run):
    loaded = analysis.load(run)
    shared = analysis.shared_vocabulary(loaded)
    best = analysis.shared_rewards(loaded, shared, "best")
    worst = analysis.shared_rewards(loaded, shared, "worst").drop("b")
    both = analysis.combined(best, worst, "difference")
    assert both.columns == ["token", "a", "c"]
    expected = best["a"].cast(pl.Float64) - worst["a"].cast(pl.Float64)
    assert both["a"].to_list() == expected.to_list()
