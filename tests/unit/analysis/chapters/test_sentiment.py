import numpy as np
import polars as pl
import pytest

import analysis
from analysis.chapters import sentiment
from tests.support import runs


@pytest.fixture
def points(word_run, lexicon):
    return analysis.sentiment_points(word_run, ["m"], lexicon, "never")


def test_points_are_the_matched_tokens_under_every_prompt(points, lexicon):
    assert points.columns == ["model", "prompt", "token_id", "token", "word", "value", "reward"]
    own = points.filter(prompt="greatest")
    assert own["token"].to_list() == [*lexicon["word"], "Love", "HATE"]
    assert own.filter(token="Love")["value"].item() == 3.0


def test_slopes_are_fitted_by_valence_zero_with_the_negative(points):
    table = analysis.sentiment_slopes(points)
    assert table.select("prompt", "valence", "n").rows() == [
        ("greatest", "positive", 4),
        ("greatest", "negative", 5),
        ("worst", "positive", 4),
        ("worst", "negative", 5),
    ]
    assert table["slope"].to_list() == pytest.approx([1.0, 1.0, -1.0, -1.0])


@pytest.mark.parametrize(
    ("mode", "match_trim", "matches"),
    [
        ("ids", "auto", True),
        ("text", "auto", False),
        (None, "auto", False),
        ("text", "always", True),
        ("ids", "never", False),
    ],
)
def test_a_leading_space_counts_by_mode_or_as_asked(make_run, lexicon, mode, match_trim, matches):
    folder = make_run({"v": ["love", " love"]}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0]})
    own = {"fingerprint": {} if mode is None else {"mode": mode}}
    runs.edit_manifest(folder, lambda c: [r.update(own) for r in c["results"].values()])
    points = analysis.sentiment_points(analysis.load(folder), ["m"], lexicon, match_trim)
    assert points["token"].to_list() == (["love", " love"] if matches else ["love"])


def test_results_of_two_modes_follow_each_its_own_rule(make_run, lexicon, study_of, write):
    scores = {(m, p): [1.0, 2.0, 3.0] for m in "ab" for p in ("greatest", "worst")}
    folder = make_run({"v": ["love", " love", "bad"]}, {"a": "v", "b": "v"}, scores)

    def change(content):
        for path, result in content["results"].items():
            result["fingerprint"]["mode"] = "text" if path.endswith("=worst") else "ids"

    runs.edit_manifest(folder, change)
    run = analysis.load(folder)
    points = analysis.sentiment_points(run, ["b", "a"], lexicon)
    assert points.select("model", "prompt", "token").rows() == [
        *((m, "greatest", token) for m in "ba" for token in ("love", " love", "bad")),
        *((m, "worst", token) for m in "ba" for token in ("love", "bad")),
    ]
    study = study_of(run, sentiment, afinn=write("afinn.txt", "love\t3\nbad\t-3\n"))
    counts = study.tables["matches", "sentiment"].select("matching", "model", "tokens", "words")
    assert "both count as the word" in sentiment.ANALYSIS.section(study).caveats[0]
    assert counts.rows() == [
        *(("outer spaces ignored, any case", m, 3, 2) for m in "ab"),
        *(("outer spaces count, any case", m, 2, 2) for m in "ab"),
    ]


def test_valences_without_grades_are_compared(word_run):
    lexicon = pl.DataFrame(
        {"word": ["love", "joy", "bad", "hate"], "valence": ["positive"] * 2 + ["negative"] * 2}
    )
    points = analysis.sentiment_points(word_run, ["m"], lexicon, "never")
    row = analysis.valence_effects(points).row(0, named=True)
    assert (row["n_positive"], row["n_negative"], row["auc"]) == (3, 3, 1.0)
    assert row["cohens_d"] > 3


def test_forms_of_a_word_do_not_shrink_the_errors(rng):
    count = 60
    value, reward = rng.choice([1.0, 2.0, 3.0, 4.0], count), rng.normal(size=count)
    sign = np.where(rng.permutation(count) < count // 2, "positive", "negative")
    keys = {"model": "m", "prompt": "p"}
    names = [f"word{i}w" for i in range(count)]
    once = pl.DataFrame({"word": names, "value": value, "valence": sign, "reward": reward})
    once = once.select(*(pl.lit(v).alias(k) for k, v in keys.items()), pl.all())
    forms = pl.concat([once, once.with_columns(pl.col("word") + "ing")])
    for table in (analysis.sentiment_slopes, analysis.valence_effects):
        assert table(forms)["p"][0] == pytest.approx(table(once)["p"][0], rel=0.05)
    often = pl.Series("log_frequency", rng.normal(size=count))
    once = once.with_columns(often)
    forms = pl.concat([once, once.with_columns(pl.col("word") + "ed")])
    slopes = [analysis.frequency_slopes(points)["stderr"][0] for points in (once, forms)]
    assert slopes[0] == pytest.approx(slopes[1], rel=0.05)
