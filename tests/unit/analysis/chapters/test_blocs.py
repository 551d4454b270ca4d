"""Blocs of models, planted: which sentences appear, and which do not."""

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.chapters import agreement, distributions, model_list, tokens

CHAPTERS = [model_list.ANALYSIS, tokens.ANALYSIS, distributions.ANALYSIS, agreement.ANALYSIS]
WORDS = [f"{start}w{i}" for i in range(150) for start in ("", " ")]


@pytest.fixture
def study(make_run, settings):
    """Makes a study of models with the given rewards under each prompt."""

    def made(prompts, names=None):
        count = len(next(iter(prompts.values())))
        names = names or [f"m{i}" for i in range(count)]
        scores = {
            (name, prompt): reward
            for prompt, rewards in prompts.items()
            for name, reward in zip(names, rewards, strict=True)
        }
        run = analysis.load(make_run({"v": WORDS}, dict.fromkeys(names, "v"), scores, size=400))
        return analysis.compute(run, {}, settings, CHAPTERS)

    return made


def following(rng, signs):
    """Rewards that follow one order, or its reverse."""
    base = rng.normal(size=len(WORDS))
    return [sign * base + 0.7 * rng.normal(size=len(WORDS)) for sign in signs]


def said(chapter, study):
    return [finding.text for finding in chapter.section(study).findings]


def test_two_blocs_are_named_with_their_tau_within_and_between(study):
    made = study({"worst": following(np.random.default_rng(0), (1, -1, 1, 1, -1))})
    plain, text = said(agreement.ANALYSIS, made)
    assert plain == (
        "Asked “worst”, m0, m2 and m3 on one side and m1 and m4 on the other rank the words in "
        "largely opposite ways."
    )
    assert text.startswith("Under “worst”, m0, m2 and m3 rank alike (mean τ 0.")
    assert "; m1 and m4 rank alike (τ 0." in text
    assert "; the bloc of m0 and the bloc of m1 oppose one another (mean τ −0." in text
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


def test_opposed_blocs_have_a_list_of_tokens_each_and_no_common_one(study):
    made = study({"worst": following(np.random.default_rng(0), (1, -1, 1, 1, -1))})
    ends = made.tables["consensus", "worst"].filter(rank=1)
    assert ends.select("models", "end").rows() == [
        (models, end)
        for models in ("m0 m2 m3", "m1 m4")
        for end in ("highest", "lowest", "disputed")
    ]
    first, second = said(tokens.ANALYSIS, made)
    highest = ends.filter(models="m0 m2 m3", end="highest").row(0, named=True)
    word = highest["token"].strip()
    assert first.startswith(f"Asked “worst”, m0, m2 and m3 on average rank “{word}”, “")
    assert second.startswith("Asked “worst”, m1 and m4 on average rank “")


def test_models_that_all_rank_alike_are_one_bloc_under_both_prompts(study):
    rng = np.random.default_rng(1)
    made = study({prompt: following(rng, (1, 1, 1)) for prompt in ("greatest", "best")})
    plain, text = said(agreement.ANALYSIS, made)
    assert plain == "Asked “greatest” and “best”, all 3 models tend to rank the words alike."
    assert text.startswith("Under “greatest” and “best”, all 3 models rank alike (mean τ 0.")
    assert "oppose" not in text


def test_two_models_may_oppose_one_another(study):
    made = study({"best": following(np.random.default_rng(2), (1, -1))})
    assert said(agreement.ANALYSIS, made)[1].startswith(
        "Under “best”, m0 and m1 oppose one another (τ −0."
    )
    assert said(tokens.ANALYSIS, made) == []


def test_of_noise_nothing_is_said(study):
    rng = np.random.default_rng(3)
    made = study({"best": [rng.normal(size=len(WORDS)) for _ in range(4)]})
    for chapter in (agreement, tokens, distributions):
        assert said(chapter.ANALYSIS, made) == []
    assert "No two models agree more than chance" in made.tables.reason("consensus", "best")
    assert set(made.tables["blocs", "best"]["relation"]) == {"alone", "unclear"}


FORMS = ("love loved loving loves", "hope hoped hoping hopes", "play played playing plays")
FORMS += ("cook cooked cooking cooks", "walk walked walking walks", "jump jumped jumping jumps")


@pytest.mark.parametrize("forms", ["abcdef", [words.split() for words in FORMS]])
def test_forms_of_one_word_are_no_evidence_of_their_own(make_run, settings, forms):
    """Six words in fifty spellings and forms each: six words are all the evidence there is."""
    spelt = [" " * i + word[i % len(word)] for word in forms for i in range(50)]
    order = np.repeat(np.arange(6.0), 50)
    flipped = np.repeat([1.0, 0.0, 2.0, 4.0, 3.0, 5.0], 50)
    scores = {("m", "best"): order, ("n", "best"): flipped}
    run = analysis.load(make_run({"v": spelt}, {"m": "v", "n": "v"}, scores, size=400))
    made = analysis.compute(run, {}, settings, CHAPTERS)
    assert made.tables["kendall_tau", "best"]["n"][0] > 0.7
    assert said(agreement.ANALYSIS, made) == []


def test_one_model_has_no_blocs_but_its_own_list(study):
    made = study({"best": following(np.random.default_rng(4), (1,))})
    assert made.tables.reason("blocs", "best") == agreement.ONE_MODEL
    assert set(made.tables["consensus", "best"]["end"]) == {"highest", "lowest"}
    assert said(agreement.ANALYSIS, made) == said(tokens.ANALYSIS, made) == []


def test_a_model_without_an_order_is_in_no_bloc(study):
    one, two = following(np.random.default_rng(5), (1, 1))
    made = study({"best": [one, np.zeros(len(WORDS)), two]})
    assert said(agreement.ANALYSIS, made)[1].startswith("Under “best”, m0 and m2 rank alike")
    table = made.tables["blocs", "best"]
    assert table.filter(relation="no order")["models"].to_list() == ["m1"]
    notes = [b.text for b in agreement.ANALYSIS.section(made).blocks if b.kind == "text"]
    assert "m1 has no order to compare." in notes


def test_a_skew_is_said_with_its_size_and_nothing_about_crowds(study):
    rng = np.random.default_rng(6)
    made = study({"best": [rng.exponential(size=len(WORDS)), -rng.exponential(size=len(WORDS))]})
    first, text = said(distributions.ANALYSIS, made)
    assert "2 are skewed: 1 towards high rewards and 1 towards low rewards." in first
    skewness = made.tables["moments"]["skewness"].to_list()
    assert f"Skewness is above 0 in 1 ({skewness[0]:.2f}) and below 0 in 1 (" in text


def test_skewness_is_no_claim_about_where_most_tokens_are(study):
    """Right-skewed, and yet most values are near the top of all but a few."""
    values = np.concatenate([np.full(200, 1.0), np.zeros(80), np.linspace(9, 10, 20)])
    made = study({"best": [values + 1e-3 * np.random.default_rng(7).normal(size=300)]})
    text = " ".join(said(distributions.ANALYSIS, made))
    assert "above 0 in 1" in text
    assert np.mean(values > 0.5) > 0.7
    assert not any(word in text for word in ("most", "crowd", "bottom", "top"))


def pairs_of(models, *rows):
    """A table of pairs (two models, tau, half of its interval)."""
    found = [
        {"model_a": models[i], "model_b": models[j], "kendall": tau}
        | {"ci_low": tau - half, "ci_high": tau + half}
        for i, j, tau, half in rows
    ]
    return pl.DataFrame(found)


def relations(table):
    return table.select("models", "other_models", "relation").rows()


@pytest.mark.parametrize(
    ("tau", "half", "expected"),
    [
        (0.02, 0.011, "agree"),
        (0.31, 0.02, "agree"),
        (0.33, 0.02, "alike"),
        (-0.02, 0.011, "disagree"),
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


def test_a_small_tau_beyond_chance_is_said_as_such(study):
    """The models share a little of what they value: tau is above 0, but not by much."""
    rng = np.random.default_rng(8)
    base = rng.normal(size=len(WORDS))
    made = study({"best": [base + 1.7 * rng.normal(size=len(WORDS)) for _ in range(2)]})
    assert 0.1 < made.tables["kendall_tau", "best"]["m1"][0] < 0.3
    plain, text = said(agreement.ANALYSIS, made)
    assert plain == "Asked “best”, m0 and m1 rank the words somewhat alike."
    assert text.startswith("Under “best”, m0 and m1 agree more than chance (τ 0.")
    assert "rank alike" not in text
    assert text.endswith(" or narrower.") and "under each prompt" not in text
