"""What a model rewards in pairs: planted tastes are found, and nothing where none is."""

import numpy as np
import polars as pl
import pytest

from analysis.chapters import pair_features as chapter
from analysis.chapters import pairs as pairs_chapter
from tests.support import runs
from tests.support.studies import cited, told

WORDS = [f"{a}{b}" for a in ("ba", "ko", "mi", "tu") for b in ("da", "lo", "ne", "ri")]
PLANTED = ["begins with “Certainly”", "has more bullets", "is longer"]
TASTE = np.array([1.3, 1.3, 1.0])


def written(rng, count, words=WORDS):
    """Texts of two replies to each of so many prompts, and their planted features [N, 2, 3]."""
    marks, size = rng.random((count, 2, 2)) < 0.4, rng.integers(8, 40, (count, 2))
    texts = [
        [
            ("Certainly " if opens else "")
            + " ".join(rng.choice(words, n))
            + ("\n- " if listed else "\n")
            + str(rng.choice(words))
            for (opens, listed), n in zip(*drawn, strict=True)
        ]
        for drawn in zip(marks, size, strict=True)
    ]
    return texts, np.dstack([marks, np.log2(size)])


def judged(rng, replies, people, model):
    """Pairs of what `written` returns, as `pairs.pairs` has them; two tastes and one quality."""
    texts, features = replies
    quality = rng.normal(size=features.shape[:2])
    value, reward = (
        features @ taste + quality + 0.7 * rng.normal(size=quality.shape)
        for taste in (people, model)
    )
    best = value.argmax(axis=1)
    at = np.arange(len(best))
    sides = [[texts[i][place] for i, place in enumerate(side)] for side in (best, 1 - best)]
    return pl.DataFrame(
        {
            "model": "m",
            "prompt": [f"p{i // 2}" for i in at],
            **dict(zip(("chosen", "rejected"), sides, strict=True)),
            "characters_chosen": list(map(len, sides[0])),
            "characters_rejected": list(map(len, sides[1])),
            "margin": reward[at, best] - reward[at, 1 - best],
        }
    )


@pytest.mark.parametrize("people", [0 * TASTE, 0.3 * TASTE], ids=["model", "both"])
def test_three_planted_tastes_stand_first_and_alone(rng, people):
    table = chapter.features("own", judged(rng, written(rng, 800), people, TASTE))
    assert sorted(table["feature"][:3]) == PLANTED
    assert sorted(chapter.sure(table)["feature"]) == PLANTED
    assert table.height > 20


def test_tastes_of_people_that_the_model_shares_or_lacks_are_no_finding(rng):
    """It has random errors, and so it prefers all of them less often than people do."""
    for model in (TASTE, 0 * TASTE):
        table = chapter.features("own", judged(rng, written(rng, 800), TASTE, model))
        assert not chapter.sure(table).height


def test_models_without_a_taste_have_a_sure_one_in_fewer_than_5_of_100_cases(rng):
    """200 models on the same pairs, which judge a fifth of them wrong."""
    part = judged(rng, written(rng, 120, WORDS[:3]), 0 * TASTE, 0 * TASTE)
    size, wrong = rng.exponential(size=(200, 120)), rng.random((200, 120)) < 0.2
    margins = zip(range(200), np.where(wrong, -size, size), strict=True)
    tables = [part.with_columns(model=pl.lit(f"m{m}"), margin=pl.Series(x)) for m, x in margins]
    table = chapter.features("own", pl.concat(tables))
    assert table["feature"].n_unique() > 4
    assert chapter.sure(table)["model"].n_unique() < 10


def test_the_numbers_of_a_feature_are_those_of_a_loop(rng):
    part = judged(rng, written(rng, 90), TASTE, TASTE)
    (row,) = chapter.features("own", part).filter(feature="has more bullets").to_dicts()
    people, model = [], []
    for pair in part.to_dicts():
        chosen, rejected = (pair[side].count("\n- ") for side in ("chosen", "rejected"))
        if chosen != rejected:
            people.append(chosen > rejected)
            model.append((pair["margin"] > 0) == people[-1])
    assert row["n"] == len(people)
    shares = (np.mean(model), np.mean(people), np.mean(model) - np.mean(people))
    found = (row["model_share"], row["people_share"], row["excess"])
    assert found == pytest.approx(shares)
    assert row["ci_low"] < row["excess"] < row["ci_high"]


@pytest.mark.parametrize(
    ("feature", "text"),
    [
        ("has more bullets", "a\n * b"),
        ("has more headings", "a\n## b"),
        ("has more bold phrases", "a **b** c"),
        ("has more code", "a `b` c"),
        ("has more digits", "a 7"),
        ("has more question marks", "a?"),
        ("has more exclamation marks", "a!"),
        ("has more line ends", "a\nb"),
        ("begins with “-”", " - a"),
        ("begins with “I’m”", "I’m a"),
        ("has the word “naïve”", "a Naïve"),
    ],
)
def test_each_feature_is_read(feature, text):
    columns = {"chosen": [text] * 20, "rejected": ["a other"] * 20}
    known = {name: sign for name, _, sign in chapter._differing(pl.DataFrame(columns))}
    assert known[feature].tolist() == [1] * 20


def test_features_that_differ_alike_are_one_but_length_and_rare_ones_are_left_out():
    columns = {"chosen": ["! a"] * 20 + ["b"] * 19, "rejected": ["a"] * 20 + ["c"] * 19}
    found = [name for name, *_ in chapter._differing(pl.DataFrame(columns))]
    assert found == ["begins with “!”", "begins with “a”", "is longer"]


def test_a_tie_of_the_model_is_no_preference(rng):
    """Half of the pairs are tied: what is left of a feature is what stands in the table."""
    pairs = judged(rng, written(rng, 400), 0 * TASTE, TASTE)
    half = pl.int_range(400) % 2 == 0
    tied = pairs.with_columns(margin=pl.when(half).then("margin").otherwise(0.0))
    shares = ["feature", "n", "model_share", "people_share"]
    with_ties, rest = (chapter.features("own", part) for part in (tied, pairs.filter(half)))
    assert rest.height > 5
    assert rest.join(with_ties, on=shares, how="anti").is_empty()
    assert chapter.features("own", pairs.with_columns(margin=0.0)).is_empty()


def test_a_taste_is_told_with_its_pairs_and_shares(make_run, study_of):
    run = make_run({"v": ["a"]}, {"m": "v"}, {})
    replies = [("- a", "bbb") if i % 4 < 3 else ("bbb", "- a") for i in range(80)]
    rows = [(f"p{i}", *texts, {}) for i, texts in enumerate(replies)]
    rewards = np.array([[2.0, 1.0] if i % 4 < 3 else [1.0, 2.0] for i in range(80)])
    runs.add_conversations(run, "own", runs.list_of(rows), {"m": rewards.ravel()})
    study = study_of(run, pairs_chapter, chapter)
    assert cited(told(chapter, study)[0])[:5] == ["-", "100", "80", "own", "75"]
