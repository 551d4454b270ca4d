"""How alike models rank the shared words: SciPy's numbers, and planted sides that are named."""

import re

import numpy as np
import polars as pl
import pytest

from analysis.blocks import pictures
from analysis.chapters import agreement, model_list, tokens
from analysis.charts import look
from tests.support.studies import cited, told

WORDS = [f"{start}w{i}" for i in range(150) for start in ("", " ")]


@pytest.fixture
def study(make_run, study_of):
    """Makes a study of models with the given rewards under each prompt."""

    def made(words=WORDS, **prompts):
        scores = {(f"m{i}", p): own for p, given in prompts.items() for i, own in enumerate(given)}
        run = make_run({"v": words}, {model: "v" for model, _ in scores}, scores, size=400)
        return study_of(run, model_list, tokens, agreement)

    return made


def following(rng, signs):
    """Rewards that follow one order, or its reverse."""
    base = rng.normal(size=len(WORDS))
    return [sign * base + 0.7 * rng.normal(size=len(WORDS)) for sign in signs]


def test_pairs_of_two_opposed_sides_are_counted(study, rng):
    made = study(best=following(rng, (1, 1, 1)), worst=following(rng, (1, -1, 1, 1, -1)))
    pairs = made.tables["kendall_pairs", "worst"]
    same = pl.col("model_a").is_in(["m1", "m4"]) == pl.col("model_b").is_in(["m1", "m4"])
    assert (pairs.filter(same)["ci_low"] > 0).all() and (pairs.filter(~same)["ci_high"] < 0).all()
    opposed, alike = told(agreement, made)  # the prompt with opposed models comes first
    ends = [pairs.sort("kendall", descending=down).row(0, named=True) for down in (True, False)]
    taus = [f"{abs(row['kendall']):.2f}" for row in ends]
    numbers = ["worst", "4", "10", taus[0], "6", "10", f"−{taus[1]}"]
    assert cited(opposed) == numbers
    assert "up to" in opposed and not re.findall(r"\bm\d\b", opposed)  # many are as far apart
    assert cited(alike)[:2] == ["best", "3"]
    drawn = {p.stem: p.draw for p in pictures(agreement.ANALYSIS.section(made).blocks)}
    chart = look.specification(drawn["kendall_tau_worst"]())
    order = chart["layer"][0]["encoding"]["y"]["sort"]
    assert {*order[:2]} == {"m1", "m4"} or {*order[-2:]} == {"m1", "m4"}  # they stand together


def test_the_pair_that_is_surely_furthest_is_named(study, rng):
    first, second, third = following(rng, (1, 1, 1))
    (text,) = told(agreement, study(best=[first, second, third, third + 0.01 * second]))
    assert re.findall(r"\bm\d\b", text) == ["m2", "m3"]


def test_of_noise_nothing_is_said(study, rng):
    assert told(agreement, study(best=rng.normal(size=(4, len(WORDS))))) == []


FORMS = ("love loved loving loves", "hope hoped hoping hopes", "play played playing plays")
FORMS += ("cook cooked cooking cooks", "walk walked walking walks", "jump jumped jumping jumps")


@pytest.mark.parametrize("forms", ["abcdef", [words.split() for words in FORMS]])
def test_forms_of_one_word_are_no_evidence_of_their_own(study, forms):
    """Six words in fifty spellings and forms each: six words are all the evidence there is."""
    spelt = [" " * i + word[i % len(word)] for word in forms for i in range(50)]
    order = np.repeat(np.arange(6.0), 50)
    flipped = np.repeat([1.0, 0.0, 2.0, 4.0, 3.0, 5.0], 50)
    made = study(spelt, best=[order, flipped])
    pairs = made.tables["kendall_pairs", "best"]
    assert made.tables["kendall_tau", "best"]["m1"][0] > 0.7
    assert pairs["ci_low"][0] <= 0
    assert told(agreement, made) == []


def test_a_model_without_an_order_is_in_no_sentence(study, rng):
    first, last = following(rng, (1, 1))
    (text,) = told(agreement, study(best=[first, np.zeros(len(WORDS)), last]))
    assert re.findall(r"\bm\d\b", text) == ["m0", "m2"]


def test_one_model_says_what_is_missing(study, rng):
    made = study(best=following(rng, (1,)))
    assert made.tables.reason("kendall_pairs", "best") == agreement.ONE_MODEL
    assert told(agreement, made) == []
