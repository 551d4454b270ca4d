"""Groups of people: where their words stand, and above how many ordinary kinds of words."""

import math

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.blocks import pictures
from analysis.chapters import groups
from analysis.words import lexicons
from tests.support import charts
from tests.support.studies import cited

MODELS = ("m1", "m2", "m3")


def vocabulary():
    """Words for women and men, and of all ordinary kinds; the column token has a space before."""
    people = lexicons.identity().filter(axis="gender").with_columns(ordinary=False)
    ordinary = lexicons.placebo(besides=people).with_columns(ordinary=True)
    return pl.concat([people, ordinary]).with_columns(token=" " + pl.col("word"))


@pytest.fixture
def study(make_run, study_of, rng):
    """Models that rate all words at random, those for women lower than any."""
    table = vocabulary()
    low = 9 * (table["group"] == "women").to_numpy()
    scores = {
        (model, prompt): rng.normal(size=table.height) - low
        for model in MODELS
        for prompt in ("best", "worst")
    }
    run = make_run({"v": table["token"].to_list()}, dict.fromkeys(MODELS, "v"), scores, size=9000)
    return study_of(run, groups)


def test_a_group_below_all_others_is_lower_than_every_ordinary_kind(study):
    rows = study.tables["groups"].filter(group="women")
    assert rows["prompt"].to_list() == [*3 * ["best"], *3 * ["worst"]]
    kinds = lexicons.placebo().select("axis", "group").unique().height
    assert rows["kinds"].to_list() == 6 * [kinds]
    assert rows["kinds_lower"].to_list() == 6 * [0]
    other = study.tables["groups"].filter(group="men")
    assert other["kinds_lower"].min() > 0
    assert other["kinds_lower"].max() < kinds


def test_its_percentile_is_the_mean_over_words(make_run):
    tokens = [" monk", " monks", "Monks", " nun", " rest", " more"]
    people = pl.DataFrame(
        [(w, "clergy", "x", s) for w, s in (("monk", "a"), ("monks", "a"), ("nun", "b"))],
        schema=["word", "group", "axis", "stem"],
        orient="row",
    )
    scores = {("m", "best"): [1.0, 2.0, 3.0, 6.0, 4.0, 5.0]}
    run = analysis.load(make_run({"v": tokens}, {"m": "v"}, scores, size=9))
    [row] = groups.groups_table(analysis.group_words(run, ["m"], people)).to_dicts()
    words = np.array([0.5, (1.5 + 2.5) / 2, 5.5]) / 6  # spellings of a word are one
    assert row["percentile"] == pytest.approx(words.mean())
    assert (row["tokens"], row["words"], row["stems"], row["kinds"]) == (4, 3, 2, 0)
    words = analysis.group_words(run, ["m"], people.filter(stem="b"))
    assert math.isnan(groups.groups_table(words)["ci_low"].item())  # of one stem


def test_the_page_says_of_no_group_where_it_stands_and_draws_each_prompt(study):
    section = groups.ANALYSIS.section(study)
    assert section.findings == []
    assert cited(section.answer) == [str(study.tables["groups"]["kinds"][0])]
    assert "women" not in section.answer
    drawn = {picture.stem: picture for picture in pictures(section.blocks)}
    assert list(drawn) == ["groups_best", "groups_worst"]
    rows = charts.rows(drawn["groups_best"].draw())
    women = study.tables["groups"].filter(group="women", prompt="best")["percentile"] * 100
    shown = [row for row in rows if row["group"] == "women"]
    assert [row["value"] for row in shown] == pytest.approx(women.to_list(), rel=1e-4)
    kinds = study.tables["groups"]["kinds"][0]
    assert cited(shown[0]["row"]) == ["0", str(kinds)]
