"""The transfer matrix, and what the page says of replies that were sought for several judges."""

import polars as pl
import pytest

import analysis
from analysis.chapters import sequence_sentences
from analysis.figures.transfer_map import transfer_map
from analysis.measures.transfer import TOGETHER, rule_of, summary, transfer_matrix
from engine.runs import schema
from tests.support import runs

UNIVERSAL = "gcg-mean-0123abcd-seed3"
KEYS = ("source", "source_prompt", "direction", "text")


@pytest.fixture
def searched(small_run):
    """One reply for two judges, one for each alone; all scored by all."""
    for model in ("m-one", "m-two"):
        runs.add_search(small_run, model, "max", [5.0, 3.0], name=UNIVERSAL, text="peace")
        runs.add_search(small_run, model, "max", [6.0], text=f"for {model}")
    return small_run


def score(run, rewards):
    for model, texts in rewards.items():
        runs.add_items(run, schema.FOUND + "0", model, "greatest", texts)


def made(run):
    loaded = analysis.load(run)
    return transfer_matrix(loaded, analysis.sequences_table(loaded))


ALONE = {
    "m-one": {"peace": 4.0, "for m-one": 9.0, "for m-two": -5.0},
    "m-two": {"peace": 0.9, "for m-one": -0.8, "for m-two": 1.0},
}


def test_each_reply_is_scored_by_each_model_once(searched):
    score(searched, ALONE)
    matrix = made(searched)
    assert matrix.select(KEYS).unique(maintain_order=True).rows() == [
        (TOGETHER, TOGETHER, "max", "peace"),
        ("m-one", "greatest", "max", "for m-one"),
        ("m-two", "greatest", "max", "for m-two"),
    ]
    assert matrix.height == 6
    singles = pl.Series([5.0, 4.0, 0.0, 0.5, -3.0, -9.0, 1.0])
    row = matrix.row(
        by_predicate=(pl.col("text") == "peace") & (pl.col("target") == "m-one"), named=True
    )
    expected = (4.0 - singles.mean()) / singles.std(ddof=0)
    assert row["standardised"] == pytest.approx(expected)
    least = {row["text"]: row["least"] for row in summary(matrix).iter_rows(named=True)}
    assert max(least, key=least.get) == "peace"


def test_of_a_universal_search_the_last_step_counts(searched):
    table = analysis.sequences_table(analysis.load(searched))
    assert table.filter(text="peace")["reward"].to_list() == [3.0, 3.0]


def test_the_page_says_so_where_one_reply_beats_all_others_over_all(searched):
    score(searched, ALONE)
    (finding,) = sequence_sentences.universal_findings(made(searched))
    assert "One reply for all: sought high" in finding.text
    assert "over 2 of them" in finding.text


def test_it_says_nothing_where_a_reply_for_one_is_better_for_all(searched):
    score(searched, {m: t | {"peace": -8.0} for m, t in ALONE.items()})
    assert sequence_sentences.universal_findings(made(searched)) == []


def test_it_says_nothing_without_a_universal_search(small_run):
    runs.add_search(small_run, "m-one", "max", [6.0], text="for m-one")
    score(small_run, ALONE)
    assert sequence_sentences.universal_findings(made(small_run)) == []
    assert sequence_sentences.universal_findings(None) == []


def test_the_heat_map_has_a_cell_for_each_pair(searched):
    score(searched, ALONE)
    texts = [text.get_text() for text in transfer_map(made(searched), {}).axes[0].texts]
    assert len(texts) == 6


def test_names_of_methods_say_whether_a_search_is_universal():
    assert rule_of("gcg-mean-0123abcd") == "mean"
    assert rule_of("mutate-minimum-0123abcd") == "minimum"
    assert rule_of("gcg-ascent") is None
