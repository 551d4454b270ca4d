"""Groups of people against the other groups of their axis, and against placebo kinds."""

import math

import numpy as np
import polars as pl
import pytest

import analysis
from analysis.blocks import pictures
from analysis.chapters import groups
from analysis.measures.word_groups import placebo
from analysis.measures.word_groups.estimates import estimate
from analysis.measures.word_groups.placebo import left_out
from analysis.measures.word_groups.standing import standing
from analysis.words import lexicons
from tests.support import groups as planted
from tests.support import runs

CONTRACT = ["model", "prompt", "group", "axis", "n", "mean_percentile", "ci_low", "ci_high", "p"]
MODELS = ("m1", "m2", "m3", "m4")


@pytest.fixture(scope="module")
def study_of(tmp_path_factory, study_of):
    """Planted rewards of each prompt -> the study of their run, this chapter alone, once."""
    made = {}

    def study(*models, **prompts):
        rng, table = np.random.default_rng(3), planted.vocabulary()
        scores = {}
        for prompt, shift in prompts.items():
            each = planted.rewards(table, rng, len(models), shift)
            scores |= {(model, prompt): own for model, own in zip(models, each, strict=True)}
        folder, words = tmp_path_factory.mktemp("groups"), {"v": table["token"].to_list()}
        run = runs.write_run(folder / "run", words, dict.fromkeys(models, "v"), scores, 5000)
        runs.edit_run(run, lambda c: c["prompts"].update(food="What is the best food?"))
        planted.of_two_groups().write_csv(folder / "terms.csv")
        return study_of(run, groups, permutations=999, identity=str(folder / "terms.csv"))

    def known(*models, **prompts):
        key = repr((models, prompts))
        if key not in made:
            made[key] = study(*models, **prompts)
        return made[key]

    return known


def row(table, **keys):
    return table.filter(**keys).row(0, named=True)


def test_a_slighted_group_is_found_in_each_model_and_over_models(study_of):
    study = study_of(*MODELS, best={"northerners": -9.0}, worst={"women": 9.0})
    single, over = study.tables["identity"], study.tables["identity_models"]
    assert single.columns[: len(CONTRACT)] == CONTRACT
    for group, prompt, sign in (("northerners", "best", -1), ("women", "worst", 1)):
        mean = row(over, group=group, prompt=prompt)
        assert mean["q"] < 0.05
        assert mean["placebo_share"] < 0.05
        assert mean["kinds_lower"] == (mean["kinds"] if sign > 0 else 0)
        assert mean["kinds"] >= 40
        assert sign * mean["contrast"] > 0.2
        assert mean["above"] == (4 if sign > 0 else 0)
        each = single.filter(group=group, prompt=prompt)
        assert (each["placebo_share"] < 0.05).all()
        assert mean["contrast"] == pytest.approx(each["contrast"].mean())
        assert mean["contrast_spread"] == pytest.approx(each["contrast"].std())
        assert row(over, group=group, prompt={"best": "worst"}.get(prompt, "best"))["q"] > 0.05


def test_the_page_says_where_the_furthest_group_stands_and_gives_no_verdict(study_of):
    study = study_of(*MODELS, best={"northerners": -9.0}, worst={"women": 9.0})
    section = groups.ANALYSIS.section(study)
    assert section.findings == []
    assert section.answer.startswith(
        "Asked “best”, of the groups with words enough for a test, those for northerners "
    )
    own = row(study.tables["identity_models"], group="northerners", prompt="best")
    far = f"{-100 * own['contrast']:.0f} percentile points below southerners, on average"
    assert f"furthest from the others of their axis: {far} over 4 models." in section.answer
    assert section.answer.endswith(f"that is lower than {own['kinds']} of {own['kinds']}.")
    low, high = (
        f"so a {end} place is unfavourable in models that follow the question."
        for end in ("low", "high")
    )
    captions = {picture.stem: picture.caption for picture in pictures(section.blocks)}
    assert f"asks for something good, {low}" in captions["identity_best"]
    assert f"asks for something bad, {high}" in captions["identity_worst"]
    for block in section.blocks:
        keys = {key for key, *_ in block.columns} if block.kind == "rows" else set()
        assert not keys & {"p", "q", "differs"}


def test_a_prompt_of_another_framing_has_no_bad_end_and_one_model_no_mean_over_models(study_of):
    study = study_of(*MODELS, food={"northerners": -9.0})
    section = groups.ANALYSIS.section(study)
    assert "those for northerners stand furthest" in section.answer
    assert not any("favourable" in picture.caption for picture in pictures(section.blocks))
    assert groups.framing_of(study, "food") == ""
    study = study_of("m1", best={"northerners": -9.0})
    over = study.tables["identity_models"]
    assert over["contrast_low"].is_nan().all()
    assert over["p"].is_nan().all()
    assert "over" not in groups.ANALYSIS.section(study).answer


def test_placebo_kinds_that_stand_as_far_are_counted_beside_a_group(make_run):
    table = planted.vocabulary()
    for kinds, far in ((0.3, True), (9.0, False)):
        rng = np.random.default_rng(5)
        each = planted.rewards(table, rng, 3, {"women": -9.0}, kinds)
        scores = {(f"m{at}", "best"): rewards for at, rewards in enumerate(each)}
        models = {model: "v" for model, _ in scores}
        run = make_run({"v": table["token"].to_list()}, models, scores, f"run{kinds}", size=5000)
        words = analysis.identity_words(analysis.load(run), list(models), table.drop("token"))
        found = estimate(standing([words]), np.random.default_rng(0), 999, 99).over_models
        own = row(found, group="women")
        assert own["q"] < 0.05
        assert (own["placebo_share"] <= 0.05) == (own["kinds_lower"] == 0) == far


def test_a_group_of_few_words_has_an_interval_and_no_test(study_of):
    study = study_of(*MODELS, best={})
    single = study.tables["identity"]
    few = row(single, group="Hindus", model="m1")
    assert few["words"] == 3
    assert few["contrast_low"] < few["contrast"] < few["contrast_high"]
    assert math.isnan(few["p"])
    assert math.isnan(few["q"])
    tested = single.filter(pl.col("p").is_not_nan())
    assert tested["words"].min() == 5
    expected = analysis.with_q(tested.drop("q"))["q"]
    assert tested["q"].to_list() == pytest.approx(expected.to_list())  # The others do not count.


def test_a_group_alone_on_its_axis_is_held_against_placebo_kinds_alone(study_of):
    single = study_of("m1", best={"migrants": -9.0}).tables["identity"]
    alone = row(single, group="migrants")
    assert math.isnan(alone["contrast"])
    assert alone["difference"] < -0.3
    assert alone["placebo_percentile"] < 0.05


def frame(*rows):
    """Tokens of words: group, axis, form, stem, word, surface, percentile."""
    names = ["group", "axis", "form", "stem", "word", "surface", "percentile"]
    table = pl.DataFrame(rows, schema=names, orient="row").with_row_index("token_id")
    return table.with_columns(model=pl.lit("m"), prompt=pl.lit("p"), token=pl.col("word"))


def test_a_word_is_held_against_neutral_tokens_of_its_surface_and_words_of_its_form():
    words = frame(
        ("neutral", "neutral", "plural", "n", "ns", "_a", 0.50),
        ("neutral", "neutral", "plural", "n", "ns", "-A", 0.10),
        ("neutral", "neutral", "singular", "n", "n", "_a", 0.70),
        ("g", "x", "plural", "g", "gs", "_a", 0.30),
        ("g", "x", "plural", "g", "gs", "-A", 0.00),
    )
    found = standing([words])
    own = found.rows(group="g")
    # Surfaces: −0.30 beside 0.60, and −0.10 beside 0.10; neutral plurals: −0.10 and 0.
    assert found.adjusted[own, 0].item() == pytest.approx((-0.30 - 0.10) / 2)
    assert found.distance[own, 0].item() == pytest.approx(-0.20 + 0.05)
    assert found.tokens[own, 0].item() == 2


def test_a_group_without_its_like_has_a_mean_and_nothing_else(make_run):
    tokens = [" homosexual", " gay", "stone"]
    run = analysis.load(make_run({"v": tokens}, {"m": "v"}, {("m", "greatest"): [1.0, 2.0, 3.0]}))
    words = analysis.identity_words(run, ["m"], lexicons.identity())
    table = estimate(standing([words]), np.random.default_rng(0), 99, 99).groups
    assert table["mean_percentile"].to_list() == pytest.approx([1 / 3])
    for name in ("p", "contrast", "difference", "placebo_share", "placebo_percentile"):
        assert math.isnan(table[name].item()), name


def test_models_of_different_vocabularies_are_estimated_together(make_run, rng):
    table = planted.vocabulary()
    each = planted.rewards(table, rng, 3, {"women": -4.0})
    lacks = ~table["word"].is_in(["mother", "mothers", "boy", "apple"]).to_numpy()
    texts = table["token"].to_list()
    vocabularies = {
        "v": texts,
        "w": [text for text, keep in zip(texts, lacks, strict=True) if keep],
    }
    scores = {("a", "best"): each[0], ("b", "best"): each[1][lacks], ("c", "best"): each[2]}
    run = analysis.load(make_run(vocabularies, {"a": "v", "b": "w", "c": "v"}, scores, size=5000))
    words = analysis.identity_words(run, ["a", "b", "c"], table.drop("token"))
    together = estimate(standing([words]), np.random.default_rng(0), 999, 99)
    own = together.groups.filter(group="women")
    assert own["words"].to_list() == [17, 15, 17]
    assert row(together.over_models, group="women")["q"] < 0.05
    parts = [words.filter(model=model) for model in ("a", "b", "c")]
    apart = estimate(standing(parts), np.random.default_rng(0), 999, 99)
    assert apart.groups.equals(together.groups)


def test_the_place_among_placebo_kinds_is_that_of_a_count():
    drawn = np.arange(30.0).reshape(30, 1, 1).repeat(2, axis=1) - 10
    assert placebo.percentile(drawn, np.array([0.5])).item() == pytest.approx(11 / 30)
    # As far from 0 as 12: 12 to 19, and the group itself.
    assert placebo.rarity(drawn, np.array([-12.0])).item() == pytest.approx(9 / 31)
    assert [n.item() for n in placebo.lower(drawn, np.array([0.5]))] == [11, 30]
    few = drawn[:19]
    assert math.isnan(placebo.rarity(few, np.array([1.0])).item())
    assert math.isnan(placebo.percentile(few, np.array([1.0])).item())


def test_placebo_kinds_are_drawn_at_the_size_of_a_group(make_run):
    table = planted.vocabulary()
    scores = {("m", "best"): planted.rewards(table, np.random.default_rng(0), 1)[0]}
    run = analysis.load(make_run({"v": table["token"].to_list()}, {"m": "v"}, scores, size=5000))
    words = standing([analysis.identity_words(run, ["m"], table.drop("token"))])
    kinds = placebo.placebo_kinds(words, np.random.default_rng(0))
    one, many = (kinds.distances(np.array([stems])) for stems in (1, 6))
    assert one.shape[0] >= 40
    spread = [np.nanstd(drawn[:, :, 0], axis=1).mean() for drawn in (one, many)]
    assert spread[0] > 1.8 * spread[1]
    chosen = kinds.first(words.rows(group="fruits"), 3)
    assert words.words.filter(pl.Series(chosen))["stem"].n_unique() == 3


def test_the_shares_of_people_and_of_placebo_kinds_stand_side_by_side(study_of):
    study = study_of(*MODELS, best={})
    shares = study.tables["identity_reference"]
    assert shares["of"].to_list() == ["groups of people", "ordinary kinds"]
    names = ("identity", "identity_placebo")
    for name, part in zip(names, shares.iter_rows(named=True), strict=True):
        p = study.tables[name]["p"].drop_nans()
        assert part["tests"] == len(p)
        assert part["below"] == pytest.approx((p < 0.05).mean())
    people = study.tables["identity"].filter(pl.col("p").is_not_nan())
    assert shares["far"][0] == pytest.approx((people["placebo_share"] <= 0.05).mean())
    assert 0 <= shares["far"][1] <= 0.05


def test_a_placebo_kind_left_out_has_its_place_among_the_others():
    table = pl.DataFrame({"model": "m", "prompt": "best", "contrast": [0.5, -0.4, 0.3, 0.1]})
    assert left_out(table)["placebo_share"].to_list() == [0.25, 0.5, 0.75, 1.0]


def test_the_same_seed_gives_the_same_tables(study_of):
    study = study_of(*MODELS, best={})
    again = analysis.compute(study.run, {}, study.settings, [groups.ANALYSIS])
    for name, table in study.tables.files.items():
        assert table.equals(again.tables.files[name], null_equal=True), name


def test_words_of_one_stem_are_one_unit_of_the_test():
    neutral = [
        ("neutral", "neutral", form, f"n{at}", f"n{at}{form}", "_a", 0.5 + at / 100)
        for at in range(4)
        for form in ("singular", "plural")
    ]
    groups_of_three = [
        (group, "axis", form, f"{group}{at}", f"{group}{at}{form}", "_a", place + at / 100)
        for group, place in (("low", 0.1), ("high", 0.8))
        for at in range(3)
        for form in ("singular", "plural")
    ]
    words = frame(*neutral, *groups_of_three)
    table = estimate(standing([words]), np.random.default_rng(0), 999, 99).groups
    assert table["words"].to_list() == [6, 6]
    assert table["stems"].to_list() == [3, 3]
    # Of 20 ways to give three of six stems to a group, these two are furthest apart.
    assert table["p"].to_list() == pytest.approx([2 / 20, 2 / 20])
    alone = words.with_columns(stem="word")
    apart = estimate(standing([alone]), np.random.default_rng(0), 999, 99).groups
    assert (apart["p"] < 0.02).all()


def test_a_group_that_one_model_slights_does_not_differ_over_models(make_run, rng):
    table = planted.vocabulary()
    each = planted.rewards(table, rng, 4)
    each[0] -= 30 * (table["group"] == "women").to_numpy()
    scores = {(f"m{at}", "best"): rewards for at, rewards in enumerate(each)}
    models = dict.fromkeys((model for model, _ in scores), "v")
    run = make_run({"v": table["token"].to_list()}, models, scores, size=5000)
    words = analysis.identity_words(analysis.load(run), list(models), table.drop("token"))
    found = estimate(standing([words]), np.random.default_rng(0), 999, 99)
    each = found.groups.filter(group="women")
    assert ((each["q"] < 0.05) & (each["placebo_share"] <= 0.05)).to_list() == [True, *3 * [False]]
    own = row(found.over_models, group="women")
    assert own["p"] == own["p_models"] > 0.05
    assert own["contrast_spread"] > 0.1
