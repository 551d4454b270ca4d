"""Blocs of models, planted: which are found and named, and which are not."""

import re

import numpy as np
import polars as pl
import pytest
import scipy.stats

import analysis
from analysis.chapters import agreement, distributions, model_list, tokens
from analysis.chapters.blocs import disputed_words
from tests.support.studies import named, told

CHAPTERS = (model_list, tokens, distributions, agreement)
WORDS = [f"{start}w{i}" for i in range(150) for start in ("", " ")]


@pytest.fixture
def study(make_run, study_of):
    """Makes a study of models with the given rewards under each prompt."""

    def made(words=WORDS, options=None, **prompts):
        scores = {(f"m{i}", p): own for p, each in prompts.items() for i, own in enumerate(each)}
        models = {model: "v" for model, _ in scores}
        return study_of(
            make_run({"v": words}, models, scores, size=400), *CHAPTERS, **options or {}
        )

    return made


def following(rng, signs):
    """Rewards that follow one order, or its reverse."""
    base = rng.normal(size=len(WORDS))
    return [sign * base + 0.7 * rng.normal(size=len(WORDS)) for sign in signs]


def models_in(text):
    return re.findall(r"\bm\d\b", text)


def relations(table):
    return table.select("models", "other_models", "relation").rows()


def test_two_blocs_are_named_and_have_a_list_of_tokens_each(study, rng):
    made = study(worst=following(rng, (1, -1, 1, 1, -1)))
    table = made.tables["blocs", "worst"]
    assert table.select("models", "other_models", "relation", "pairs").rows() == [
        ("m0 m2 m3", "m0 m2 m3", "alike", 3),
        ("m0 m2 m3", "m1 m4", "opposed", 6),
        ("m1 m4", "m1 m4", "alike", 1),
    ]
    kendall = made.tables["kendall_tau", "worst"]
    between = [kendall.filter(model=a)[b].item() for a in ("m0", "m2", "m3") for b in ("m1", "m4")]
    row = table.row(1, named=True)
    assert row["kendall"] == pytest.approx(np.mean(between))
    assert (row["lowest"], row["highest"]) == (min(between), max(between))
    assert row["ci_low"] < row["kendall"] < row["ci_high"] < 0
    (plain,) = told(agreement, made)
    assert models_in(plain) == ["m0", "m2", "m3", "m1", "m4"]
    disputed = made.tables["disputed_words", "worst"].filter(rank=1)["token"].str.strip_chars()
    assert set(disputed) <= set(named(plain))
    ends = made.tables["consensus", "worst"].filter(rank=1)
    assert ends["models"].to_list() == 3 * ["m0 m2 m3"] + 3 * ["m1 m4"]
    assert ends["end"].to_list() == 2 * ["highest", "lowest", "disputed"]
    both = told(tokens, made)
    assert [models_in(text) for text in both] == [["m0", "m2", "m3"], ["m1", "m4"]]
    assert [named(text)[1] for text in both] == [
        word.strip() for word in ends.filter(end="highest")["token"]
    ]


def test_disputed_words_are_those_whose_mean_percentiles_differ_most():
    rng = np.random.default_rng(3)
    rewards = pl.DataFrame({"token": WORDS} | {f"m{i}": rng.normal(size=300) for i in range(3)})
    shares = rewards.with_columns((pl.exclude("token").rank() - 0.5) / 300)
    columns = ("bloc", "models", "other", "other_models", "relation")
    rows = [(1, "m0 m2", 1, "m0 m2", "alike"), (1, "m0 m2", 2, "m1", "disagree")]
    table = disputed_words(shares, pl.DataFrame(rows, columns, orient="row"), 4)
    of = {m: scipy.stats.rankdata(rewards[m]) / 300 for m in ("m0", "m1", "m2")}
    gaps = (of["m0"] + of["m2"]) / 2 - of["m1"]
    for higher, order in (("bloc", np.argsort(-gaps)), ("other", np.argsort(gaps))):
        kept = list(dict.fromkeys(WORDS[i].strip() for i in order))[:4]
        own = table.filter(higher=higher)
        assert [token.strip() for token in own["token"]] == kept
        difference = own["percentile"] - own["other_percentile"]
        assert difference.abs().is_sorted(descending=True)
    every = disputed_words(shares, pl.DataFrame(rows, columns, orient="row"), 150)
    for row in every.iter_rows(named=True):
        higher = "bloc" if row["percentile"] > row["other_percentile"] else "other"
        assert row["higher"] == higher
        first = WORDS.index(own["token"][0])
        assert difference[0] == pytest.approx(gaps[first], abs=1e-9)


def test_no_other_spelling_hides_a_word_of_a_sentence(study, write):
    """The most extreme words, counted by hand: whole ones first, then one spelling of each."""
    words = ["natural", " natural", " Natural", " hydro", " love", " hate", " war", " sad", "ing"]
    often = {"natural": 9, "hydro": 2, "hydrogen": 11, "love": 9, "hate": 9, "war": 9, "sad": 9}
    rows = "".join(f"\t{word}\tNoC\t:\t{n}\t100\t0.9\n" for word, n in often.items())
    texts = [*words, *(f"{i}" for i in range(30))]
    rewards = [9.0, 7.0, 8.0, 8.5, 6.0, -9.0, -8.0, -7.0, -9.5, *np.linspace(-5, 5, 30)]
    opposite = [-reward for reward in rewards]
    options = {"frequency": write("bnc.txt", rows)}
    made = study(texts, options, best=[rewards, rewards, opposite])
    (text,) = told(tokens, made)
    assert named(text)[1:] == ["Natural", "love", "sad", "hate", "war", "sad"]
    (text,) = told(agreement, made)
    assert named(text)[1:3] == ["Natural", "love"]


def test_models_that_all_rank_alike_are_one_bloc_under_both_prompts(study, rng):
    made = study(greatest=following(rng, (1, 1, 1)), best=following(rng, (1, 1, 1)))
    (text,) = told(agreement, made)
    assert named(text) == ["greatest", "best", "3"]
    for prompt in ("greatest", "best"):
        assert relations(made.tables["blocs", prompt]) == [("m0 m1 m2", "m0 m1 m2", "alike")]


def test_of_noise_nothing_is_said(study, rng):
    made = study(best=rng.normal(size=(4, len(WORDS))))
    for chapter in (agreement, tokens, distributions):
        assert told(chapter, made) == []
    assert made.tables.reason("consensus", "best")
    assert set(made.tables["blocs", "best"]["relation"]) == {"alone", "unclear"}


FORMS = ("love loved loving loves", "hope hoped hoping hopes", "play played playing plays")
FORMS += ("cook cooked cooking cooks", "walk walked walking walks", "jump jumped jumping jumps")


@pytest.mark.parametrize("forms", ["abcdef", [words.split() for words in FORMS]])
def test_forms_of_one_word_are_no_evidence_of_their_own(study, forms):
    """Six words in fifty spellings and forms each: six words are all the evidence there is."""
    spelt = [" " * i + word[i % len(word)] for word in forms for i in range(50)]
    order = np.repeat(np.arange(6.0), 50)
    flipped = np.repeat([1.0, 0.0, 2.0, 4.0, 3.0, 5.0], 50)
    made = study(spelt, best=[order, flipped])
    assert made.tables["kendall_tau", "best"]["m1"][0] > 0.7
    assert told(agreement, made) == []


def test_one_model_has_no_blocs_but_its_own_list(study, rng):
    made = study(best=following(rng, (1,)))
    assert made.tables.reason("blocs", "best") == agreement.ONE_MODEL
    assert set(made.tables["consensus", "best"]["end"]) == {"highest", "lowest"}
    assert told(agreement, made) == told(tokens, made) == []


def test_a_model_without_an_order_is_in_no_bloc(study, rng):
    one, two = following(rng, (1, 1))
    made = study(best=[one, np.zeros(len(WORDS)), two])
    (text,) = told(agreement, made)
    assert models_in(text) == ["m0", "m2"]
    table = made.tables["blocs", "best"]
    assert table.filter(relation="no order")["models"].to_list() == ["m1"]


def test_a_skew_is_said(study, rng):
    made = study(best=rng.exponential(size=(2, len(WORDS))) * [[1], [-1]])
    (text,) = told(distributions, made)
    assert named(text)[:1] == ["1"]


def pairs_of(models, *rows):
    """A table of pairs (two models, tau, half of its interval)."""
    found = [
        {"model_a": models[i], "model_b": models[j], "kendall": tau}
        | {"ci_low": tau - half, "ci_high": tau + half}
        for i, j, tau, half in rows
    ]
    return pl.DataFrame(found)


@pytest.mark.parametrize(
    ("tau", "half", "expected"),
    [
        (0.02, 0.011, "agree"),
        (0.31, 0.02, "agree"),
        (0.33, 0.02, "alike"),
        (-0.31, 0.02, "disagree"),
        (-0.33, 0.02, "opposed"),
        (0.02, 0.03, "unclear"),
    ],
)
def test_models_rank_alike_or_oppose_one_another_beyond_a_stated_tau_only(tau, half, expected):
    table = analysis.blocs_table(pairs_of("ab", (0, 1, tau, half)), ["a", "b"])
    assert expected in table["relation"].to_list()
    claimed = set(table["relation"]) & {"agree", "alike", "disagree", "opposed"}
    assert claimed == ({expected} - {"unclear"})


def test_blocs_that_hold_a_pair_that_agrees_do_not_disagree():
    pairs = pairs_of("abc", (0, 1, 0.5, 0.01), (0, 2, 0.2, 0.01), (1, 2, -0.6, 0.01))
    table = analysis.blocs_table(pairs, list("abc"))
    assert ("a b", "c", "unclear") in relations(table)
