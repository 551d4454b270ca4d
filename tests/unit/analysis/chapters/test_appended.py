"""Tokens behind replies: what is planted is found, and no other chapter takes them for a sweep."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import scipy.stats

import analysis
from analysis import CHAPTERS
from analysis.chapters import appended
from analysis.measures import appended as measures
from analysis.report import first_screen
from analysis.words.matching import PIECE
from engine.runs import schema
from tests.support import runs
from tests.support.studies import cited, told

SIZE, REPLIES, AT = 600, 6, 17
THANKS, UNIT = " thanks", 0.5
BEHIND = {f"behind-{i}": f"Why?␟Because of {i}. " for i in range(REPLIES)}


def add_behind(run, model, prompt, rewards, baseline, **fields):
    columns = {"token_id": range(len(rewards)), "reward": rewards}
    frame = pl.DataFrame(columns, schema=schema.SCORE_COLUMNS)
    identity = {"mode": "ids", "dtype": "float32"}
    path = schema.scores_path(model, prompt)
    runs.add_result(run, path, frame, identity=identity, baseline=baseline, **fields)


def behind_run(
    folder,
    rng,
    *,
    planted=2.0,
    replies=REPLIES,
    plain=True,
    model="m",
    text=THANKS,
    behind=BEHIND,
    **fields,
):
    """One model, replies whose rewards have a spread of `UNIT`, and a token that raises all."""
    tokens = [f"t{i}" for i in range(SIZE)]
    tokens[AT] = text
    scores = {(model, "greatest"): rng.normal(size=SIZE)} if plain else {}
    prompts = {**runs.PROMPTS, **behind}
    run = runs.write_run(folder, {"v": tokens}, {model: "v"}, scores, size=SIZE, prompts=prompts)
    baselines = scipy.stats.zscore(rng.normal(size=replies), ddof=1) * UNIT
    for prompt, baseline in zip(behind, baselines if replies > 1 else [0.3], strict=False):
        effects = rng.normal(-0.1, 0.2, size=SIZE)
        effects[AT] += planted
        add_behind(run, model, prompt, baseline + effects, float(baseline), **fields)
    return run


def add_repeated(run, curves, model="m", spread=0.0):
    """Group -> curves of its tokens: the mean effect at each of `schema.TIMES`."""
    loaded = analysis.load(run)
    for group, of in curves.items():
        items = [f"{group}{i}" * times for i in range(len(of)) for times in schema.TIMES]
        for at, prompt in enumerate(BEHIND):
            baseline = loaded.appended[model, prompt].baseline
            rewards = baseline + np.concatenate(of) + 0.01 * at
            rewards += spread * at * np.resize([0, 0, 0, 0, 0, 1], len(rewards))
            columns = dict(
                zip(schema.ITEM_COLUMNS, (range(len(items)), items, rewards), strict=True)
            )
            frame = pl.DataFrame(columns, schema=schema.ITEM_COLUMNS)
            path = schema.items_path(schema.repeated_list(group, "abcdef0123"), model, prompt)
            runs.add_result(run, path, frame, baseline=baseline)


@pytest.fixture(scope="module")
def planted(tmp_path_factory, study_of):
    run = behind_run(tmp_path_factory.mktemp("behind") / "run", np.random.default_rng(3))
    add_repeated(
        run, {"raise": [np.arange(1.0, 7)], "lower": [np.array([-1, -2, -2, -1, -1, 0.5])]}
    )
    return study_of(run, appended)


def test_the_planted_token_is_the_first_row_with_its_size_in_units(planted, monkeypatch):
    row = planted.tables["appended"].row(0, named=True)
    assert (row["token"], row["end"], row["rank"]) == (THANKS, "top", 1)
    assert row["kind"] == measures.PRAISE
    assert row["raised"] == 1.0
    assert row["effect_sd"] == pytest.approx(row["effect"] / UNIT)
    assert row["ci_low"] < 1.9 / UNIT < row["ci_high"]
    assert row["q"] < 0.01
    effect = f"{row['effect_sd']:.2f}"
    monkeypatch.setattr("analysis.words.lexicons.common_words", lambda *_: {"thanks"})
    first = told(appended, planted)[0]
    assert cited(first)[:4] == ["␣thanks", "100", "6", effect] and PIECE not in first
    monkeypatch.setattr("analysis.words.lexicons.common_words", lambda *_: {"thank"})
    assert f"“␣thanks” ({PIECE}) at the end" in told(appended, planted)[0]
    [about] = planted.tables["appended_models"].to_dicts()
    assert about["unit"] == pytest.approx(UNIT)
    assert "6 replies" in about["unit_of"]
    [praise] = planted.tables["appended_kinds"].filter(kind=measures.PRAISE).to_dicts()
    assert (praise["tokens"], praise["best"]) == (1, THANKS)


def test_an_unplanted_twin_says_nothing_of_it(tmp_path, study_of):
    study = study_of(behind_run(tmp_path / "run", np.random.default_rng(3), planted=0.0), appended)
    table = study.tables["appended_tokens", "m"]
    assert table["token"].to_list().index(THANKS) > 20
    assert table.filter(token=THANKS)["q"].item() > 0.05
    assert not told(appended, study)
    assert study.tables["appended"].filter(token=THANKS).is_empty()


def test_intervals_are_those_of_the_mean_over_replies(planted):
    found = measures.effects(planted.run, "m")
    mean, low, high, p = measures.over_replies(found.effects, found.clusters)
    for at in (0, AT):
        values = found.effects[:, at]
        ends = scipy.stats.t.interval(0.95, REPLIES - 1, values.mean(), scipy.stats.sem(values))
        assert (mean[at], low[at], high[at]) == pytest.approx((values.mean(), *ends))
        assert p[at] == pytest.approx(scipy.stats.ttest_1samp(values, 0).pvalue)


TEXTS = [(prompt, reply) for prompt in "abcdef" for reply in ("Sure, ", "No")]


@pytest.mark.parametrize(
    ("replies", "clusters"),
    {
        "two replies to each of six prompts, of two texts": (TEXTS, [1, 0] * 6),
        "one text under six prompts": (TEXTS[::2], [0] * 6),
        "six texts under one prompt": ([("a", str(i)) for i in range(6)], [0, 1, 2, 3, 4, 5]),
        "a prompt and a reply of each": ([("b", "1"), ("a", "2")], [1, 0]),
    }.values(),
)
def test_replies_to_one_prompt_or_of_one_text_are_one_observation(replies, clusters):
    results = [SimpleNamespace(prompt_text=f"{prompt}␟{reply}") for prompt, reply in replies]
    assert measures.clusters(results).tolist() == clusters


def test_two_replies_of_each_prompt_have_the_interval_of_the_prompts(tmp_path, study_of):
    behind = {f"behind-{i}": f"Why {i // 2}?␟Because of {i}. " for i in range(REPLIES)}
    run = behind_run(tmp_path / "run", np.random.default_rng(3), behind=behind)
    add_repeated(run, {"raise": [np.arange(1.0, 7)]})
    study = study_of(run, appended)
    row = study.tables["appended"].row(0, named=True)
    means = measures.effects(study.run, "m").effects[:, AT].reshape(3, 2).mean(axis=1) / UNIT
    ends = scipy.stats.t.interval(0.95, 2, means.mean(), scipy.stats.sem(means))
    assert (row["effect_sd"], row["ci_low"], row["ci_high"]) == pytest.approx((means.mean(), *ends))
    [about] = study.tables["appended_models"].to_dicts()
    assert (about["replies"], about["clusters"]) == (6, 3)
    last = study.tables["appended_repeated"].filter(times=32).row(0, named=True)
    means = (6 + 0.01 * np.array([0.5, 2.5, 4.5])) / UNIT
    ends = scipy.stats.t.interval(0.95, 2, means.mean(), scipy.stats.sem(means))
    assert last["replies"] == 6
    assert (last["ci_low"], last["ci_high"]) == pytest.approx(ends, rel=1e-4)


def test_effects_within_the_noise_of_the_self_check_raise_and_lower_nothing(tmp_path, study_of):
    for name, error, raised in (("noisy", 1.5, 0.0), ("clean", 1e-4, 1.0)):
        check = dataclasses.replace(runs.CHECK, max_abs_difference=error)
        run = behind_run(tmp_path / name, np.random.default_rng(3), self_check=check)
        table = study_of(run, appended).tables["appended_tokens", "m"]
        assert table.filter(token=THANKS)["raised"].item() == raised
        assert (table["lowered"].max() > 0) is (raised > 0)


def test_a_piece_of_a_character_is_named_in_no_sentence(tmp_path, study_of):
    run = behind_run(tmp_path / "run", np.random.default_rng(3), text="\ufffd")
    study = study_of(run, *CHAPTERS)
    row = study.tables["appended"].row(0, named=True)
    assert (row["token"], row["kind"]) == ("\ufffd", measures.PIECES)
    assert not told(appended, study)
    assert "\ufffd" not in appended.ANALYSIS.described(study)
    [question] = first_screen.questions(study, ["greatest"])
    assert not question["panels"][0]["behind"]


def test_what_repetition_takes_away_is_named_without_a_sign(tmp_path, study_of):
    run = behind_run(tmp_path / "run", np.random.default_rng(3))
    curves = np.array([1, 2, 3, 4, 5, 4.0])
    add_repeated(run, {"raise": [curves, curves]}, spread=0.01)
    sentence = told(appended, study_of(run, appended))[1]
    assert cited(sentence) == ["2", "32", "16", "1.95", "95", "1.91", "1.99"]
    assert "lowers" in sentence


def test_one_reply_has_no_interval_and_its_unit_is_of_the_sweep(tmp_path, study_of):
    run = behind_run(tmp_path / "run", np.random.default_rng(3), replies=1)
    study = study_of(run, appended)
    row = study.tables["appended"].row(0, named=True)
    assert row["token"] == THANKS
    assert math.isnan(row["ci_low"]) and math.isnan(row["q"])
    rewards = analysis.load(run).effects("m", "behind-0")[1]
    [about] = study.tables["appended_models"].to_dicts()
    assert about["unit"] == pytest.approx(rewards.std())
    assert not told(appended, study)


def test_the_unit_is_the_spread_of_the_users_list_where_the_run_has_one(tmp_path, study_of):
    run = behind_run(tmp_path / "run", np.random.default_rng(3))
    rows = [(f"p{i}", "yes", "no", {}) for i in range(8)]
    rewards = np.arange(16.0)
    runs.add_conversations(run, "mine", runs.list_of(rows), {"m": rewards})
    [about] = study_of(run, appended).tables["appended_models"].to_dicts()
    assert about["unit"] == pytest.approx(rewards.std(ddof=1))
    assert "16 replies" in about["unit_of"]


@pytest.mark.parametrize(
    ("token", "kind"),
    {
        " ": measures.SPACE,
        " !!": measures.SIGNS,
        "\ufffd": measures.PIECES,
        "": measures.PIECES,
        " 😊": measures.PICTURES,
        "</s>": measures.MARKS,
        "▁Thanks": measures.PRAISE,
        "getName": measures.CODE,
        " house": measures.OTHER,
    }.items(),
)
def test_the_kind_of_a_token_is_told_by_its_text(token, kind):
    frame = pl.DataFrame({"token": [token], "is_special": [False]})
    assert frame.select(measures.kind(pl.col("token"), pl.col("is_special"))).item() == kind


# The one rule: a sweep behind a reply start is no plain sweep


def test_other_chapters_say_the_same_with_and_without_sweeps_behind_replies(tmp_path, study_of):
    tables = []
    for name, replies in (("with", REPLIES), ("without", 0)):
        run = behind_run(tmp_path / name, np.random.default_rng(3), replies=replies)
        others = [chapter for chapter in CHAPTERS if chapter is not appended.ANALYSIS]
        tables.append(study_of(run, *others).tables)
    assert tables[0].frames.keys() == tables[1].frames.keys()
    assert tables[0].absent == tables[1].absent
    for key, frame in tables[0].frames.items():
        assert frame.equals(tables[1].frames[key]), key


def test_the_first_screen_names_the_three_that_raise_most(planted):
    [question] = first_screen.questions(planted, ["greatest"])
    assert question["panels"][0]["behind"][0]["token"] == THANKS


def test_a_run_with_nothing_but_sweeps_behind_replies_has_the_chapter(tmp_path, study_of):
    run = behind_run(tmp_path / "run", np.random.default_rng(3), plain=False)
    study = study_of(run, *CHAPTERS)
    row = study.tables["appended"].row(0, named=True)
    assert row["token"] == THANKS
    assert math.isnan(row["alone"])
