"""The transfer matrix, and what the page says of replies that were sought for several judges."""

import polars as pl
import pytest

import analysis
from analysis.blocks import pictures
from analysis.chapters import sequences
from analysis.measures.transfer import TOGETHER, rule_of, transfer_matrix
from engine.runs import schema
from tests.support import charts, runs

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
    (found,) = matrix.filter(text="peace", target="m-one")["standardised"]
    assert found == pytest.approx((4.0 - singles.mean()) / singles.std(ddof=0))


def said(run):
    loaded = analysis.load(run)
    found = sequences.universal(loaded, made(run))
    return [finding.text for finding in found]


def test_of_a_universal_search_the_last_step_counts_and_ends_its_course(searched):
    table = analysis.sequences_table(analysis.load(searched))
    assert table.filter(text="peace")["reward"].to_list() == [3.0, 3.0]
    traces = analysis.sequence_traces(analysis.load(searched))
    assert traces.filter(method="gcg-mean-0123abcd", model="m-one")["best"].to_list() == [5.0, 3.0]


def test_the_page_says_where_one_reply_beats_those_for_one(searched):
    score(searched, ALONE)
    (text,) = said(searched)
    assert text.startswith("One reply for all: sought high for 2 pairs of model and prompt ")
    assert "“peace” has a mean reward of " in text
    assert "; the best that was sought for one pair, “for " in text


# Standard deviations: for the two judges, and for a prompt that the search was not for.
ASKED = {
    ("m-one", "greatest"): {"peace": 1.0, "for m-one": 2.75, "for m-two": 0.0},
    ("m-two", "greatest"): {"peace": 1.0, "for m-one": 2.75, "for m-two": 0.5},
}
OTHER = {("m-one", "worst"): {"peace": 9.0, "for m-one": 0.0, "for m-two": 0.0}}


def standardised(run, sds):
    """Scores texts so that they are some standard deviations from the mean of single tokens."""
    loaded = analysis.load(run)
    for (model, prompt), own in sds.items():
        single = loaded.rewards(model, prompt)[1].astype(float)
        texts = {text: single.mean() + sd * single.std() for text, sd in own.items()}
        runs.add_items(run, schema.FOUND + "0", model, prompt, texts)


def test_a_judge_that_was_not_asked_does_not_count(searched):
    standardised(searched, ASKED | OTHER)
    (text,) = said(searched)
    assert "“peace” has a mean reward of 1.00 sd over the 2 whose vocabulary was scored" in text
    assert text.endswith("“for m-one”, has 2.75.")


@pytest.mark.parametrize(("shown", "cut"), [(3, ""), (2, " The first 2 of 3 replies.")])
def test_the_heat_map_has_a_cell_a_reply_and_judge(searched, study_of, monkeypatch, shown, cut):
    score(searched, ALONE)
    monkeypatch.setattr(sequences, "_MOST_ROWS", shown)
    found = pictures(sequences.ANALYSIS.section(study_of(searched, sequences)).blocks)
    (picture,) = (p for p in found if p.stem == "sequence_matrix")
    assert picture.caption.endswith(f"from their mean.{cut}")
    cells = charts.rows(picture.draw())
    assert len(cells) == 2 * shown
    assert {cell["column"] for cell in cells} == {"m-one", "m-two"}
    assert "1. ↑ all together: peace" in {cell["row"] for cell in cells}
    known = dict(made(searched).filter(target="m-one").select("text", "standardised").iter_rows())
    for cell in (cell for cell in cells if cell["column"] == "m-one"):
        assert cell["value"] == pytest.approx(known[cell["row"].split(": ")[1]], rel=1e-4)


def test_a_reply_for_the_mean_of_prompts_is_not_one_for_one(searched):
    runs.add_search(searched, "m-one", "max", [9.0], text="joint", prompt="mean.greatest.best")
    standardised(searched, {m: {**t, "peace": 3.0, "joint": 8.0} for m, t in ASKED.items()})
    (text,) = said(searched)
    assert text.endswith("“for m-one”, has 2.75.")


@pytest.mark.parametrize(
    ("rule", "direction", "sign", "shown", "outcome"),
    [
        ("mean", "max", 1, "mean reward of 1.00 sd", "has 2.00."),
        ("minimum", "max", 1, "lowest reward of 0.90 sd", "has 0.10."),
        ("minimum", "min", -1, "highest reward of −0.90 sd", "has −0.10."),
    ],
)
def test_replies_rank_by_the_rule_of_their_search(small_run, rule, direction, sign, shown, outcome):
    for model in ("m-one", "m-two"):
        name = f"gcg-{rule}-0123abcd-seed3"
        runs.add_search(small_run, model, direction, [5.0], name=name, text="peace")
        runs.add_search(small_run, model, direction, [6.0], text=f"for {model}")
    sds = {
        ("m-one", "greatest"): {"peace": 0.9, "for m-one": 5.0, "for m-two": 0.1},
        ("m-two", "greatest"): {"peace": 1.1, "for m-one": -1.0, "for m-two": 0.2},
    }
    standardised(small_run, {m: {t: sign * sd for t, sd in own.items()} for m, own in sds.items()})
    (text,) = said(small_run)
    assert shown in text
    assert text.endswith(outcome)


def test_it_says_nothing_without_a_universal_search(small_run):
    runs.add_search(small_run, "m-one", "max", [6.0], text="for m-one")
    score(small_run, ALONE)
    assert said(small_run) == []
    assert rule_of("gcg-mean-0123abcd") == "mean"
    assert rule_of("mutate-minimum-0123abcd") == "minimum"
    assert rule_of("gcg-ascent") is None
